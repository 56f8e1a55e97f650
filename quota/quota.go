// Package quota is a provider's quota as all processes share it: requests and tokens per
// sliding minute, and open requests, in groups called pools. A call takes a grant before
// it is sent and gives it back when it has ended; what the provider's answers say of its
// limits is learned, and a refusal blocks the pool.
//
// Waiting jobs get theirs from package queue, by scripts that keep the same books.
package quota

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/lua"
)

var (
	takeScript    = lua.Load("take")
	giveScript    = lua.Load("give")
	blockScript   = lua.Load("block")
	renewScript   = lua.Load("grant_lease")
	observeScript = lua.Load("observe")
)

// Pool is one provider's quota. Redis keeps what was granted of it by its id.
type Pool struct {
	ID string
	// RPM, TPM and Concurrency are requests and tokens per sliding minute, and open
	// requests. 0 is unlimited.
	RPM, TPM    int64
	Concurrency int
	// Burst is the part of a minute's quota that may go out at once after a pause, per
	// mille. It never lifts the cap per sliding minute.
	Burst int
	// FixedQuota ignores the limits that the provider names in its answers; otherwise the
	// smaller of those and the configured ones count.
	FixedQuota bool
	// ActualTokens says that the provider counts the tokens used, at the end of a call,
	// and not those requested at its start.
	ActualTokens bool
}

// Options are the optional settings of a Quota.
type Options struct {
	Log     *slog.Logger          // nil: slog.Default()
	Metrics prometheus.Registerer // nil leaves the metrics unregistered
	// Scripts runs the scripts; nil: the client given to New.
	Scripts redis.Scripter
	// LocalShare is the part of a pool's quota that this process lets through by itself
	// while Redis is away, in percent.
	LocalShare int
	// Lease is how long a grant outlives a silent process.
	Lease time.Duration
	// Clock is what time the scripts go by, in Unix microseconds, for tests; nil, or "":
	// Redis's own.
	Clock func() string
}

// Quota grants quota of the pools of a deployment. It is safe for concurrent use.
type Quota struct {
	rdb     redis.UniversalClient
	opts    Options
	log     *slog.Logger
	metrics *metrics
	pools   atomic.Pointer[map[string]*pool]
	line    *redisconn.Coalescer // where scripts can be asked for with others; nil: nowhere
	lease   any                  // Options.Lease in microseconds, an argument of scripts

	reports   reports
	forgets   atomic.Bool   // Run takes ended grants off the books
	forgetNow chan struct{} // asks for that to happen soon
	returns   sync.WaitGroup

	mu     sync.Mutex
	grants map[*Grant]struct{} // open ones
	shares map[string]*share   // by pool id
	used   map[*pool][]any     // ids of ended grants not yet taken off the books
}

// pool is a Pool with what scripts are given of it.
type pool struct {
	Pool
	limits []any    // ARGV of quota_limits in quota.lua
	takes  []string // KEYS of take.lua
}

// New returns a Quota without pools; Configure gives it some. Call Run to keep the
// leases of grants.
func New(rdb redis.UniversalClient, o Options) *Quota {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Scripts == nil {
		o.Scripts = rdb
	}
	q := &Quota{
		rdb: rdb, opts: o, log: o.Log, metrics: newMetrics(o.Metrics), lease: o.Lease.Microseconds(),
		forgetNow: make(chan struct{}, 1),
		grants:    make(map[*Grant]struct{}),
		shares:    make(map[string]*share),
		used:      make(map[*pool][]any),
	}
	q.line, _ = o.Scripts.(*redisconn.Coalescer)
	q.Configure(nil)
	return q
}

// Configure replaces the pools. Grants under way go on.
func (q *Quota) Configure(pools []Pool) {
	next := make(map[string]*pool, len(pools))
	for _, p := range pools {
		next[p.ID] = &pool{Pool: p, limits: p.Limits(), takes: []string{
			Key(p.ID, "quota"), Key(p.ID, "slots"), Key(p.ID, "wait:interactive"), Key(p.ID, "claims"), Key(p.ID, "parked"),
		}}
	}
	q.pools.Store(&next)
}

// Key is the name of a key of a pool. Of those that queue/keys.go lists this package
// writes "quota" and "slots"; the others are the waiting jobs'.
func Key(pool, name string) string { return "lg:{" + pool + "}:" + name }

// Limits is what quota_limits in quota.lua reads: requests, tokens, open requests and
// the burst per mille.
func (p Pool) Limits() []any { return []any{p.RPM, p.TPM, p.Concurrency, p.Burst} }

// Run renews the leases of this process's grants until ctx is done; it then returns nil.
// It survives Redis being away.
func (q *Quota) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { q.keepLeases(ctx) })
	wg.Go(func() { q.keepForgetting(ctx) })
	wg.Wait()
	q.awaitReturns()
	return nil
}

// awaitReturns waits until what was asked for in vain is given back, though not for long: a
// store that does not answer has the leases.
func (q *Quota) awaitReturns() {
	done := make(chan struct{})
	go func() { q.returns.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(returnTimeout):
	}
}

// returnTimeout is longer than it takes a store that answers, or one that went away to be
// given up.
const returnTimeout = 5 * time.Second

func (q *Quota) pool(id string) (*pool, error) {
	p := (*q.pools.Load())[id]
	if p == nil {
		return nil, fmt.Errorf("quota: unknown pool %q", id)
	}
	return p, nil
}

func (q *Quota) clock() string {
	if q.opts.Clock == nil {
		return ""
	}
	return q.opts.Clock()
}

// eval runs a script; the test clock, usually empty, is its first argument.
func (q *Quota) eval(ctx context.Context, name string, script *redis.Script, keys []string,
	args ...any,
) (string, error) {
	reply, err := script.Run(ctx, q.opts.Scripts, keys, append([]any{q.clock()}, args...)...).Text()
	if err != nil {
		return "", fmt.Errorf("quota: %s: %w", name, err)
	}
	return reply, nil
}

// words splits a reply and checks that it has at least n words.
func words(name, reply string, n int) ([]string, error) {
	w := strings.Fields(reply)
	if len(w) < n {
		return nil, fmt.Errorf("quota: %s replied %q", name, reply)
	}
	return w, nil
}

// micros reads a decimal number of microseconds.
func micros(s string) time.Duration {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.Duration(n) * time.Microsecond
}
