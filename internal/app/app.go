// Package app turns a configuration into a running proxy, worker or both. It is the wiring
// that the commands and the end-to-end tests share; it makes no decisions about calls.
package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	_ "golang.org/x/crypto/x509roots/fallback" // TLS works on machines without certificates of public authorities
	"golang.org/x/sync/errgroup"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/journal"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/alert"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/cache"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/idempotency"
	"github.com/llmguard/llmguard/internal/listen"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/responses/conversation"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tracing"
	"github.com/llmguard/llmguard/internal/webhook"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// Role is what a process does.
type Role uint8

// The roles; `llmguard dev` has both.
const (
	Proxy Role = 1 << iota
	Worker
)

// Options configure an App.
type Options struct {
	Config *config.Config
	Redis  redisconn.DB // already checked; closed by the caller
	Roles  Role
	Log    *slog.Logger
	// Level is the level of Log, which a reload changes; nil leaves it fixed.
	Level *slog.LevelVar
	// Load reads the configuration again; nil disables reloading.
	Load func() (*config.Config, error)
	// Front builds what the process serves in addition to health and metrics; nil means
	// nothing.
	Front NewFront
}

// App is one process of llmguard, listening but not yet serving.
type App struct {
	cfg         *config.Config // as at the start; see Config
	log         *slog.Logger
	rdb         redisconn.DB
	registry    *prometheus.Registry
	budget      *budget.Store
	journal     *journal.Journal
	trimmer     *ledger.Trimmer
	exporter    *ledger.Exporter // nil without ledger.export_dir
	calibration *calibration.Calibration
	queue       *queue.Queue
	idempotency *idempotency.Store
	files       *files.Store // nil without files.store, as are batches, batchRunner and blobs
	batches     *batch.Store
	batchRunner *batch.Runner
	blobs       *blob.Store
	memory      *capacity.Memory
	turns       *conversation.Store
	answers     *cache.Store
	spool       *spool.Store
	guard       *guard.Guard
	front       *Front   // nil: health and metrics only
	callers     *Callers // nil without the Proxy role
	worker      *queue.Worker
	webhooks    *webhook.Sender
	tracer      *tracing.Tracer // nil if tracing is off
	alerts      *alert.Watcher
	brakes      *brakeKeeper
	calls       *door // nil without the Proxy role
	identity    *tenants.Store
	ids         *Identities
	changed     chan map[string]bool // orgs whose limits may have changed; used only by a worker
	admin       *door
	refused     *listen.Metrics
	failures    *auth.FailureLimiter // of wrong keys and tokens, on both listeners
	ready       atomic.Bool

	limitsChanged chan struct{} // has room for one notification

	current   atomic.Pointer[config.Config]
	load      func() (*config.Config, error)
	level     *slog.LevelVar
	told      *config.Metrics
	reloading sync.Mutex
	hooks     map[string]webhook.Org // the current ones; guarded by reloading
}

