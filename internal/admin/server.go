// Package admin is the HTTP API for operators: orgs, users, keys, limits and
// their overrides, usage, and the audit of every change. It has its own listener
// and its own class of keys; no key of callers opens anything here, and no key of
// administrators calls a model.
//
// What it changes are records of package tenants. It never touches counters: what
// was used of a limit is not written from here.
package admin

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/storage/seal"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/webhook"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// Options are what a Server is built from. All but Failures, Queue, Batches, Webhooks, Reload,
// Refresh and Log are required.
type Options struct {
	Tenants *tenants.Store
	Budget  *budget.Store
	// File is what the configuration file says, Effective are the orgs in force. Both are
	// read-only.
	File      func() FileSettings
	Effective func() settings.Set
	// NewOrg, NewUser and NewLimit return one as a file has it that says nothing of it; user is
	// whose own the limit is, if any.
	NewOrg   func(id string) settings.Org
	NewUser  func(id string) settings.User
	NewLimit func(user, name string) settings.Limit
	// Patch puts fields, a JSON object, over what to points to: a settings.Org, User, Key or Limit.
	Patch func(to any, fields []byte) error
	// Defaults are the limits of every org in force.
	Defaults func() ([]budget.Limit, error)
	// Policy is what limits are in force.
	Policy func() *guard.Policy
	// Seal returns what credentials are sealed with; nil: nothing.
	Seal func() *seal.Ring
	// Check reports what makes an org's records unusable.
	Check func(org string, records *tenants.Tenant) error
	// Merge returns an org with these records over it.
	Merge func(org string, records *tenants.Tenant) (*settings.Org, error)
	// Simulate is what calls would be decided by with these orgs, for replays; nil: there are none.
	Simulate func([]settings.Org) (simulate.Policy, error)
	// LimitsOf returns the limits that a call of the ledger was made under.
	LimitsOf func(budget.Call) ([]budget.Limit, error)
	// Applied makes a change that was committed take effect in this process.
	Applied func()
	// Failures counts wrong keys, together with those sent elsewhere in this process;
	// nil: those sent here alone.
	Failures *auth.FailureLimiter
	// Queue opens the queue and Batches has the batches that can be cancelled; nil: none.
	Queue   func(context.Context) (*queue.Queue, error)
	Batches *batch.Store
	// Webhooks opens the webhooks; nil: none.
	Webhooks func() (*webhook.Sender, error)
	// Reload reads the configuration file again; nil: there is none to read.
	Reload func(context.Context) (*Reloaded, error)
	// Refresh reads what changed of the records, before each request on this machine; nil: this
	// process follows them.
	Refresh func(context.Context) error
	// Names lists what follows prefix in the names of an org's keys in Redis.
	Names func(ctx context.Context, org, prefix string) ([]string, error)
	// Files are the files that callers uploaded.
	Files *files.Store
	// Calibration lists what was learned of models whose tokenizer is not public.
	Calibration func(context.Context) ([]calibration.Row, error)
	// Purge counts what is kept of an org, and removes it unless that is only counted.
	Purge func(context.Context, PurgeOrder) (Purged, error)
	Log   *slog.Logger
}

// FileSettings is what the configuration file says that administrators meet.
type FileSettings struct {
	settings.Set
	Hash      string                   // the SHA-256 of the file, in hexadecimal
	Providers []string                 // their ids
	Admins    map[string]tenants.Admin // their keys, by id
	Peppers   []keys.Pepper            // of the hashes of keys; the first is for new ones
	ResultTTL time.Duration            // how long a job is kept after its end
}

// Server answers administrators. It is safe for concurrent use.
type Server struct {
	o        Options
	log      *slog.Logger
	failures *auth.FailureLimiter
	denials  refusals
	mux      *http.ServeMux
	openAPI  []byte

	replaying chan struct{} // has room for one replay
	live      live
}

// New returns a Server.
func New(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Failures == nil {
		o.Failures = auth.NewFailureLimiter()
	}
	s := &Server{o: o, log: o.Log, failures: o.Failures, mux: http.NewServeMux(), replaying: make(chan struct{}, 1)}
	s.live.turn = make(chan struct{}, 1)
	s.denials.rate = auth.NewFailureLimiterWith(recorded, recorded)
	for _, r := range routes {
		s.mux.HandleFunc(r.method+" "+prefix+r.path, func(http.ResponseWriter, *http.Request) {})
	}
	var err error
	s.openAPI, err = document()
	return s, err
}

// prefix begins every path.
const prefix = "/admin/v1"

// actor is who does something.
type actor struct {
	id       string
	readOnly bool
	local    bool // not over the network
}

type actorKey struct{}

// As returns the API for somebody on this machine who has the configuration and
// Redis at hand, and so needs no key. It must not be put on a listener.
func (s *Server) As(id string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), actorKey{}, actor{id: "local:" + id, local: true})))
	})
}

// ServeHTTP runs one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := wire.NewCallID()
	h := w.Header()
	h.Set("X-Request-Id", id)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	c := &call{Server: s, w: w, r: r, id: id, ip: peer(r), start: time.Now()}
	answer, err := c.run()
	if err != nil {
		c.fail(err)
	} else {
		c.answer(answer)
	}
	level := slog.LevelInfo
	if c.name == "getSelf" { // the console asks it for every page
		level = slog.LevelDebug
	}
	s.log.Log(r.Context(), level, "admin", "id", id, "route", c.name, "method", r.Method, "status", c.status, "actor", c.actor.id, "ip", c.ip.String(),
		"took", time.Since(c.start))
}

