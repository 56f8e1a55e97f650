package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/storage/blob"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/internal/storage/seal"
	"github.com/llmguard/llmguard/internal/tasks"
	"github.com/llmguard/llmguard/lua"
	"github.com/llmguard/llmguard/quota"
)

var (
	leaseScript    = lua.Load("lease")
	presentScript  = lua.Load("present")
	overdueScript  = lua.Load("overdue")
	depthScript    = lua.Load("depth")
	oldestScript   = lua.Load("oldest")
	placeScript    = lua.Load("place")
	snapshotScript = lua.Load("snapshot")
	stayScript     = lua.Load("stay")
	putScript      = lua.Load("put")
	cancelScript   = lua.Load("cancel")
	acquireScript  = lua.Load("acquire")
	startScript    = lua.Load("start")
	releaseScript  = lua.Load("release")
	finishScript   = lua.Load("finish")
	endedScript    = lua.Load("ended")
	balanceScript  = lua.Load("balance")
)

// Shares are percentages of a pool's quota.
type Shares struct{ Interactive, Async, Batch int }

// Options are the optional settings of a Queue. The zero value is usable.
type Options struct {
	// Log defaults to slog.Default().
	Log *slog.Logger
	// Scripts runs the scripts; nil means the client given to New. A Scripter that
	// batches the scripts of concurrent callers saves system calls under load.
	Scripts redisconn.Scripter
	// Metrics receives the metrics; nil leaves them unregistered.
	Metrics prometheus.Registerer
	// MaxAttempts is how often a job is started before it fails with code
	// attempts_exhausted. 0 is 3.
	MaxAttempts int
	// RetryFor is how long after its put a job without a connected caller is retried if
	// the provider fails it with a 5xx or is unreachable. Its pool's MaxAge bounds it
	// too. 0 disables retries.
	RetryFor time.Duration
	// OrgShare and FlowShare are the parts of a pool's MaxJobs and MaxBytes, in
	// percent, that one org and one user may hold. 0 is 25 for OrgShare, and OrgShare
	// for FlowShare.
	OrgShare, FlowShare int
	// Memory admits bodies and answers into Redis; nil means one with default bounds.
	Memory *capacity.Memory
	// Files counts the contents of Blobs against the quota of their org; nil disables
	// that.
	Files *files.Store
	// Shares are the parts of a pool's quota, in percent, that waiting jobs of each
	// class are guaranteed against earlier classes and live calls. The zero value is 20
	// interactive, 10 async, 5 batch.
	Shares Shares
	// Refused counts a job that expired as refused; nil: nothing does. It must not block.
	Refused func(guard.RefusedCall)
	// DeadLetters is how many failed jobs a pool keeps for replay, DeadTTL for how
	// long. 0 is 1,000 and 7 days.
	DeadLetters int
	DeadTTL     time.Duration
	// Burst is the part of a minute's quota, per mille, that may be used immediately
	// after a pause. 0 is 100. It never lifts the cap per sliding minute.
	Burst int
	// Weights are the shares of orgs ("org") and of users within their org ("org
	// user"), in percent of the others'. Unlisted ones have weight 100.
	Weights map[string]int
	// Seal encrypts bodies and answers in Redis; nil stores them in the clear. All
	// processes need the same keys.
	Seal *seal.Ring
	// Blobs stores bodies and answers larger than BlobAbove bytes outside Redis. If it
	// is nil or BlobAbove is 0, Redis holds everything. All processes need the same
	// store, which seals its contents under the keys of Seal.
	Blobs     *blob.Store
	BlobAbove int64
	// Spool is the memory for bodies of running jobs and answers being read; nil means
	// a default one.
	Spool *spool.Store
	// MaxOutput bounds the recorded output of one attempt, in bytes. 0 is 32 MiB.
	MaxOutput int64
	// LocalShare is the part of a pool's quota, in percent, that this process may grant
	// on its own while Redis is unavailable. 0 is 10.
	LocalShare int
	// Lease is how long a grant or claim outlives a silent process. It is renewed three
	// times per Lease. 0 is 30 s.
	Lease time.Duration
	// Grace is how long a waiting job outlives a silent caller. Presence is renewed
	// three times per Grace. 0 is 15 s.
	Grace time.Duration
}

