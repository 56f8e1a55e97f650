package budget

import (
	"context"
	"errors"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/budget/outage"
	"github.com/llmguard/llmguard/internal/redisconn"
)

// Store keeps holds, limits and ledger in Redis. It is safe for concurrent use;
// so are several Stores on one Redis.
type Store struct {
	// Ledger is what orgs were charged, Refusals what limits refused.
	Ledger   *ledger.Ledger
	Refusals *Refusals
	// Expiry ends the holds of dead processes.
	Expiry *Expiry
	// Offline admits calls while Redis is unreachable, Deferred writes the endings that Redis did
	// not accept, and DataLoss detects lost data.
	Offline  *Offline
	Deferred *Deferred
	DataLoss *outage.DataLoss
	// Requests counts requests, whatever they cost.
	Requests *RequestCounter
	// Shared finds holds with a long life, which any process may end.
	Shared *SharedHolds
	// Runs keeps the budgets of runs of calls.
	Runs *Runs

	rdb     redisconn.DB
	opts    Options
	metrics *metrics
	runner  *runner
	clock   *clock
	places  *places
	binder  binder
	leases  *leases
	settler *settler
	recent  *outage.Recent[Settle]
	watcher *outage.Watcher[Settle, Receipt]
	values  *labelValues
	pages   *ledger.Pages
}

// New returns a Store on rdb, see package goredis. For ctx deadlines to take effect, its client must be
// built with ContextTimeoutEnabled. Retries by the client are harmless.
func New(rdb redisconn.DB, o Options) *Store {
	o = o.withDefaults()
	if o.Scripts == nil {
		o.Scripts = rdb
	}
	if o.Money == nil {
		o.Money = o.Scripts
	}
	if o.Flights == nil {
		o.Flights = func() Flight { return rdb.Pipeline() }
	}
	m := newMetrics(o.Metrics)
	r := &runner{money: o.Money, others: o.Scripts, scripts: loaded, clock: &clock{}, metrics: m}
	if o.Now != nil {
		r.clock.fake = func() int64 { return o.Now().UnixMicro() }
	}
	s := &Store{
		rdb: rdb, opts: o, metrics: m, runner: r, clock: r.clock, places: &places{rdb: rdb, spread: o.Spread},
		recent: outage.NewRecent[Settle](o.Tail), pages: ledger.NewPages(rdb, storeError),
	}
	s.binder = binder{o.Lease, s.places}
	s.leases = newLeases(rdb, r, o)
	s.Shared = &SharedHolds{rdb: rdb, leases: s.leases, binder: s.binder}
	s.values = newLabelValues(r)
	s.Runs = &Runs{rdb: rdb, runner: r, clock: r.clock, store: s}
	s.settler = &settler{
		rdb: rdb, runner: r, clock: r.clock, leases: s.leases, metrics: m, log: o.Log, flights: o.Flights,
		options: o.ending(), chunks: &chunkNames{}, labels: &ledger.SummedLabels{},
	}
	s.SumLabels(o.SumLabels)
	s.Expiry = &Expiry{
		rdb: rdb, runner: r, clock: r.clock, places: s.places, leases: s.leases, settler: s.settler, metrics: m, log: o.Log,
		charge: o.ExpiredCharge, horizon: o.Horizon,
	}
	s.prepareForOutages()
	s.Requests = newRequestCounter(s.binder, r, s.localShares(), o)
	s.Ledger, s.Refusals = s.newLedger(), newRefusals(rdb, r, s.pages, o)
	return s
}

// Deferred keeps the endings that Redis did not accept, and writes them when it is back.
type Deferred = outage.Deferred[Settle, Receipt]

// prepareForOutages sets up what a Redis that is away, or that lost something, needs.
func (s *Store) prepareForOutages() {
	o, m := &s.opts, outage.NewMetrics(s.opts.Metrics)
	s.DataLoss = outage.NewDataLoss(outage.LossOptions{
		Redis: s.rdb, Time: func(ctx context.Context) (time.Time, error) { return s.clock.ask(ctx, s.rdb) },
		Key: ledger.Key, Places: s.places.valid, Log: o.Log, Metrics: m, Accept: o.OpenAfterLoss, File: o.EpochFile,
	})
	endings := &endingStore{rdb: s.rdb, settler: s.settler, recent: s.recent}
	s.watcher = &outage.Watcher[Settle, Receipt]{
		Redis: s.rdb, Write: endings.again, Recent: s.recent, Loss: s.DataLoss, Clocks: outage.NewStoreClock(), Metrics: m,
		Log: o.Log, Horizon: o.Horizon,
	}
	s.Deferred = outage.NewDeferred(outage.DeferredOptions[Settle, Receipt]{
		Store: endings, Journal: o.Journal, Now: s.clock.now, Metrics: m, Log: o.Log,
	})
	outage.RegisterGauges(o.Metrics, s.Deferred.Kept, s.watcher.Clocks.Skew)
	s.Offline = &Offline{
		binder: s.binder, clock: s.clock, shares: s.localShares(), deferred: s.Deferred, metrics: s.metrics,
	}
	s.Offline.fill(s.clock.now())
}

func (s *Store) localShares() *localShares {
	return &localShares{outage.NewShares(), s.clock, s.DataLoss}
}

func (s *Store) newLedger() *ledger.Ledger {
	o, r := &s.opts, s.runner
	return ledger.New(ledger.Options{
		Redis: s.rdb, Pages: s.pages, Places: s.places.ever, Place: s.places.put, Now: s.clock.now, Fault: storeError,
		Labels: s.settler.labels, Length: o.LedgerLength, Life: o.LedgerLife, RollupLife: o.RollupLife,
		JobLife: o.JobLife, BatchLife: recordLife, Log: o.Log, Metrics: o.Metrics,
		Adjust: func(ctx context.Context, keysAndArgs ledger.KeysAndArgs) (string, []int64, error) {
			a, err := r.ask(ctx, r.scripts.adjust, func(now time.Time) ([]string, []any, error) {
				keys, args, err := keysAndArgs(now)
				return keys, append([]any{s.clock.given()}, args...), err
			})
			return a.verdict, a.head, err
		},
		Export: func(ctx context.Context, keys []string, args ...any) (string, error) {
			return r.run(ctx, r.scripts.export, keys, append([]any{s.clock.given()}, args...))
		},
	})
}

// Ping sends a command to the server that has the keys of a hash tag, such as an org's or a pool's
// id. Any answer counts as success, even an error reply.
func (s *Store) Ping(ctx context.Context, tag string) error {
	err := s.rdb.Exists(ctx, ledger.Key(tag, "leases")).Err()
	var answer redisconn.Error
	if errors.As(err, &answer) {
		return nil
	}
	return err
}

// Probe fails unless the store accepts writes for the hash tag of an org or a part of it (Tags). It
// prolongs a key, as every registration does.
func (s *Store) Probe(ctx context.Context, tag string) error {
	if err := s.rdb.PExpire(ctx, ledger.Key(tag, outage.MarkName), outage.MarkLife).Err(); err != nil {
		return storeError("probe", err)
	}
	return nil
}
