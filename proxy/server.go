// Package proxy is the HTTP server for callers: it authenticates, reads and refuses requests, runs
// live calls through guard, and lets calls that do not fit wait in queue. It holds no state that
// another process would need.
package proxy

import (
	"cmp"
	"context"
	"hash/maphash"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/idempotency"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tracing"
	"github.com/llmguard/llmguard/internal/webhook"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// Options configure a Server. Guard, Queue, Idempotency and Directory are required; zero values of
// the others mean the given defaults.
type Options struct {
	Guard       *guard.Guard
	Queue       *queue.Queue
	Idempotency *idempotency.Store
	Directory   *auth.Directory
	// Files and Batches are nil in a process that serves neither.
	Files   *files.Store
	Batches *batch.Store

	// Failures counts wrong keys, shared with other servers in this process; nil counts only those
	// sent to this one.
	Failures *auth.FailureLimiter
	// Missed, if set, looks up keys that are newer than the Directory and reports whether
	// SetDirectory was called with any. Used, if set, is called for every use of a key; it must not
	// block.
	Missed func(context.Context) bool
	Used   func(org, key string, at time.Time)

	Spool          *spool.Store    // space for bodies and answers; nil: a default one
	Webhooks       *webhook.Sender // nil: no webhooks
	Raises         *tenants.Store  // requests for more of a limit; required if an org allows them
	TrustedProxies []netip.Prefix
	CORSOrigins    []string      // origins of web pages that may call; * for all; nil: none
	MaxBody        int64         // bytes; default 32 MB
	MaxFile        int64         // bytes of an upload; default 200 MB
	Scan           wire.Limits   // JSON bounds
	ReadBody       time.Duration // for a whole body; default 60 s
	Write          time.Duration // for the caller to take bytes; default 60 s
	HoldFor        time.Duration // silent wait of plain callers; default 280 s
	KeepAlive      time.Duration // pause before and between newlines; default 15 s
	KeepPlace      time.Duration // of a caller asked to retry; default 90 s
	KeepAnswer     time.Duration // under an Idempotency-Key; default 24 h
	Streams        int           // concurrent event streams, WebSockets, uploads and downloads; 0: no bound

	Log     *slog.Logger
	Metrics prometheus.Registerer
	Tracer  *tracing.Tracer // nil: nothing is traced
}

func (o *Options) withDefaults() {
	setDefault(&o.MaxBody, 32_000_000)
	setDefault(&o.MaxFile, 200_000_000)
	setDefault(&o.ReadBody, time.Minute)
	setDefault(&o.Write, time.Minute)
	setDefault(&o.HoldFor, 280*time.Second)
	setDefault(&o.KeepAlive, 15*time.Second)
	setDefault(&o.KeepPlace, 90*time.Second)
	setDefault(&o.KeepAnswer, 24*time.Hour)
	if o.Failures == nil {
		o.Failures = auth.NewFailureLimiter()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Spool == nil {
		o.Spool = spool.New(spool.Options{Log: o.Log})
	}
}

func setDefault[T int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Server answers callers. It is safe for concurrent use.
type Server struct {
	opts    Options
	guard   *guard.Guard
	queue   *queue.Queue
	metrics *metrics
	routes  map[string]route
	served  string   // what the routes serve, for messages
	lists   []string // paths of lists of objects
	reads   *reads

	auth        *authenticator
	bodies      *bodyReader
	connections *connections
	calls       *callHandler
	repeats     *repeatHandler
	jobs        *jobHandler
	responses   *responseHandler
	files       *fileHandler
	batches     *batchHandler
	objects     *objectHandler
	self        *selfHandler
	raises      *raiseHandler
	holds       *holdHandler
	runs        *runHandler
	sockets     *socketHandler
}

// New returns a Server. It opens no connections.
func New(o Options) *Server {
	o.withDefaults()
	s := &Server{
		opts: o, guard: o.Guard, queue: o.Queue, metrics: newMetrics(o.Metrics), reads: newReads(storeReads),
	}
	s.assemble()
	s.auth.directory.Store(o.Directory)
	s.routes = s.table()
	s.lists, s.served = lists(s.routes), served(s.routes)
	return s
}

func (s *Server) assemble() {
	o := &s.opts
	s.auth = &authenticator{
		opts: o, metrics: s.metrics, failures: o.Failures,
		vouched: rate.NewLimiter(vouchedRate, vouchedRate),
	}
	drained, drain := context.WithCancel(context.Background()) //nolint:forbidigo // it belongs to no call
	s.connections = &connections{
		streams: newStreams(o.Streams), drained: drained, drain: drain, sockets: semaphore.NewWeighted(maxSockets),
	}
	s.bodies = &bodyReader{opts: o, connections: s.connections, roomWait: roomPatience}
	s.jobs = &jobHandler{opts: o, connections: s.connections, stopWait: storeTimeout}
	s.repeats = &repeatHandler{opts: o, metrics: s.metrics}
	s.calls = &callHandler{
		opts: o, metrics: s.metrics, puts: make(chan struct{}, maxPuts), looks: make(chan struct{}, maxLooks),
		crowd: newCrowd(), runs: &runTimes{seed: maphash.MakeSeed()}, flows: &waitingFlows{count: map[waitingLane]int{}},
		stops:  &stopWatch{waiting: map[*waitingCaller]context.CancelCauseFunc{}},
		bodies: s.bodies, connections: s.connections, repeats: s.repeats, jobs: s.jobs,
	}
	pacer := &pacer{guard: o.Guard, reads: newReads(upstreamReads)}
	s.responses = &responseHandler{
		opts: o, metrics: s.metrics, pacer: pacer, bodies: s.bodies, connections: s.connections,
		calls: s.calls, repeats: s.repeats, jobs: s.jobs,
	}
	s.objects = newObjectHandler(o, s.bodies, pacer)
	s.files = &fileHandler{opts: o, reads: s.reads, bodies: s.bodies, connections: s.connections, objects: s.objects}
	s.batches = &batchHandler{opts: o, bodies: s.bodies, calls: s.calls, files: s.files}
	s.self = &selfHandler{opts: o}
	s.raises = &raiseHandler{opts: o, bodies: s.bodies}
	s.holds = &holdHandler{opts: o, bodies: s.bodies, repeats: s.repeats, changes: newReads(holdChanges)}
	s.runs = &runHandler{opts: o, auth: s.auth, bodies: s.bodies}
	s.sockets = &socketHandler{opts: o, connections: s.connections, requests: s, idle: socketIdle}
}

// begin makes a planned call; one in the background is a response that its caller fetches later. A message that only
// warms its WebSocket makes none.
func (s *Server) begin(x *request, r *http.Request, plan *guard.Plan, wish preferences) error {
	if f, ok := x.ResponseWriter.(*frame); ok && f.warms {
		return f.warm(x, plan)
	}
	if plan.Request.Background {
		return s.responses.onceInBackground(x, r, plan, wish)
	}
	return s.calls.once(x, r, plan, wish)
}

// SetDirectory replaces the known keys.
func (s *Server) SetDirectory(d *auth.Directory) { s.auth.directory.Store(d) }

// Drain sends callers that wait in the queue away with an answer that makes them retry; running
// calls continue. It is for shutting down.
func (s *Server) Drain() { s.connections.drain() }

// WaitSockets waits until no WebSocket is open. From then on none can be opened. Call it after Drain, which closes
// them once their calls have ended.
func (s *Server) WaitSockets(ctx context.Context) error {
	return s.connections.sockets.Acquire(ctx, maxSockets)
}

// ObeyStops answers the callers that wait in the queue although the spending of their org is
// stopped. Call it after every change of guard.Options.Stops or Policy.Stopped.
func (s *Server) ObeyStops() {
	s.calls.stops.obey(func(org string) bool { return s.guard.Stopped(org) != nil })
}

// ServeHTTP serves one request and writes one access record.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := s.newExchange(w, r)
	defer x.record()
	defer x.release()
	h := x.Header()
	values := []string{x.id, "no-store", "nosniff"} // every answer is for one caller
	h["X-Request-Id"], h["Cache-Control"], h["X-Content-Type-Options"] = values[:1:1], values[1:2:2], values[2:]
	s.allowOrigin(h, r)
	defer x.dropTrailer()
	if err := s.dispatch(x, r); err != nil {
		x.fail(err)
	}
}

// spoken returns the endpoint whose API the caller speaks: Messages by its path or its headers, else "".
func spoken(r *http.Request) wire.Endpoint {
	if strings.HasPrefix(plainPath(r.URL.Path), wire.Messages.Path()) || len(r.Header["Anthropic-Version"]) > 0 {
		return wire.Messages
	}
	return ""
}

// lacking refuses a valid key that lacks the scope.
func lacking(scope string) error {
	return wire.Forbidden("missing_scope", "This API key lacks the scope %s, which this request requires", scope)
}

// dispatch determines the route and, except for open routes, the caller, and serves the request.
func (s *Server) dispatch(x *request, r *http.Request) error {
	defer s.repeats.decide(x)
	r, x.deployment = fromAzure(asGet(r))
	route, arg, err := s.match(r)
	x.arrival = guard.Arrival{Class: route.class(r.Method), Method: r.Method, Path: "/v1" + plainPath(r.URL.Path)}
	x.wire = spoken(r)
	if err := x.countAddress(r.Context()); err != nil {
		return err
	}
	if err := plainHTTP(r); err != nil {
		return err
	}
	if s.preflight(x, r) {
		return nil
	}
	if err != nil {
		return err
	}
	x.route, x.priced = route.name, route.priced
	if route.open {
		return route.serve(x, r, arg)
	}
	p, err := s.auth.authenticate(r, x.ip)
	if err != nil {
		return err
	}
	x.caller = guard.Caller{
		Org: p.Org, User: p.User, Key: p.Key, Born: p.Born, UserBorn: p.UserBorn, Lineage: p.Lineage,
		Models: p.Models, IP: x.from,
		KeyLabels: p.Labels, Run: p.Run,
	}
	x.scopes = p.Scopes
	if err := x.countCaller(r.Context()); err != nil {
		return err
	}
	if !x.may(route.scope) {
		return lacking(route.scope)
	}
	if err := s.runs.enter(x, r, &route); err != nil {
		return err
	}
	r = x.traced(r, r.Header)
	if units := route.units(r.Method); units > 0 {
		rates := cmp.Or(route.rates, s.reads)
		x.reading, err = rates.begin(p.Org.ID, p.Key, units, time.Now())
		if err != nil {
			return err
		}
		x.limits = append(x.limits, rates.state(p.Org.ID, p.Key, time.Now()))
		defer x.reading()
	}
	return route.serve(x, r, arg)
}