// peer is the address of the connection: nobody's X-Forwarded-For is believed here.
func peer(r *http.Request) netip.Addr {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}

// run checks who it is before anything else, even whether the route exists.
func (c *call) run() (any, error) {
	if err := sameOrigin(c.r); err != nil {
		return nil, err
	}
	var err error
	if c.actor, err = c.authenticate(); err != nil {
		return nil, err
	}
	route, err := c.match()
	if err != nil {
		return nil, err
	}
	c.name = route.name
	if c.actor.local && c.o.Refresh != nil {
		if err := c.o.Refresh(c.r.Context()); err != nil {
			return nil, err
		}
	}
	if route.local && !c.actor.local {
		return nil, wire.Forbidden("local_only", "This is done where the configuration and Redis are at hand, with `llmguard admins`, and not over the network")
	}
	if route.writes && c.actor.readOnly {
		return nil, wire.Forbidden("read_only", "This administrator's key may only read")
	}
	return route.serve(c)
}

// sameOrigin turns away what a browser sends on behalf of another site. A key
// would be missing all the same: no cookie is ever looked at.
func sameOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	site := r.Header.Get("Sec-Fetch-Site")
	if origin == "" && (site == "" || site == "same-origin" || site == "none") {
		return nil
	}
	if u, err := url.Parse(origin); err == nil && u.Host == r.Host && (site == "" || site == "same-origin") {
		return nil
	}
	return wire.Forbidden("cross_origin", "The administrators' API takes no requests from pages of other origins")
}

// authenticate finds the administrator. Every refusal reads the same. After too many
// wrong keys, of an address or in all, further ones get 429 and the store is not asked
// about them; a right key is never locked out.
func (c *call) authenticate() (actor, error) {
	if a, ok := c.r.Context().Value(actorKey{}).(actor); ok {
		return a, nil
	}
	blocked, known := c.failures.Blocked(c.ip, c.start), ""
	text, sent := bearer(c.r.Header)
	if sent {
		if class, err := keys.Check(text); err == nil && class == keys.Admin {
			a, ok := c.lookUp(text)
			if ok {
				return a, nil
			}
			known = a.id
			if !blocked && c.o.Tenants.Missed(c.r.Context()) { // it may be new
				if a, ok := c.lookUp(text); ok {
					return a, nil
				}
			}
		}
	}
	if blocked {
		return actor{}, wire.RateLimited("Too many requests with a wrong key", auth.FailureRetryAfter)
	}
	c.failures.Failed(c.ip, c.start)
	if sent {
		c.refused(known)
	}
	e := wire.InvalidKey("Send an administrator's key, as `Authorization: Bearer lg_admin_...`. `llmguard admins create` makes one")
	e.Header = http.Header{"Www-Authenticate": {"Bearer"}}
	return actor{}, e
}

// lookUp compares with every administrator's hash, so that its time tells nothing. An
// administrator whose key may not be used is returned as well, with false.
func (c *call) lookUp(text string) (actor, bool) {
	file := c.o.File()
	hashes := []string{keys.Hash(keys.Pepper{}, text)}
	for _, p := range file.Peppers {
		hashes = append(hashes, keys.Hash(p, text))
	}
	var found actor
	ok := false
	for id, a := range c.administrators(file) {
		if keys.EqualAny(hashes, a.Hash) {
			usable := !a.Disabled && (a.Expires.IsZero() || c.start.Before(a.Expires))
			if !ok {
				found, ok = actor{id: id, readOnly: a.ReadOnly}, usable
			}
		}
	}
	return found, ok
}

// administrators are those of the file with those in Redis over them.
func (c *call) administrators(file FileSettings) map[string]tenants.Admin {
	all := map[string]tenants.Admin{}
	maps.Copy(all, file.Admins)
	for id, a := range c.o.Tenants.Snapshot().Admins {
		all[id] = *a
	}
	return all
}

func (c *call) match() (route, error) {
	_, pattern := c.mux.Handler(c.r)
	for _, r := range routes {
		if pattern == r.method+" "+prefix+r.path {
			c.mux.ServeHTTP(discard{}, c.r) // sets the path's values
			return r, nil
		}
	}
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := *c.r
		probe.Method = m
		if _, pattern := c.mux.Handler(&probe); pattern != "" {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) > 0 {
		return route{}, wire.MethodNotAllowed(c.r.Method, allowed)
	}
	return route{}, wire.NotFound("", "unknown_url", "There is no %s %.200s. GET %s/openapi.json lists what there is", c.r.Method, c.r.URL.Path, prefix)
}

// discard is where the empty handlers of the mux write nothing.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

// public turns any error into the answer an administrator gets.
func public(err error) *wire.Error {
	var e *wire.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, tenants.ErrConflict):
		return &wire.Error{Status: http.StatusConflict, Type: "invalid_request_error", Code: "changed_meanwhile", Message: "Somebody else changed this meanwhile. Look at it again, then repeat", Err: err}
	case errors.Is(err, tenants.ErrUnavailable), errors.Is(err, budget.ErrUnavailable):
		return wire.ServiceUnavailable("Redis cannot be asked at the moment. A change may have been made: look before you repeat it", time.Second, err)
	default:
		return wire.Internal(err)
	}
}

// bearer returns the key of the one Authorization header.
func bearer(h http.Header) (string, bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, text, ok := strings.Cut(values[0], " ")
	return strings.TrimSpace(text), ok && strings.EqualFold(scheme, "bearer")
}
