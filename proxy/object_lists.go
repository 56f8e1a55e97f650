package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// maxObjects is the maximum page of a list for which each object is requested from its provider, and how
// many are requested to find those that match its filters.
const maxObjects = 100

// objectsAtOnce is how many of them are requested concurrently, less than one key may.
const objectsAtOnce = 4

// list returns the org's objects of a kind, each as its provider shows it now. A provider's own list
// would include those of other orgs.
func (h *objectHandler) list(x *request, r *http.Request, op wire.Operation) error {
	query := r.URL.Query()
	limit, err := limitOf(query, 20, maxObjects)
	if err != nil {
		return err
	}
	page := ownership.Page{After: query.Get("after"), Before: query.Get("before"), Limit: limit}
	page.Oldest, err = oldestFirst(query)
	if err != nil {
		return err
	}
	x.endReads()
	found, more, err := h.collect(r.Context(), x, op.Object.Kind, page, objectShower{
		maxObjects,
		func(notes []ownership.Note) ([]json.RawMessage, error) { return h.showAll(x, r, op, notes) },
	})
	if errors.Is(err, ownership.ErrNoSuch) {
		return wire.BadRequest("after", "invalid_value", "after and before must be ids of your own objects")
	}
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, listOf(found, more, idOf))
}

// objectShower shows the objects of a list. notes returns the JSON of each note, nil to leave it out; at most
// `most` notes are read.
type objectShower struct {
	most  int
	notes func([]ownership.Note) ([]json.RawMessage, error)
}

// collect returns a page of the caller's objects of a kind, and whether there are more.
func (h *objectHandler) collect(
	ctx context.Context, x *request, k wire.ObjectKind, page ownership.Page, show objectShower,
) (found []json.RawMessage, more bool, err error) {
	limit := page.Limit
	found, more = []json.RawMessage{}, true
	for read := 0; more && len(found) < limit && read < show.most; read += page.Limit {
		page.Limit = limit - len(found)
		var notes []ownership.Note
		notes, more, err = h.opts.Guard.Objects.List(ctx, x.caller, k, page)
		if err != nil {
			return nil, false, err
		}
		shown, err := show.notes(notes)
		if err != nil {
			return nil, false, err
		}
		for _, text := range shown {
			if text != nil {
				found = append(found, text)
			}
		}
		if len(notes) == 0 {
			return found, false, nil
		}
		if page.Before != "" && page.After == "" {
			break
		}
		page.After = notes[len(notes)-1].ID
	}
	return found, more, nil
}

// showAll requests each object of a page from its provider. Those that do not match the filters of the
// query are nil.
func (h *objectHandler) showAll(x *request, r *http.Request, op wire.Operation,
	notes []ownership.Note,
) ([]json.RawMessage, error) {
	shown := make([]json.RawMessage, len(notes))
	var group errgroup.Group
	group.SetLimit(objectsAtOnce)
	for i, n := range notes {
		group.Go(func() (err error) {
			shown[i], err = h.show(x, r, op, n)
			return err
		})
	}
	err := group.Wait()
	for i, text := range shown {
		if text != nil && !matches(text, r.URL.Query()) {
			shown[i] = nil
		}
	}
	return shown, err
}

// show requests one object; nil if it is gone.
func (h *objectHandler) show(x *request, r *http.Request, op wire.Operation,
	n ownership.Note,
) (json.RawMessage, error) {
	pace := h.pacer.of(x, n)
	if err := pace.Take(r.Context(), nil); err != nil {
		return nil, err
	}
	defer pace.Give(r.Context(), nil)
	status, body, err := h.opts.Guard.Passthrough.Read(r.Context(), guard.Fetch{
		Org: x.caller.Org, Note: n, Request: providers.Request{
			Method: http.MethodGet, Path: op.Path + "/" + n.ID, Header: r.Header, Permit: pace.Permit,
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

// matches reports whether an object matches the filters of a list.
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

func idOf(text *json.RawMessage) *string {
	var has struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(*text, &has) // it is valid
	return &has.ID
}