func (o Options) withDefaults() Options {
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Spool == nil {
		o.Spool = spool.New(spool.Options{Log: o.Log})
	}
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 3)
	o.OrgShare = cmp.Or(o.OrgShare, 25)
	o.LocalShare = cmp.Or(o.LocalShare, 10)
	o.FlowShare = cmp.Or(o.FlowShare, o.OrgShare)
	if o.Shares == (Shares{}) {
		o.Shares = Shares{Interactive: 20, Async: 10, Batch: 5}
	}
	o.DeadLetters = cmp.Or(o.DeadLetters, 1000)
	o.DeadTTL = cmp.Or(o.DeadTTL, 7*24*time.Hour)
	o.Burst = cmp.Or(o.Burst, 100)
	o.MaxOutput = cmp.Or(o.MaxOutput, 32<<20)
	o.Lease = cmp.Or(o.Lease, 30*time.Second)
	o.Grace = cmp.Or(o.Grace, 15*time.Second)
	return o
}

func (o Options) validate() error {
	s := o.Shares
	switch {
	case o.MaxAttempts < 0 || o.OrgShare < 0 || o.OrgShare > 100 || o.LocalShare < 0 || o.LocalShare > 100 ||
		o.Burst < 0 || o.Burst > 1000 || o.MaxOutput < 0:
		return errors.New("queue: MaxAttempts, OrgShare, Burst or MaxOutput is out of range")
	case o.RetryFor < 0:
		return errors.New("queue: RetryFor must not be negative")
	case o.Lease < 0 || o.Grace < 0 || o.DeadTTL < 0 || o.DeadLetters < 0:
		return errors.New("queue: Lease, Grace, DeadTTL and DeadLetters must not be negative")
	case o.FlowShare < 0 || o.FlowShare > 100:
		return errors.New("queue: FlowShare is no percentage")
	case s.Interactive < 0 || s.Async < 0 || s.Batch < 0 || s.Interactive+s.Async+s.Batch > 100:
		return errors.New("queue: Shares are more than the whole quota, or negative")
	}
	for who, percent := range o.Weights {
		if percent < 1 {
			return fmt.Errorf("queue: weight of %q must be at least 1 percent", who)
		}
	}
	return nil
}

// Queue holds the pools of a deployment. All methods are safe for concurrent use. Errors of
// Redis are returned wrapped.
type Queue struct {
	rdb     redisconn.DB
	quota   *quota.Quota
	opts    Options // the fixed ones; see Configure
	log     *slog.Logger
	metrics *metrics
	hub     *redisconn.Hub
	slow    slowBodies
	probe   time.Duration // between checks for work without a notification
	memory  *capacity.Memory

	settings  *settings
	scripts   *scripts
	contents  *contents
	admission *admission
	reader    *reader
	lister    *lister
	endings   *endings
	dead      *deadLetters
	presence  *presence
	wakeups   *wakeups
	tasks     *tasks.Jobs
	sweeper   *sweeper
	own       *ownedPools
	places    *Places
	records   *Records
	forecasts *forecasts
}

// New returns a Queue over rdb, see package goredis. It rejects pools whose ids are not plain or whose codes in
// job ids collide. Call Run to renew leases and presence.
func New(rdb redisconn.DB, pools []Pool, opts Options) (*Queue, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	if opts.Scripts == nil {
		opts.Scripts = rdb
	}
	if opts.Memory == nil {
		opts.Memory = capacity.New(rdb, opts.Scripts, capacity.Options{}, nil)
	}
	first, err := newSetup(pools, nil, opts, nil)
	if err != nil {
		return nil, err
	}
	q := &Queue{
		rdb:    rdb,
		memory: opts.Memory,
		opts:   opts,
		log:    opts.Log,
		hub:    redisconn.NewHub(rdb, opts.Log),
		probe:  probeEvery,
	}
	q.scripts = &scripts{opts: &q.opts}
	q.quota = quota.New(rdb, quota.Options{
		Log: opts.Log, Metrics: opts.Metrics, Scripts: opts.Scripts,
		LocalShare: opts.LocalShare, Lease: opts.Lease, Clock: func() string { return q.scripts.clock },
	})
	q.settings = &settings{rdb: rdb, quota: q.quota}
	q.settings.setup.Store(first)
	q.settings.configureQuota()
	q.metrics = newMetrics(opts.Metrics, q)
	q.assemble()
	return q, nil
}

