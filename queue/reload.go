package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/storage/seal"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/quota"
)

// workerSetup is what Configure replaces: the pools, and the options that may change while
// the queue runs. It is immutable.
type workerSetup struct {
	configured   []Pool
	own          []string         // ids of orgs' own pools
	pools, codes map[string]*pool // by id, and by the code in job ids
	opts         Options
	weights      string        // names opts.Weights in Redis; "" if there are none
	replaced     chan struct{} // closed when another setup takes effect
}

// settings holds the current pools and options, which Configure replaces.
type settings struct {
	rdb   redisconn.DB
	quota *quota.Quota
	setup atomic.Pointer[workerSetup]

	configuring sync.Mutex // serializes configureQuota
}

// newSetup derives a setup. Unchanged pools keep their scripts in flight. Pools that were
// removed stay, so that the jobs waiting in them can end.
func newSetup(pools []Pool, own []string, opts Options, before *workerSetup) (*workerSetup, error) {
	s := &workerSetup{
		configured: pools, own: own, pools: make(map[string]*pool), codes: make(map[string]*pool), opts: opts,
		replaced: make(chan struct{}),
	}
	for _, cfg := range s.all() {
		p, err := newPool(cfg, opts)
		if err != nil {
			return nil, err
		}
		if other := s.codes[p.code]; other != nil {
			return nil, fmt.Errorf("queue: pools %q and %q have the same code; rename one", other.ID, p.ID)
		}
		if before != nil {
			if old := before.pools[p.ID]; old != nil && old.same(p) {
				p = old
			}
		}
		s.pools[p.ID], s.codes[p.code] = p, p
	}
	if before != nil {
		for id, old := range before.pools {
			switch other := s.codes[old.code]; {
			case other == nil:
				s.pools[id], s.codes[old.code] = old, old
			case other.ID != id:
				return nil, fmt.Errorf("queue: pool %q has the same code as %q, which was removed; rename it, or restart", other.ID,
					id)
			}
		}
	}
	return s, s.weigh(opts.Weights)
}

// all returns the configured pools and the own pools derived from them.
func (s *workerSetup) all() []Pool {
	all := slices.Clone(s.configured)
	for _, id := range s.own {
		from, org := providers.SplitPool(id)
		at := slices.IndexFunc(s.configured, func(p Pool) bool { return p.ID == from })
		if at >= 0 {
			all = append(all, s.configured[at].own(org))
		}
	}
	return all
}

// weigh sets the weights. It must be called before the setup is shared.
func (s *workerSetup) weigh(weights map[string]int) error {
	s.opts.Weights, s.weights = weights, ""
	if len(weights) == 0 {
		return nil
	}
	text, err := json.Marshal(weights)
	if err != nil {
		return fmt.Errorf("queue: weights: %w", err)
	}
	s.weights = letters(string(text))[:16]
	return nil
}

// writeWeights writes the weights to Redis, where acquire reads those it needs. The key
// includes a hash of the weights, so that processes with another configuration use their
// own. Weights in use do not expire.
func (s *settings) writeWeights(ctx context.Context, key string, weights map[string]int) error {
	pipe := s.rdb.Pipeline()
	for part := range slices.Chunk(slices.Sorted(maps.Keys(weights)), 1000) {
		pairs := make([]any, 0, 2*len(part))
		for _, who := range part {
			pairs = append(pairs, who, weights[who])
		}
		pipe.HSet(ctx, key, pairs...)
	}
	pipe.HSet(ctx, key, "~", 1)
	pipe.PExpire(ctx, key, weightsLife)
	if err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("queue: write weights: %w", err)
	}
	return nil
}

// weightsLife is how long unused weights are kept. acquire.lua has the same constant.
const weightsLife = time.Hour

// same reports whether two pools with the same id send the same arguments to Redis.
func (p *pool) same(other *pool) bool {
	return p.Pool == other.Pool && reflect.DeepEqual(p.limits, other.limits) &&
		reflect.DeepEqual(p.puts.common, other.puts.common) &&
		reflect.DeepEqual(p.starts.common, other.starts.common) && reflect.DeepEqual(p.finishes.common, other.finishes.common)
}

// Configure replaces the pools and, of the options, MaxAttempts, RetryFor, OrgShare,
// FlowShare, Shares, DeadLetters, DeadTTL, Weights, Seal and BlobAbove; the others stay as
// given to New. Work in progress continues with the setup it started with. A pool that is
// left out stays until the process ends, so that its jobs can end, and orgs' own pools
// follow the configured ones. After an error nothing has changed.
func (q *Queue) Configure(pools []Pool, opts Options) error {
	if err := opts.validate(); err != nil {
		return err
	}
	opts = opts.withDefaults()
	opts.Burst = q.opts.Burst
	opts.Lease = q.opts.Lease
	opts.Grace = q.opts.Grace // Burst, Lease and Grace are built into the pools
	return q.settings.change(func(before *workerSetup) (*workerSetup, error) {
		return newSetup(pools, before.own, opts, before)
	})
}

// change replaces the setup with one derived from the current one.
func (s *settings) change(from func(before *workerSetup) (*workerSetup, error)) error {
	for {
		before := s.setup.Load()
		next, err := from(before)
		if err != nil || next == before {
			return err
		}
		if s.setup.CompareAndSwap(before, next) {
			s.configureQuota()
			close(before.replaced)
			return nil
		}
	}
}

// configureQuota passes the current pools to the quota. With concurrent changes the last
// call sees the result of both.
func (s *settings) configureQuota() {
	s.configuring.Lock()
	defer s.configuring.Unlock()
	all := s.pools()
	pools := make([]quota.Pool, 0, len(all))
	for _, p := range all {
		pools = append(pools, p.quota)
	}
	s.quota.Configure(pools)
}

// SetWeights replaces only Options.Weights. Turns already given are not revoked.
func (q *Queue) SetWeights(weights map[string]int) error {
	if err := (Options{Weights: weights}).validate(); err != nil {
		return err
	}
	return q.settings.change(func(before *workerSetup) (*workerSetup, error) {
		next := *before
		next.replaced = make(chan struct{})
		return &next, next.weigh(weights)
	})
}

func (s *settings) now() *workerSetup { return s.setup.Load() }

func (s *settings) pools() map[string]*pool { return s.now().pools }

// Pools lists the current pools by id.
func (q *Queue) Pools() []Pool {
	all := q.settings.pools()
	out := make([]Pool, 0, len(all))
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out = append(out, all[id].Pool)
	}
	return out
}

func (s *settings) codes() map[string]*pool { return s.now().codes }

func (s *settings) seal() *seal.Ring { return s.now().opts.Seal }
