// Package capacity admits what callers send and receive into Redis, which keeps it in
// memory: bodies and answers of jobs, answers kept for an Idempotency-Key, responses.
// It counts them by org and in all, and refuses what would leave no memory for the
// limits of other callers.
//
// What is in Redis besides, of which nobody asks here (limits, ledger, records), is known
// from Redis's own figures. So the bound of all holds also where the count is lost.
package capacity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/lua"
)

// FullError refuses bytes.
type FullError struct {
	// Org says that the org has its share; else there is no more room for anybody.
	Org bool
	// Free is how many bytes would have been admitted.
	Free int64
	// Share is the percentage that is used up: Options.OrgShare or Options.MemoryShare.
	Share int
	// Never says that the org would have no room for them with nothing else in Redis
	// either; Free is then what it may have at most.
	Never bool
}

func (e *FullError) Error() string {
	if e.Org {
		return fmt.Sprintf("capacity: the org has its share, %d bytes are left of it", e.Free)
	}
	return fmt.Sprintf("capacity: %d bytes are left for bodies and answers", e.Free)
}

// IsFull reports whether Redis is full, see lua.Full, or bytes were not admitted. A
// transaction of writes is aborted for nothing else.
func IsFull(err error) bool {
	var full *FullError
	return errors.As(err, &full) || lua.Full(err) || lua.Refused(err, "EXECABORT")
}

// Options are the bounds. They can be replaced while a Memory is in use.
type Options struct {
	// MemoryShare is the part of Redis's maxmemory, in percent, beyond which nothing is
	// admitted. Without maxmemory it is that part of the machine's memory. 0 is 80.
	MemoryShare int
	// OrgShare is how much of what other orgs leave one org may have, in percent. 0 is 50.
	OrgShare int
}

// Memory is the one admission to Redis's memory. It is safe for concurrent use.
type Memory struct {
	Count
	rdb     redis.UniversalClient
	refused *prometheus.CounterVec

	looking chan struct{} // holds one

	mu     sync.Mutex
	opts   Options
	looked time.Time
	seen   Bound
}

// New returns the Memory of rdb; scripts runs its scripts, nil: rdb. Without a registerer
// its metrics are unregistered.
func New(rdb redis.UniversalClient, scripts redis.Scripter, o Options, reg prometheus.Registerer) *Memory {
	if scripts == nil {
		scripts = rdb
	}
	const prefix = "lg:{capacity}"
	m := &Memory{
		Count: CountAt(scripts, prefix, prefix+":sums"), rdb: rdb, refused: newRefused(reg),
		looking: make(chan struct{}, 1),
	}
	m.Configure(o)
	return m
}

// Configure replaces the options.
func (m *Memory) Configure(o Options) {
	o.MemoryShare = cmp.Or(o.MemoryShare, 80)
	o.OrgShare = cmp.Or(o.OrgShare, 50)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opts, m.looked = o, time.Time{}
}

// Fits returns a *FullError when one org can never have so many bytes, whatever else ends.
func (m *Memory) Fits(ctx context.Context, bytes int64) error {
	in, _, err := m.look(ctx)
	if err != nil {
		return err
	}
	if most := in.whole / 100 * int64(in.Share); in.whole > 0 && bytes > most {
		m.refused.WithLabelValues("never").Inc()
		return &FullError{Org: true, Free: most, Share: in.Share, Never: true}
	}
	return nil
}

// ReleaseOrg gives back all that an org has, whose keys are gone.
func (m *Memory) ReleaseOrg(ctx context.Context, org string) error {
	it := m.rdb.HScan(ctx, m.keys[0], 0, "*", 500).Iterator()
	var ids []string
	for it.Next(ctx) {
		id := it.Val()
		if !it.Next(ctx) { // its value
			break
		}
		if strings.HasPrefix(it.Val(), org+" ") {
			ids = append(ids, id)
		}
	}
	if err := it.Err(); err != nil {
		return fmt.Errorf("capacity: release %s: %w", org, err)
	}
	for part := range slices.Chunk(ids, 500) {
		if err := m.Release(ctx, part...); err != nil {
			return err
		}
	}
	return nil
}

// Reserve admits bytes of an id for an org, see Count.Reserve. It refuses by a look of now:
// what was there a second ago may be gone.
func (m *Memory) Reserve(ctx context.Context, org, id string, b Bytes, life time.Duration) error {
	began, r := time.Now(), Reservation{Org: org, ID: id, Bytes: b, Life: life}
	err := m.reserve(ctx, r)
	var full *FullError
	if errors.As(err, &full) && m.outdated(began) {
		err = m.reserve(ctx, r)
	}
	if errors.As(err, &full) {
		scope := "all"
		if full.Org {
			scope = "org"
		}
		m.refused.WithLabelValues(scope).Inc()
	}
	return err
}

func (m *Memory) reserve(ctx context.Context, r Reservation) error {
	in, share, err := m.look(ctx)
	if err != nil {
		return err
	}
	err = m.Count.Reserve(ctx, r, in)
	if full, ok := errors.AsType[*FullError](err); ok {
		full.Share = share
		if full.Org {
			full.Share = in.Share
		}
	}
	return err
}
