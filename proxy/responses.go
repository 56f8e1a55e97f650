package proxy

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/quota"
)

// responseHandler serves responses that are stored, here or at the provider, and those that run in
// the background.
type responseHandler struct {
	opts        *Options
	metrics     *metrics
	fetches     *reads // of what providers store
	bodies      *bodyReader
	connections *connections
	calls       *callHandler
	repeats     *repeatHandler
	jobs        *jobHandler
}

// ownResponse returns a response that the provider stores for the caller. Those of others do not
// exist.
func (rh *responseHandler) ownResponse(x *request, r *http.Request, id string) (ownership.Note, error) {
	n, err := rh.opts.Guard.Objects.Owned(r.Context(), x.caller, id)
	if errors.Is(err, guard.ErrNotOwned) ||
		err == nil && (n.User != x.caller.User || n.Born != x.caller.UserBorn || n.Response != "" || n.Kind != "" ||
			!plainID(n.At())) {
		return n, noResponse(id)
	}
	return n, err
}

func noResponse(id string) *wire.Error {
	return wire.NotFound("id", "response_not_found", "No such response: %s", shorten(id))
}

// plainID reports whether an id can be inserted into a path unchanged.
func plainID(id string) bool {
	return id != "" && strings.Trim(id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == ""
}

// fetch relays a request about a response of the caller to the provider.
func (rh *responseHandler) fetch(x *request, r *http.Request, id, method, verb string) (int, error) {
	n, err := rh.ownResponse(x, r, id)
	if err != nil {
		return 0, err
	}
	if n.Here {
		return http.StatusOK, rh.keptHere(x, r, id, method, verb)
	}
	if n.Upstream != "" && verb == "" { // of a forgotten background job; the provider has another id
		return 0, noResponse(id)
	}
	fresh, done, err := rh.paced(x, r, n)
	if err != nil {
		return 0, err
	}
	defer done(false)
	status, err := rh.opts.Guard.Passthrough.Relay(r.Context(), x, guard.Fetch{
		Org: x.caller.Org, Note: n, Request: providers.Request{
			Method: method, Path: wire.Responses.Path() + "/" + n.At() + verb, Query: r.URL.RawQuery, Header: r.Header,
			Fresh: fresh,
		},
	})
	if spool.NoRoom(err) {
		err = noRoom(err)
	}
	return status, err
}

// paced takes what a request about a stored response costs besides money: part of its key's rate,
// and one request of the provider's quota until done is called. fresh reports whether it may still
// be sent.
func (rh *responseHandler) paced(x *request, r *http.Request,
	n ownership.Note,
) (fresh func() bool, done func(unused bool), err error) {
	org := x.caller.Org
	free, err := rh.fetches.begin(org.ID, x.caller.Key, 1, time.Now())
	if err != nil {
		return nil, nil, err
	}
	x.report(rh.fetches.state(org.ID, x.caller.Key, time.Now()))
	pool := rh.opts.Guard.Passthrough.Pool(org, n)
	if pool == "" { // nothing will be sent
		return nil, func(bool) { free() }, nil
	}
	// The request has no user, because nothing else of its caller waits for it.
	grant, err := rh.opts.Guard.Grants.Take(r.Context(), org, quota.Request{Pool: pool, ID: x.id, Org: org.ID}, nil)
	if err != nil {
		free()
		return nil, nil, guard.QuotaError(err)
	}
	done = func(unused bool) {
		rh.opts.Guard.Grants.Give(r.Context(), grant, unused)
		free()
	}
	return grant.Fresh, done, nil
}

// pace is the quota of a call that is charged a fee: see paced.
type pace struct {
	responses *responseHandler
	x         *request
	r         *http.Request
	note      ownership.Note
	fresh     func() bool // nil: nothing will be sent
	done      func(unused bool)
	unused    bool // nothing was sent
}

// Take implements guard.Quota.
func (p *pace) Take(context.Context, *guard.Call) (err error) {
	p.fresh, p.done, err = p.responses.paced(p.x, p.r, p.note)
	return err
}

// Fresh implements guard.Quota.
func (p *pace) Fresh() bool { return p.fresh == nil || p.fresh() }

// Give implements guard.Quota.
func (p *pace) Give(context.Context, *guard.Call) { p.done(p.unused) }

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
	status, err := rh.fetch(x, r, id, r.Method, "")
	if err == nil && status < 300 && r.Method == http.MethodDelete {
		if err := rh.opts.Guard.Objects.DropResponse(r.Context(), x.caller, id); err != nil {
			rh.opts.Log.Warn("record of a deleted response not removed", "id", x.id, "err", err)
		}
	}
	return err
}

func (rh *responseHandler) cancelResponse(x *request, r *http.Request, id string) error {
	job, err := rh.backgroundJob(r.Context(), x, id)
	if err != nil {
		return err
	}
	if job != nil {
		return rh.cancelBackground(x, r, job)
	}
	_, err = rh.fetch(x, r, id, http.MethodPost, "/cancel")
	return err
}

func (rh *responseHandler) responseInput(x *request, r *http.Request, id string) error {
	_, err := rh.fetch(x, r, id, http.MethodGet, "/input_items")
	return err
}