// assemble creates the parts of q, each with the other parts it needs.
func (q *Queue) assemble() {
	q.own = &ownedPools{rdb: q.rdb, log: q.log, settings: q.settings}
	q.reader = &reader{
		rdb:   q.rdb,
		reads: newCoalescedCommands(q.rdb, bodyBatch), settings: q.settings, scripts: q.scripts, own: q.own,
	}
	q.lister = &lister{rdb: q.rdb, settings: q.settings, own: q.own}
	q.admission = &admission{opts: &q.opts, metrics: q.metrics, memory: q.memory, settings: q.settings}
	q.contents = &contents{
		rdb: q.rdb, opts: &q.opts, log: q.log, metrics: q.metrics, memory: q.memory,
		bodies: newCoalescedCommands(q.rdb, bodyBatch), settings: q.settings, admission: q.admission,
	}
	q.endings = &endings{
		rdb: q.rdb, opts: &q.opts, log: q.log, metrics: q.metrics, memory: q.memory,
		ends: make(chan struct{}, 1), settings: q.settings, scripts: q.scripts, contents: q.contents,
		reader: q.reader,
	}
	q.tasks = tasks.New(q.rdb, q.opts.Scripts, q.log)
	q.dead = &deadLetters{rdb: q.rdb, log: q.log, settings: q.settings, tasks: q.tasks}
	q.presence = &presence{
		opts: &q.opts, log: q.log, settings: q.settings, scripts: q.scripts, waiting: make(map[*Watch]struct{}),
	}
	q.wakeups = &wakeups{rdb: q.rdb, log: q.log, settings: q.settings}
	q.sweeper = &sweeper{rdb: q.rdb, opts: &q.opts, log: q.log, settings: q.settings}
	q.places = &Places{wakeups: q.wakeups, reader: q.reader, endings: q.endings, scripts: q.scripts, own: q.own}
	q.records = &Records{memory: q.memory}
	q.forecasts = newForecasts()
}

// Places returns the reserved places of callers whose connection ended.
func (q *Queue) Places() *Places { return q.places }

// Records returns the admission of idempotency key records.
func (q *Queue) Records() *Records { return q.records }

// Run renews the leases of this process's grants and the presence of its waiting callers,
// listens for wake-ups, and ends overdue jobs, until ctx is done; it then returns nil. It
// tolerates an unavailable Redis.
func (q *Queue) Run(ctx context.Context) error {
	q.metrics.scrapeIn(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { q.hub.Run(ctx) })
	wg.Go(func() { q.own.keepRecalling(ctx) })
	wg.Go(func() { every(ctx, lookEvery, q.wakeups.look) })
	wg.Go(func() { _ = q.quota.Run(ctx) }) // its error is always nil
	wg.Go(func() { q.presence.keepPresence(ctx) })
	wg.Go(func() { every(ctx, runMeansEvery, q.writeMeans) })
	wg.Go(func() { every(ctx, q.opts.Grace/3, q.endings.endOverdue) })
	if q.opts.Blobs != nil {
		wg.Go(func() { every(ctx, sweepEvery, q.sweeper.sweepBlobs) })
	}
	wg.Wait()
	return nil
}

// every calls fn once per interval until ctx is done.
func every(ctx context.Context, interval time.Duration, fn func(context.Context)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			fn(ctx)
		}
	}
}

// Quota returns the provider quota of the queue's pools. Run maintains it.
func (q *Queue) Quota() *quota.Quota { return q.quota }

func (s *settings) pool(id string) (*pool, error) {
	p := s.pools()[id]
	if p == nil {
		return nil, fmt.Errorf("queue: unknown pool %q", id)
	}
	return p, nil
}

// scripts runs the scripts that are not coalesced.
type scripts struct {
	opts  *Options
	clock string // test clock in microseconds; empty: Redis TIME
}

// eval runs a script. The test clock, usually empty, is its first argument.
func (s *scripts) eval(ctx context.Context, name string, script *redisconn.Script, keys []string,
	args ...any,
) (string, error) {
	reply, err := script.Run(ctx, s.opts.Scripts, keys, append([]any{s.clock}, args...)...).Text()
	if err != nil {
		return "", fmt.Errorf("queue: %s: %w", name, err)
	}
	return reply, nil
}

// words splits a reply and checks that it has at least n words.
func words(name, reply string, n int) ([]string, error) {
	w := strings.Fields(reply)
	if len(w) < n {
		return nil, fmt.Errorf("queue: %s replied %q", name, reply)
	}
	return w, nil
}

// micros parses a decimal number of microseconds.
func micros(s string) time.Duration {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.Duration(n) * time.Microsecond
}

// instant parses a Unix time in microseconds; "" and 0 are the zero time.
func instant(s string) time.Time {
	n, _ := strconv.ParseInt(s, 10, 64)
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n)
}