// New builds everything and binds the listeners, so that a port in use is reported here and
// not later.
func New(o Options) (_ *App, err error) {
	set, err := convert(o.Config)
	if err != nil {
		return nil, err
	}
	a := &App{
		cfg: o.Config, log: o.Log, rdb: o.Redis, registry: prometheus.NewRegistry(),
		load: o.Load, level: o.Level, hooks: set.webhooks.Orgs, changed: make(chan map[string]bool, 16),
		limitsChanged: make(chan struct{}, 1),
	}
	a.current.Store(o.Config)
	registerBuild(a.registry)
	a.told = config.NewMetrics(a.registry)
	a.told.Taken(o.Config, 0, time.Now())
	a.refused = listen.NewMetrics(a.registry)
	// These are what package collectors calls; it would link database/sql.
	a.registry.MustRegister(prometheus.NewGoCollector(), //nolint:staticcheck // see above
		prometheus.NewProcessCollector(prometheus.ProcessCollectorOpts{})) //nolint:staticcheck // see above
	a.tracer, err = openTracer(o.Config.Tracing, o.Log, a.registry)
	if err != nil {
		return nil, err
	}
	scripts := redisconn.Joined(o.Redis, budget.Join(o.Redis))
	money, flights := moneyScripts(o.Config.Store, scripts)
	a.journal, err = openJournal(o.Config.Store, o.Log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = a.journal.Close()
		}
	}()
	a.memory = capacity.New(o.Redis, scripts, memoryOptions(o.Config), a.registry)
	a.budget = budget.New(o.Redis, budget.Options{
		Memory: a.memory, Scripts: scripts, Money: money, Flights: flights, Lease: o.Config.Store.HoldLease,
		LedgerLength: LedgerLength(o.Config.Ledger), Journal: a.journal, Log: o.Log, Metrics: a.registry,
		EpochFile: epochFile(o.Config.Store), OpenAfterLoss: o.Config.Store.AfterDataLoss == "open",
		CountTimeout: o.Config.Store.Deadline, JobLife: jobLife(set.pools),
		SumLabels: SummedLabels(o.Config), Spread: SpreadOf(func() *guard.Policy {
			if a.guard == nil { // nothing is held before it exists
				return nil
			}
			return a.guard.Policy()
		}),
	})
	a.failures = auth.NewSharedFailureLimiter(a.budget.Requests, o.Config.Connections.IPv6Prefix)
	a.openIdentities(set)
	a.trimmer = ledger.NewTrimmer(a.budget.Ledger, a.ids.orgIDs, o.Config.Ledger.MemoryShare)
	a.exporter, err = exporter(o.Config, a.budget, ledgerOrgs(a))
	if err != nil {
		return nil, err
	}
	a.spool = newSpool(o.Config, o.Log, a.registry)
	a.calibration = calibration.New(o.Redis, calibration.Options{Log: o.Log, Metrics: a.registry})
	turns := conversations(o.Config, set)
	turns.Memory = a.memory
	a.turns = conversation.New(o.Redis, turns)
	a.alerts, a.brakes = a.newAlerts(), newBrakeKeeper(a)
	if err := a.openFiles(set.seal); err != nil {
		return nil, err
	}
	a.answers = cache.New(o.Redis, cache.Options{
		Seal: set.seal, Memory: a.memory, Blobs: a.blobs, InFiles: o.Config.Cache.Store == "files", Log: o.Log,
		Metrics: a.registry,
	})
	a.queue, err = queue.New(o.Redis, set.pools, a.queueOptions(set, scripts))
	if err != nil {
		return nil, err
	}
	a.guard = guard.New(guard.Options{
		Charged: a.alerts.Charged, BrakeRecords: a.brakes.records, BrakeFired: a.brakes.fire, RunReached: reportRuns(a),
		Budget: a.budget, Calibration: a.calibration, Quota: a.queue.Quota(), Policy: set.policy,
		StoreDeadline: o.Config.Store.Deadline, Stops: func() map[string]*tenants.Stop { return a.identity.Snapshot().Stops },
		LocalShare: int(o.Config.Store.LocalShare), Ownership: ownership.New(o.Redis, a.memory, o.Log),
		Conversations: a.turns, Cache: a.answers, Memory: a.memory, Spool: a.spool, Log: o.Log, Metrics: a.registry,
	})
	err = pricing.Register(a.registry, func() *pricing.Catalogue { return a.guard.Policy().Catalogue }, time.Now)
	if err != nil {
		return nil, err
	}
	warnOldPrices(set.policy.Catalogue, time.Now(), o.Log)
	a.idempotency = idempotency.New(o.Redis, idempotency.Options{Log: o.Log})
	hooks := set.webhooks
	hooks.Log, hooks.Metrics = o.Log, a.registry
	a.webhooks, err = webhook.New(o.Redis, hooks)
	if err != nil {
		return nil, err
	}
	a.openBatches(o.Roles)
	if o.Roles&Worker != 0 {
		a.worker = queue.NewWorker(a.queue, queue.NewRunner(a.queue, a.guard, ScanLimits(o.Config), o.Log, a.tracer),
			queue.WorkerOptions{
				Concurrency: set.workers, ShutdownTimeout: o.Config.Queue.Shutdown, Stopped: a.guard.AllStopped,
			})
	}
	if o.Front == nil && o.Roles&Proxy != 0 {
		return nil, errors.New("the Proxy role needs a front")
	}
	if o.Front != nil {
		a.front, err = o.Front(a.parts(o, set))
		if err != nil {
			return nil, err
		}
		a.callers = a.front.Callers
	}
	if a.callers != nil {
		bounds := a.connections("calls", o.Config.Connections.Total, o.Config.Connections.PerAddress)
		a.calls, err = a.open("", o.Config.Listen, bounds, o.Config.TLS)
		if err != nil {
			return nil, err
		}
	}
	a.ids.put = a.obey
	a.ids.stopped = a.obeyStops
	a.ids.Update()
	a.admin, err = a.open("admin", o.Config.Admin.Listen, a.connections("admin", adminConnections, 0), o.Config.Admin.TLS)
	if err != nil {
		if a.calls != nil {
			a.calls.Close()
		}
		return nil, err
	}
	return a, nil
}

// conversations returns the bounds for stored responses of providers that do not store
// them.
func conversations(c *config.Config, set *settings) conversation.Options {
	return conversation.Options{TTL: c.Conversations.TTL, MaxSize: int(c.Conversations.MaxSize), Seal: set.seal}
}

// ScanLimits returns the configured bounds of a request's JSON.
func ScanLimits(c *config.Config) wire.Limits {
	return wire.Limits{MaxDepth: c.Requests.MaxDepth, MaxTokens: c.Requests.MaxJSONTokens}
}

// URL returns the base URL for callers, without /v1; empty without the Proxy role.
func (a *App) URL() string {
	if a.calls == nil {
		return ""
	}
	return a.calls.url()
}

// AdminURL returns the base URL of health and metrics.
func (a *App) AdminURL() string { return a.admin.url() }

