package proxy

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/responses"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// responseHandler serves responses that are stored, here or at the provider, and those that run in
// the background.
type responseHandler struct {
	opts        *Options
	metrics     *metrics
	bodies      *bodyReader
	connections *connections
	calls       *callHandler
	repeats     *repeatHandler
	jobs        *jobHandler
	pacer       *pacer
}

func noResponse(id string) *wire.Error {
	return wire.NotFound("id", "response_not_found", "No such response: %s", shorten(id))
}

// fetch relays a request about a response of the caller to the provider: verb is the path below its id.
func (rh *responseHandler) fetch(x *request, r *http.Request, id, verb string) error {
	status := http.StatusOK
	n, err := rh.opts.Guard.Objects.Find(r.Context(), x.caller, wire.ObjectResponse, id)
	switch {
	case errors.Is(err, guard.ErrNotOwned), err == nil && !wire.PlainID(n.At()),
		n.Upstream != "" && verb == "": // of a forgotten background job; the provider has another id
		return noResponse(id)
	case err != nil:
		return err
	case n.Here:
		err = rh.keptHere(x, r, id, verb)
	default:
		pace := rh.pacer.of(x, n)
		if err := pace.Take(r.Context(), nil); err != nil {
			return err
		}
		defer pace.Give(r.Context(), nil)
		status, err = rh.opts.Guard.Passthrough.Relay(r.Context(), x, guard.Fetch{
			Org: x.caller.Org, Note: n, Request: providers.Request{
				Method: r.Method, Path: wire.Responses.Path() + "/" + n.At() + verb, Query: r.URL.RawQuery, Header: r.Header,
				Permit: pace.Permit,
			},
		})
	}
	if err == nil && r.Method == http.MethodDelete && status < 300 {
		rh.forget(x, r, n)
	}
	if spool.NoRoom(err) {
		return noRoom(err)
	}
	return err
}

func (rh *responseHandler) forget(x *request, r *http.Request, n ownership.Note) {
	if err := rh.opts.Guard.Objects.Forget(r.Context(), x.caller, n); err != nil {
		rh.opts.Log.Warn("record of a deleted response not removed", "id", x.id, "err", err)
	}
}

func (rh *responseHandler) oneResponse(x *request, r *http.Request, id string) error {
	job, err := rh.backgroundJob(r.Context(), x, id)
	switch {
	case err != nil:
		return err
	case job != nil && r.Method == http.MethodDelete:
		return rh.deleteBackground(x, r, job)
	case job != nil:
		return rh.retrieve(x, r, job)
	case x.past: // what the provider keeps is not of a run
		return noResponse(id)
	}
	return rh.fetch(x, r, id, "")
}

func (rh *responseHandler) cancelResponse(x *request, r *http.Request, id string) error {
	job, err := rh.backgroundJob(r.Context(), x, id)
	if err != nil {
		return err
	}
	if job != nil {
		return rh.cancelBackground(x, r, job)
	}
	return rh.fetch(x, r, id, "/cancel")
}

func (rh *responseHandler) responseInput(x *request, r *http.Request, id string) error {
	return rh.fetch(x, r, id, "/input_items")
}

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
