package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// purposes are those of files that a provider stores. Files for batches are stored here; other
// purposes are not supported.
var purposes = []string{"assistants", "user_data", "vision"}

func purposeKept(purpose string) error {
	if slices.Contains(purposes, purpose) {
		return nil
	}
	return wire.BadRequest("purpose", "invalid_value",
		"purpose must be one of %s, not %q. Create files for batches with POST /v1/files",
		strings.Join(purposes, ", "), shorten(purpose))
}

// elsewhere reports whether a file that was not found here may be stored at a provider.
func (fh *fileHandler) elsewhere(err error) bool {
	var public *wire.Error
	return errors.As(err, &public) && public.Code == "file_not_found"
}

func (fh *fileHandler) uploadElsewhere(x *request, r *http.Request, f *uploadForm) error {
	if err := purposeKept(f.fields["purpose"]); err != nil {
		return err
	}
	q := &guard.ObjectRequest{Operation: fh.objects.operations["POST /files"]}
	q.Request = providers.Request{Method: q.Method, Path: q.Path, Header: r.Header}
	f.fill(&q.Request)
	return fh.objects.send(x, r, q)
}

// listFiles lists the caller's files for batches, which are stored here, and then the org's files
// that a provider stores.
func (fh *fileHandler) listFiles(x *request, r *http.Request, f files.Filter) error {
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	data := []json.RawMessage{}
	more := false
	after := f.After
	if fh.opts.Files != nil && !slices.Contains(purposes, f.Purpose) {
		page, left, err := fh.opts.Files.List(ctx, owner(x), f)
		switch {
		case errors.Is(err, files.ErrNotFound): // the page starts after a file stored at the provider
		case err != nil:
			return unavailable(err)
		default:
			after, more = "", left
			for _, one := range page {
				text, err := json.Marshal(viewFile(one))
				if err != nil {
					return err
				}
				data = append(data, text)
			}
		}
	}
	read := len(data)
	if f.Purpose != "" { // the others were read in vain
		read = f.Limit
	}
	if !more && len(data) < f.Limit && f.Purpose != files.Batch {
		rest, left, err := fh.filesElsewhere(ctx, x, f, after, f.Limit-len(data))
		if err != nil {
			return err
		}
		data = append(data, rest...)
		more = left
		read = read + len(rest)
	} else if after != "" {
		return noCursor()
	}
	fh.reads.spend(x.caller.Org.ID, x.caller.Key, read/filesPerUnit, time.Now())
	return x.json(http.StatusOK, listOf(data, more, idOf))
}

func noCursor() *wire.Error {
	return wire.BadRequest("after", "invalid_value", "after must be the id of one of your files")
}

// filesElsewhere returns the files that a provider stores, as recorded when they were created: they
// never change.
func (fh *fileHandler) filesElsewhere(
	ctx context.Context, x *request, f files.Filter, after string, limit int,
) ([]json.RawMessage, bool, error) {
	page := ownership.Page{After: after, Oldest: f.Oldest, Limit: limit}
	data, more, err := fh.objects.collect(ctx, x, wire.ObjectFile, page, objectShower{
		ownership.MostKept,
		func(notes []ownership.Note) ([]json.RawMessage, error) {
			shown := make([]json.RawMessage, len(notes))
			var err error
			for i, n := range notes {
				if err == nil && (f.Purpose == "" || f.Purpose == n.Purpose) {
					shown[i], err = json.Marshal(viewNote(n))
				}
			}
			return shown, err
		},
	})
	if errors.Is(err, ownership.ErrNoSuch) {
		return nil, false, noCursor()
	}
	return data, more, err
}

// viewNote returns a file stored at the provider in OpenAI's format.
func viewNote(n ownership.Note) fileView {
	return fileView{
		ID: n.ID, Object: "file", Bytes: n.Bytes, Created: n.Created, Expires: n.Until,
		Filename: n.Name, Purpose: n.Purpose, Status: "processed",
	}
}
