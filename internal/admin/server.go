// Package admin implements the HTTP API for operators: orgs, users, keys, limits and their
// overrides, usage, and the audit of every change. It has its own listener and its own class of
// keys. Callers' keys are not accepted here, and administrators' keys cannot call models.
//
// It changes records of package tenants. It changes the usage of limits only through package
// budget.
package admin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/storage/seal"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/orgdata"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/webhook"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/lua"
	"github.com/llmguard/llmguard/queue"
)

// Options configure a Server. All fields except Failures, Memory, Queue, Batches, Webhooks, Reload,
// Refresh and Log are required.
type Options struct {
	Tenants *tenants.Store
	Budget  *budget.Store
	// File returns the contents of the configuration file, Effective the orgs in effect. Both
	// results are read-only.
	File      func() FileSettings
	Effective func() settings.Set
	// NewOrg, NewUser and NewLimit return one with the defaults of the file; user owns the
	// limit, if not empty.
	NewOrg   func(id string) settings.Org
	NewUser  func(id string) settings.User
	NewLimit func(user, name string) settings.Limit
	// Patch applies fields, a JSON object, to what to points to: a settings.Org, User, Key or
	// Limit.
	Patch func(to any, fields []byte) error
	// Defaults returns the limits that apply to every org.
	Defaults func() ([]budget.Limit, error)
	// PlanLimits returns the limits of a plan of an org, or of a plan of every org; none if there is no
	// such plan.
	PlanLimits func(org, plan string) ([]budget.Limit, error)
	// Policy returns the policy in effect.
	Policy func() *guard.Policy
	// Seal returns the keys that encrypt credentials; nil: they are not encrypted.
	Seal func() *seal.Ring
	// Check returns an error if an org's records are invalid.
	Check func(org string, records *tenants.Tenant) error
	// Merge returns an org with these records applied.
	Merge func(org string, records *tenants.Tenant) (*settings.Org, error)
	// Simulate returns the policy that results from these orgs, for replays; nil: no replays.
	Simulate func([]settings.Org) (simulate.Policy, error)
	// LimitsOf returns the limits that applied to a call in the ledger.
	LimitsOf func(ledger.Call) ([]budget.Limit, error)
	// Applied puts a committed change into effect in this process.
	Applied func()
	// Failures counts wrong keys, together with those sent to other listeners of this process;
	// nil: count those sent here only.
	Failures *auth.FailureLimiter
	// Queue opens the queue, and Batches is the store of batches that can be cancelled; nil if
	// there are none.
	Queue   func(context.Context) (*queue.Queue, error)
	Batches *batch.Store
	// Webhooks opens the webhook sender; nil if there are none.
	Webhooks func() (*webhook.Sender, error)
	// Reload reloads the configuration file; nil if there is none.
	Reload func(context.Context) (*Reloaded, error)
	// Refresh reads changed records before each local request; nil if this process follows
	// changes.
	Refresh func(context.Context) error
	// Names lists what follows prefix in the names of an org's Redis keys.
	Names func(ctx context.Context, org, prefix string) ([]string, error)
	// Files is the store of uploaded files, Ownership what providers store for the orgs.
	Files     *files.Store
	Ownership *ownership.Store
	// Memory counts the runs that are created here; nil: nothing counts them.
	Memory *capacity.Memory
	// Calibration lists what was learned about models without a public tokenizer.
	Calibration func(context.Context) ([]calibration.Row, error)
	// Purge opens the data of an org, to count and delete it, until done is called.
	Purge func(ctx context.Context, org string) (p *orgdata.Purge, done func())
	Log   *slog.Logger
}

// FileSettings is the part of the configuration file that the API uses.
type FileSettings struct {
	settings.Set
	// Place returns the place of a value in the file, such as llmguard.yaml:12.
	Place     func(path string) string
	Hash      string                   // the SHA-256 of the file, in hexadecimal
	Providers []string                 // ids
	Admins    map[string]tenants.Admin // by id
	Peppers   []keys.Pepper            // for key hashes; new keys use the first
	ResultTTL time.Duration            // retention of completed jobs
}

