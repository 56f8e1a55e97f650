package proxy

import (
	"errors"
	"net/http"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/ownership"
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

// forget removes the record of a deleted response.
func (rh *responseHandler) forget(x *request, r *http.Request, n ownership.Note) {
	if err := rh.opts.Guard.Objects.Forget(r.Context(), x.caller, n); err != nil {
		rh.opts.Log.Warn("record of a deleted response not removed", "id", x.id, "err", err)
	}
}

// oneResponse retrieves or deletes a response.
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
