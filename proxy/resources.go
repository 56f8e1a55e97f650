package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
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

// uploadThing sends a file to the provider.
func (fh *fileHandler) uploadThing(x *request, r *http.Request, f *uploadForm) error {
	if err := purposeKept(f.fields["purpose"]); err != nil {
		return err
	}
	t := &task{operation: uploadFile, request: providers.Request{Method: http.MethodPost, Header: r.Header}}
	f.fill(&t.request)
	return fh.objects.carryOut(x, r, t)
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
func (fh *fileHandler) filesElsewhere(ctx context.Context, x *request, f files.Filter, after string,
	limit int,
) ([]json.RawMessage, bool, error) {
	var data []json.RawMessage
	for more := true; more && len(data) < limit; {
		list, left, err := fh.opts.Guard.Objects.List(ctx, x.caller, ownership.File,
			ownership.Page{After: after, Oldest: f.Oldest, Limit: limit - len(data)})
		if errors.Is(err, ownership.ErrNoSuch) {
			return nil, false, noCursor()
		}
		if err != nil {
			return nil, false, err
		}
		for _, n := range list {
			after = n.ID
			if f.Purpose != "" && n.Purpose != f.Purpose {
				continue
			}
			text, err := json.Marshal(viewNote(n))
			if err != nil {
				return nil, false, err
			}
			data = append(data, text)
		}
		more = left && len(list) > 0
		if more && len(data) == limit {
			return data, true, nil
		}
	}
	return data, false, nil
}

// viewNote returns a file stored at the provider in OpenAI's format.
func viewNote(n ownership.Note) fileView {
	return fileView{
		ID: n.ID, Object: "file", Bytes: n.Bytes, Created: n.Created, Expires: n.Until,
		Filename: n.Name, Purpose: n.Purpose, Status: "processed",
	}
}

// mostThings is the maximum page of a list for which each thing is requested from its provider.
const mostThings = 100

// thingsAtOnce is how many of them are requested concurrently, less than one key may.
const thingsAtOnce = 4

// listThings returns the org's things of a kind, each as its provider shows it now. A provider's
// own list would include those of other orgs.
func (h *objectHandler) listThings(x *request, r *http.Request, op operation) error {
	query := r.URL.Query()
	limit, err := limitOf(query, 20, mostThings)
	if err != nil {
		return err
	}
	page := ownership.Page{After: query.Get("after"), Before: query.Get("before"), Limit: limit}
	page.Oldest, err = oldestFirst(query)
	if err != nil {
		return err
	}
	x.endReads()
	found, more := []json.RawMessage{}, true
	for read := 0; more && len(found) < limit && read < mostThings; read += page.Limit { // filters leave some out
		page.Limit = limit - len(found)
		var list []ownership.Note
		list, more, err = h.opts.Guard.Objects.List(r.Context(), x.caller, op.lists, page)
		if errors.Is(err, ownership.ErrNoSuch) {
			return wire.BadRequest("after", "invalid_value", "after and before must be ids of your own objects")
		}
		if err != nil {
			return err
		}
		shown, err := h.showThings(x, r, op, list)
		if err != nil {
			return err
		}
		for _, text := range shown {
			if text != nil && matches(text, query) {
				found = append(found, text)
			}
		}
		if page.Before != "" && page.After == "" || len(list) == 0 {
			break
		}
		page.After = list[len(list)-1].ID
	}
	return x.json(http.StatusOK, listOf(found, more, idOf))
}

// showThings requests each thing of a page.
func (h *objectHandler) showThings(x *request, r *http.Request, op operation,
	list []ownership.Note,
) ([]json.RawMessage, error) {
	shown := make([]json.RawMessage, len(list))
	fails := make([]error, len(list))
	var wait sync.WaitGroup
	places := make(chan struct{}, thingsAtOnce)
	for i, n := range list {
		places <- struct{}{}
		wait.Go(func() {
			defer func() { <-places }()
			shown[i], fails[i] = h.showThing(x, r, op, n)
		})
	}
	wait.Wait()
	return shown, errors.Join(fails...)
}

// showThing requests one thing; nil if it is gone.
func (h *objectHandler) showThing(x *request, r *http.Request, op operation,
	n ownership.Note,
) (json.RawMessage, error) {
	fresh, done, err := h.responses.paced(x, r, n)
	if err != nil {
		return nil, err
	}
	defer done(false)
	status, body, err := h.opts.Guard.Passthrough.Read(r.Context(), guard.Fetch{
		Org: x.caller.Org, Note: n, Request: providers.Request{
			Method: http.MethodGet, Path: op.path + "/" + n.ID, Header: r.Header, Fresh: fresh,
		},
	})
	switch {
	case status == http.StatusNotFound:
		if err := h.opts.Guard.Objects.Forget(r.Context(), x.caller, n); err != nil {
			h.opts.Log.Warn("record of an object at a provider not updated", "id", x.id, "err", err)
		}
		return nil, nil
	case err != nil:
		return nil, err
	case status >= 300 || !json.Valid(body):
		return nil, wire.BadGateway("The provider did not return one of the listed objects", nil)
	}
	return body, nil
}

// matches reports whether a thing matches the filters of a list.
func matches(text json.RawMessage, query map[string][]string) bool {
	var has struct {
		Name, Model string
		Metadata    map[string]any
	}
	_ = json.Unmarshal(text, &has) // it is valid
	for name, values := range query {
		want := values[0]
		switch key, ok := strings.CutPrefix(name, "metadata["); {
		case ok && has.Metadata[strings.TrimSuffix(key, "]")] != want,
			name == "name" && has.Name != want,
			name == "model" && has.Model != want:
			return false
		}
	}
	return true
}

// idOf returns the id of a thing.
func idOf(text *json.RawMessage) *string {
	var has struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(*text, &has) // it is valid
	return &has.ID
}