// Run serves until ctx ends, then shuts down in order: unready, a pause for load balancers,
// no new connections, a bounded time for calls in progress, the rest cancelled, everything
// settled.
func (a *App) Run(ctx context.Context) error {
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := a.registerScraped(background); err != nil {
		return err
	}
	// The tasks that renew leases outlive the calls that hold them.
	keepers, keeping := errgroup.WithContext(background)
	keepers.Go(func() error { return quiet(a.budget.Run(keeping)) })
	keepers.Go(func() error { return quiet(a.trimmer.Run(keeping)) })
	startExports(keeping, a, keepers.Go)
	keepers.Go(func() error { return quiet(a.calibration.Run(keeping)) })
	keepers.Go(func() error { return quiet(a.identity.Run(keeping)) })
	keepers.Go(func() error { return quiet(a.ids.run(keeping)) })
	keepers.Go(func() error { return a.identity.FollowReloads(keeping, a.process(), a.Reload) })
	keepers.Go(func() error { return a.noteShadow(keeping) })
	keepers.Go(func() error { return quiet(a.queue.Run(keeping)) })
	keepers.Go(func() error { return quiet(a.idempotency.Run(keeping)) })
	keepers.Go(func() error { return quiet(a.alerts.Run(keeping)) })
	keepers.Go(func() error { return a.brakes.run(keeping) })
	a.watchCertificates(keeping, keepers.Go)
	if a.files != nil {
		keepers.Go(func() error { return quiet(a.files.Run(keeping)) })
		keepers.Go(func() error { return quiet(a.answers.Run(keeping)) })
	}
	if a.worker != nil { // jobs may end until the last moment
		keepers.Go(func() error { return quiet(a.webhooks.Run(keeping)) })
		keepers.Go(func() error { return quiet(a.announce(keeping)) })
		keepers.Go(func() error { return a.unpark(keeping) })
		keepers.Go(func() error { return (&raiseClock{a.identity, a.webhooks, a.log}).run(keeping) })
	}

	servers, serving := errgroup.WithContext(ctx)
	servers.Go(func() error { return a.serveAdmin(serving, background) })
	if a.callers != nil {
		keepers.Go(func() error { return quiet(a.callers.Run(keeping)) })
		keepers.Go(func() error { return quiet(a.guard.Storage.Run(keeping)) })
		servers.Go(func() error { return a.serveCalls(serving) })
	}
	warm := make(chan struct{})
	if a.worker != nil {
		servers.Go(func() error { return after(serving, warm, a.worker.Run) })
	}
	if a.batchRunner != nil {
		servers.Go(func() error { return after(serving, warm, a.batchRunner.Run) })
	}
	servers.Go(func() error {
		select {
		case <-keeping.Done():
			return errors.New("a lease renewal task stopped")
		case <-serving.Done():
			return nil
		}
	})
	servers.Go(func() error {
		err := loadTables()
		if err == nil {
			close(warm)
		}
		a.ready.Store(err == nil && serving.Err() == nil)
		return err
	})
	defer context.AfterFunc(serving, func() { a.ready.Store(false) })()
	err := servers.Wait()
	a.ready.Store(false)

	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTime)
	defer cancel()
	a.settle(settle)
	stop()
	err = errors.Join(err, keepers.Wait(), a.journal.Close())
	if closing := a.tracer.Close(settle); closing != nil { // lost spans are not an error
		a.log.Warn("last spans not exported", "err", closing)
	}
	a.guard.Policy().Providers.Close()
	if a.blobs != nil {
		err = errors.Join(err, a.blobs.Close())
	}
	return err
}

// settleTime bounds the wait for settlements at shutdown.
const settleTime = 10 * time.Second

// quiet drops the error of a context that was cancelled on purpose.
func quiet(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (a *App) serveCalls(ctx context.Context) error {
	t := a.cfg.Timeouts
	// ErrCancelled means that the provider's answer is not awaited, whatever the org's
	// policy for disconnected callers: that could take longer than the shutdown may.
	calls, cancelCalls := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancelCalls(nil)
	srv := a.server(a.callers.Handler, t.ReadHeader)
	srv.BaseContext = func(net.Listener) context.Context { return calls }
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(a.calls) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	a.log.Info("shutting down, draining", "drain", t.Drain)
	time.Sleep(t.Drain)
	a.callers.Drain()
	// Cancelled calls still have to write their last bytes and settle.
	stop := time.AfterFunc(t.Shutdown, func() { cancelCalls(guard.ErrCancelled) })
	defer stop.Stop()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.Shutdown+unwindTime)
	defer cancel()
	if err := errors.Join(srv.Shutdown(end), a.callers.WaitSockets(end)); err != nil {
		a.log.Warn("calls still open at the end of shutdown", "err", err)
		return srv.Close()
	}
	return nil
}

// unwindTime is how long cancelled calls may take to end.
const unwindTime = 3 * time.Second