// Server serves the admin API. It is safe for concurrent use.
type Server struct {
	opts   *Options
	log    *slog.Logger
	mux    *http.ServeMux
	routes []Operation

	login *authenticator
	audit *recorder

	orgs         *orgHandler
	users        *userHandler
	keys         *keyHandler
	runs         *runHandler
	limits       *limitHandler
	resets       *resetHandler
	stops        *stopHandler
	brakes       *brakeHandler
	overrides    *overrideHandler
	requests     *limitRequestHandler
	credentials  *credentialHandler
	declarations *declarationHandler
	orgData      *orgDataHandler
	jobs         *jobHandler
	queues       *queueHandler
	batches      *batchHandler
	webhooks     *webhookHandler
	usage        *usageHandler
	ledger       *ledgerHandler
	finance      *financeHandler
	why          *whyHandler
	admins       *adminHandler
	system       *systemHandler
}

// New returns a Server.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Failures == nil {
		o.Failures = auth.NewFailureLimiter()
	}
	s := &Server{opts: &o, log: o.Log, mux: http.NewServeMux()}
	s.setHandlers(&o)
	s.routes = s.table()
	for _, r := range s.routes {
		s.mux.HandleFunc(r.Method+" "+prefix+r.Path, func(http.ResponseWriter, *http.Request) {})
	}
	s.system.openAPI = sync.OnceValues(func() ([]byte, error) { return document(s.routes) })
	return s
}

// base is what all handlers need.
type base struct {
	opts  *Options
	dir   *directory
	audit *recorder
}

// setHandlers creates the handlers, starting with those that others need.
func (s *Server) setHandlers(o *Options) {
	b := base{o, &directory{opts: o}, &recorder{opts: o}}
	s.audit, s.login = b.audit, newAuthenticator(o, b.audit)
	s.orgs, s.stops, s.brakes, s.credentials = &orgHandler{b}, &stopHandler{b}, &brakeHandler{b}, &credentialHandler{b}
	s.limits, s.batches, s.queues, s.webhooks = &limitHandler{b}, &batchHandler{b}, &queueHandler{b}, &webhookHandler{b}
	s.resets, s.overrides = &resetHandler{b, s.limits}, &overrideHandler{b, s.limits}
	s.requests = &limitRequestHandler{b, s.limits, s.overrides}
	s.users, s.jobs = &userHandler{b, s.overrides}, &jobHandler{b, s.batches}
	s.runs = &runHandler{b, guard.NewRuns(o.Budget, o.Memory)}
	s.keys = &keyHandler{b, s.overrides, s.jobs, s.runs}
	s.declarations = &declarationHandler{b, s.keys, newReplayer(o)}
	s.orgData = &orgDataHandler{b, s.jobs, s.orgs.getOrg, []ofOrg{
		{"user", s.users.listUsers},
		{"key", s.keys.listKeys},
		{"limit", s.limits.listLimits},
		{"override", s.overrides.listOverrides},
		{"limit_request", s.requests.ofOrg},
		{"credential", s.credentials.listCredentials},
	}}
	s.usage = &usageHandler{b, make(chan struct{}, 2)}
	s.ledger, s.finance = &ledgerHandler{b, s.usage}, &financeHandler{b, s.usage}
	s.why, s.admins = &whyHandler{b, s.jobs, s.usage, s.runs}, &adminHandler{b, s.login}
	s.system = &systemHandler{base: b, jobs: s.jobs, usage: s.usage, live: live{turn: make(chan struct{}, 1)}}
}

const prefix = "/admin/v1"

// As returns the API for a local user with access to the configuration and Redis, who needs no
// key. It must not be served on a listener.
func (s *Server) As(id string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), actorKey{}, actor{id: "local:" + id, local: true})))
	})
}

