package proxy

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/responses"
	"github.com/llmguard/llmguard/internal/wire"
)

// keptHere answers a request about a response of the caller that this proxy stores because its
// provider cannot.
func (rh *responseHandler) keptHere(x *request, r *http.Request, id, verb string) error {
	if verb == "/cancel" {
		return wire.BadRequest("", "", "Only responses that were created with background=true can be cancelled")
	}
	if r.Method == http.MethodDelete { // the note is deleted too
		return x.json(http.StatusOK, map[string]any{"id": id, "object": "response", "deleted": true})
	}
	t, err := rh.opts.Guard.Objects.Response(r.Context(), x.caller, id)
	switch {
	case errors.Is(err, guard.ErrNotOwned):
		return noResponse(id)
	case err != nil:
		return err
	case verb == "/input_items":
		return listItems(x, r.URL.Query(), t.Input)
	case r.URL.Query().Get("stream") == "true":
		return wire.BadRequest("stream", "invalid_value",
			"This response cannot be streamed: it was not created with background=true")
	}
	return x.document(t.Response)
}

const (
	itemsPage = 20
	itemsMost = 100
)

// listItems returns a page of items, the last first by default.
func listItems(x *request, query url.Values, raw []byte) error {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return err
	}
	limit, err := limitOf(query, itemsPage, itemsMost)
	if err != nil {
		return err
	}
	if query.Get("order") != "asc" {
		slices.Reverse(items)
	}
	if after := query.Get("after"); after != "" {
		at := slices.IndexFunc(items, func(item json.RawMessage) bool { return responses.ItemID(item) == after })
		items = items[at+1:]
	}
	more := len(items) > limit
	items = items[:min(len(items), limit)]
	return x.json(http.StatusOK, listOf(items, more, idOf))
}
