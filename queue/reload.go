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

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/storage/seal"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/quota"
)

// workerSetup is what Configure replaces: the pools, and the options that may change
// while the queue runs. It is immutable.
type workerSetup struct {
	configured   []Pool
	own          []string         // ids of pools that are orgs' own
	pools, codes map[string]*pool // by id, and by the code in job ids
	opts         Options
	weights      string        // names opts.Weights in Redis; "" when there are none
	replaced     chan struct{} // closed when another setup is in force
}

// settings are the pools and options in force, which Configure replaces.
type settings struct {
	rdb   redis.UniversalClient
	quota *quota.Quota
	setup atomic.Pointer[workerSetup]

	configuring sync.Mutex // the quota
}

// newSetup derives a setup. Pools that are as they were before keep the scripts
// they have under way; pools that are gone stay, so that what waits in them ends.
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

// all lists the configured pools and those that derive from them.
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

// weigh sets the weights, before anybody else has the setup.
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

// writeWeights writes the weights for acquire, which reads those it needs: by name, so
// that processes of another configuration have theirs. They last while they are used.
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
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("queue: write weights: %w", err)
	}
	return nil
}

// weightsLife is how long weights last that are not used; acquire.lua has it too.
const weightsLife = time.Hour

// same reports whether two pools of one id send the same to Redis.
func (p *pool) same(other *pool) bool {
	return p.Pool == other.Pool && reflect.DeepEqual(p.limits, other.limits) &&
		reflect.DeepEqual(p.puts.common, other.puts.common) &&
		reflect.DeepEqual(p.starts.common, other.starts.common) && reflect.DeepEqual(p.finishes.common, other.finishes.common)
}

// Configure replaces the pools and, of the options, MaxAttempts, RetryFor, OrgShare,
// FlowShare, Shares, DeadLetters, DeadTTL, Weights, Seal and BlobAbove; the
// others stay as New got them. What is under way goes on with what it began
// with. A pool that is left out stays until the process ends, so that its jobs
// do, and pools that are orgs' own follow theirs. After an error nothing has changed.
func (q *Queue) Configure(pools []Pool, opts Options) error {
	if err := opts.validate(); err != nil {
		return err
	}
	opts = opts.withDefaults()
	opts.Burst = q.opts.Burst
	opts.Lease = q.opts.Lease
	opts.Grace = q.opts.Grace // pools carry them
	return q.settings.change(func(before *workerSetup) (*workerSetup, error) {
		return newSetup(pools, before.own, opts, before)
	})
}

// change puts another setup in force.
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

// configureQuota gives the quota the pools in force. Of two at once the last one knows
// what both have done.
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

// SetWeights replaces Options.Weights alone. Turns already given stay given.
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

// Pools lists the pools in force, by id.
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
