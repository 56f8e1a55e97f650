// Package quota manages a provider's quota shared by all processes: requests and tokens per
// sliding minute, and open requests, in groups called pools. A call takes a grant before it
// is sent and gives it back when it has ended. Limits are learned from the provider's
// answers, and a refusal blocks the pool.
//
// Waiting jobs get their quota from package queue, through scripts that keep the same
// accounts.
package quota

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/lua"
)

var (
	takeScript    = lua.Load("take")
	giveScript    = lua.Load("give")
	blockScript   = lua.Load("block")
	renewScript   = lua.Load("grant_lease")
	observeScript = lua.Load("observe")
	resumeScript  = lua.Load("resume")
)

// Pool is one provider's quota. Redis stores what was granted of it under its id.
type Pool struct {
	ID string
	// RPM, TPM and Concurrency are requests and tokens per sliding minute, and open
	// requests. 0 is unlimited.
	RPM, TPM    int64
	Concurrency int
	// Split means that the provider counts input and output apart: TPM is that of the input, without what
	// is read from a prompt cache, and OTPM that of the output, as it is produced.
	Split bool
	OTPM  int64
	// Burst is the part of a minute's quota, per mille, that may be used immediately
	// after a pause. It never lifts the cap per sliding minute.
	Burst int
	// MaxPause bounds a pause that the provider asks for. After a longer one, one call is tried before
	// the others. 0 is DefaultMaxPause.
	MaxPause time.Duration
	// FixedQuota ignores the limits that the provider reports in its answers; otherwise
	// the smaller of those and the configured ones applies.
	FixedQuota bool
	// ActualTokens means the provider counts the tokens used, at the end of a call, and
	// not those requested at its start.
	ActualTokens bool
}

// Options are the optional settings of a Quota.
type Options struct {
	Log     *slog.Logger          // nil: slog.Default()
	Metrics prometheus.Registerer // nil leaves the metrics unregistered
	// Scripts runs the scripts; nil means the client given to New.
	Scripts redisconn.Scripter
	// LocalShare is the part of a pool's quota, in percent, that this process may grant
	// on its own while Redis is unavailable.
	LocalShare int
	// Lease is how long a grant outlives a silent process.
	Lease time.Duration
	// Clock is the time used by the scripts, in Unix microseconds, for tests; nil or ""
	// means Redis's own.
	Clock func() string
}

// Quota grants quota of the pools of a deployment. It is safe for concurrent use.
type Quota struct {
	rdb     redisconn.DB
	opts    Options
	log     *slog.Logger
	metrics *metrics
	pools   atomic.Pointer[map[string]*pool]
	line    *redisconn.Coalescer // sends scripts in shared pipelines; nil: not available
	lease   any                  // Options.Lease in microseconds, an argument of scripts

	reports   reports
	trials    sync.Map      // ids of the pools whose trial this process has
	forgets   atomic.Bool   // Run removes ended grants from Redis
	forgetNow chan struct{} // requests that soon
	returns   sync.WaitGroup

	mu     sync.Mutex
	grants map[*Grant]struct{} // open ones
	shares map[string]*share   // by pool id
	used   map[*pool][]any     // ids of ended grants not yet removed from Redis
}

// pool is a Pool with its script arguments.
type pool struct {
	Pool
	limits []any    // ARGV of quota_limits in quota.lua
	takes  []string // KEYS of take.lua
}

// New returns a Quota on rdb, see package goredis, without pools; Configure sets them. Call Run to renew the leases of
// grants.
func New(rdb redisconn.DB, o Options) *Quota {
	o.Log = cmp.Or(o.Log, slog.Default())
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

// Configure replaces the pools. Open grants stay valid.
func (q *Quota) Configure(pools []Pool) {
	next := make(map[string]*pool, len(pools))
	for _, p := range pools {
		p.MaxPause = cmp.Or(p.MaxPause, DefaultMaxPause)
		next[p.ID] = &pool{Pool: p, limits: p.Limits(), takes: []string{
			Key(p.ID, "quota"), Key(p.ID, "slots"), Key(p.ID, "wait:interactive"), Key(p.ID, "claims"), Key(p.ID, "parked"),
			Key(p.ID, "size"),
		}}
	}
	q.pools.Store(&next)
}

// DefaultMaxPause is Pool.MaxPause if it is not set.
const DefaultMaxPause = 5 * time.Minute

// Key returns the name of a key of a pool. Of the keys listed in queue/keys.go this package
// writes "quota" and "slots"; the others belong to the waiting jobs.
func Key(pool, name string) string { return "lg:{" + pool + "}:" + name }

// Limits returns the arguments of quota_limits in quota.lua.
func (p Pool) Limits() []any {
	output := int64(-1)
	if p.Split {
		output = p.OTPM
	}
	return []any{p.RPM, p.TPM, p.Concurrency, p.Burst, output}
}

// Run renews the leases of this process's grants until ctx is done; it then returns nil. It
// tolerates an unavailable Redis.
func (q *Quota) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { q.keepLeases(ctx) })
	wg.Go(func() { q.keepForgetting(ctx) })
	wg.Wait()
	q.awaitReturns()
	return nil
}

// awaitReturns waits, with a timeout, until unused quota has been returned. If the store
// does not answer, the leases expire.
func (q *Quota) awaitReturns() {
	done := make(chan struct{})
	go func() { q.returns.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(returnTimeout):
	}
}

// returnTimeout exceeds the time an available store needs, and the time after which an
// unavailable one is given up.
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

// eval runs a script. The test clock, usually empty, is its first argument.
func (q *Quota) eval(ctx context.Context, name string, script *redisconn.Script, keys []string,
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

// micros parses a decimal number of microseconds.
func micros(s string) time.Duration {
	n, _ := strconv.ParseInt(s, 10, 64)
	return time.Duration(n) * time.Microsecond
}