// ServeHTTP serves one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := wire.NewCallID()
	h := w.Header()
	h.Set("X-Request-Id", id)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	c := &call{log: s.log, w: w, r: r, id: id, ip: peer(r), start: time.Now()}
	if s.opts.Policy != nil {
		c.rules = s.opts.Policy().Headers
	}
	answer, err := s.run(c)
	if err != nil {
		c.fail(err)
	} else {
		c.answer(answer)
	}
	level := slog.LevelInfo
	if c.name() == "getSelf" { // the console calls it for every page
		level = slog.LevelDebug
	}
	s.log.Log(r.Context(), level, "admin", "id", id, "route", c.name(), "method", r.Method, "status", c.status,
		"actor", c.actor.id, "ip", c.ip.String(), "took", time.Since(c.start))
}

func (c *call) name() string {
	if c.op == nil {
		return ""
	}
	return c.op.Name
}

// peer returns the address of the connection. X-Forwarded-For is not trusted here.
func peer(r *http.Request) netip.Addr {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}

// run authenticates before anything else, even before it checks whether the route exists.
func (s *Server) run(c *call) (any, error) {
	if err := sameOrigin(c.r); err != nil {
		return nil, err
	}
	var err error
	c.actor, err = s.login.authenticate(c)
	if err != nil {
		return nil, err
	}
	route, err := s.match(c)
	if err != nil {
		return nil, err
	}
	c.op = &route
	if c.actor.local && s.opts.Refresh != nil {
		if err := s.opts.Refresh(c.r.Context()); err != nil {
			return nil, err
		}
	}
	if route.Local && !c.actor.local {
		return nil, wire.Forbidden("local_only",
			"Administrators cannot be changed over the network. Use `llmguard admins` on a machine with the configuration and access to Redis")
	}
	if route.Writes && c.actor.readOnly {
		return nil, wire.Forbidden("read_only", "This administrator's key is read-only")
	}
	if err := c.take(); err != nil {
		return nil, err
	}
	return route.serve(c)
}

// sameOrigin rejects requests that a browser sends on behalf of another site. They would lack a
// key anyway, because cookies are never read.
func sameOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	site := r.Header.Get("Sec-Fetch-Site")
	if origin == "" && (site == "" || site == "same-origin" || site == "none") {
		return nil
	}
	if u, err := url.Parse(origin); err == nil && u.Host == r.Host && (site == "" || site == "same-origin") {
		return nil
	}
	return wire.Forbidden("cross_origin", "The admin API does not accept requests from pages of other origins")
}

func (s *Server) match(c *call) (Operation, error) {
	_, pattern := s.mux.Handler(c.r)
	for _, r := range s.routes {
		if pattern == r.Method+" "+prefix+r.Path {
			s.mux.ServeHTTP(discard{}, c.r) // sets the path values
			return r, nil
		}
	}
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := *c.r
		probe.Method = m
		if _, pattern := s.mux.Handler(&probe); pattern != "" {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) > 0 {
		return Operation{}, wire.MethodNotAllowed(c.r.Method, allowed)
	}
	return Operation{}, wire.NotFound("", "unknown_url", "There is no %s %.200s. GET %s/openapi.json lists all paths",
		c.r.Method, c.r.URL.Path, prefix)
}

// discard is a ResponseWriter for the mux's empty handlers.
type discard struct{}

func (discard) Header() http.Header         { return http.Header{} }
func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) WriteHeader(int)             {}

func public(err error) *wire.Error {
	var e *wire.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, tenants.ErrConflict):
		e := conflict("changed_meanwhile", "Another administrator changed this in the meantime. Check it and try again")
		e.Err = err
		return e
	case errors.Is(err, tenants.ErrUnavailable), errors.Is(err, budget.ErrUnavailable), lua.Unavailable(err):
		return wire.ServiceUnavailable("Redis is unavailable. If this was a change, it may have been applied; "+
			"check before retrying", time.Second, err)
	default:
		return wire.Internal(err)
	}
}
