// Package capacity limits how much of what callers send and receive is stored in Redis memory:
// bodies and responses of jobs, responses kept for an Idempotency-Key, stored responses. It
// counts the bytes by org and in total, and rejects what would leave no memory for the limits
// of other callers. Small records that callers create (runs and their keys, holds, values of
// labels, requests for more of a limit) count, too.
//
// Everything else in Redis (limits, ledger, records) is known only from Redis's own figures, so
// the total bound holds even if the count is lost.
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

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/lua"
)

// FullError rejects bytes.
type FullError struct {
	// Org means that the org has used its share; otherwise there is no room for anyone.
	Org bool
	// Free is how many bytes would have been admitted.
	Free int64
	// Share is the percentage that has been used: Options.OrgShare or Options.MemoryShare.
	Share int
	// Never means that the org could not have them even if Redis held nothing else; Free is
	// then the most that it may have.
	Never bool
}

func (e *FullError) Error() string {
	if e.Org {
		return fmt.Sprintf("capacity: the org has its share, %d bytes are left of it", e.Free)
	}
	return fmt.Sprintf("capacity: %d bytes are left for bodies and answers", e.Free)
}

// IsFull reports whether Redis is full, see lua.Full, or bytes were not admitted. A transaction
// of writes is aborted for no other reason.
func IsFull(err error) bool {
	var full *FullError
	return errors.As(err, &full) || lua.Full(err) || lua.Refused(err, "EXECABORT")
}

// Options are the limits. They can be replaced while a Memory is in use.
type Options struct {
	// MemoryShare is the percentage of Redis's maxmemory, or without maxmemory of the machine's
	// memory, beyond which nothing is admitted. 0 means 80.
	MemoryShare int
	// OrgShare is the percentage of what other orgs leave that one org may have. 0 means 50.
	OrgShare int
}

// Memory admits bytes to Redis memory. It is safe for concurrent use.
type Memory struct {
	Count
	rdb     redisconn.DB
	refused *prometheus.CounterVec

	looking chan struct{} // holds a token while Redis is queried

	mu     sync.Mutex
	opts   Options
	looked time.Time
	seen   Bound
}

// countPrefix begins the keys of the count of all orgs.
const countPrefix = "lg:{capacity}"

// New returns the Memory of rdb. scripts runs its scripts; nil means rdb. If the registerer is
// nil, its metrics are not registered.
func New(rdb redisconn.DB, scripts redisconn.Scripter, o Options, reg prometheus.Registerer) *Memory {
	if scripts == nil {
		scripts = rdb
	}
	m := &Memory{
		Count: CountAt(scripts, countPrefix, countPrefix+":sums"), rdb: rdb, refused: newRefused(reg),
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

// Fits returns a *FullError if one org can never have this many bytes, whatever else is freed.
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

// ReleaseOrg releases everything of an org whose keys are gone.
func (m *Memory) ReleaseOrg(ctx context.Context, org string) error {
	var ids []string
	err := redisconn.Pairs(func(cursor uint64) redisconn.Scan {
		return m.rdb.HScan(ctx, m.keys[0], cursor, "*", 500)
	}, func(id, owner string) error {
		if strings.HasPrefix(owner, org+" ") {
			ids = append(ids, id)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("capacity: release %s: %w", org, err)
	}
	for part := range slices.Chunk(ids, 500) {
		if err := m.Release(ctx, part...); err != nil {
			return err
		}
	}
	return nil
}

// Under returns the count of the things of an org that have a name, in the slot of the org.
func (m *Memory) Under(org, name string) Count {
	prefix := "lg:{" + org + "}:" + name
	return CountAt(m.rdb, prefix, prefix+":sums")
}

// Admit admits bytes of a record that is about to be written and expires after life. Unlike those of Reserve they
// have no id: a repetition counts twice, and they cannot be released. A nil Memory admits everything.
func (m *Memory) Admit(ctx context.Context, org string, bytes int64, life time.Duration) error {
	if m == nil {
		return nil
	}
	return m.Reserve(ctx, org, "", Bytes{Written: bytes}, life)
}

// Reserve admits bytes of an id for an org, see TryReserve, and counts them as refused if they are not admitted.
func (m *Memory) Reserve(ctx context.Context, org, id string, b Bytes, life time.Duration) error {
	err := m.TryReserve(ctx, org, id, b, life)
	if full, ok := errors.AsType[*FullError](err); ok {
		scope := "all"
		if full.Org {
			scope = "org"
		}
		m.refused.WithLabelValues(scope).Inc()
	}
	return err
}

// TryReserve admits bytes of an id for an org, see Count.Reserve. Before it rejects them it reads the current state,
// because bytes seen a second ago may be gone.
func (m *Memory) TryReserve(ctx context.Context, org, id string, b Bytes, life time.Duration) error {
	began, r := time.Now(), Reservation{Org: org, ID: id, Bytes: b, Life: life}
	err := m.reserve(ctx, r)
	var full *FullError
	if errors.As(err, &full) && m.outdated(began) {
		err = m.reserve(ctx, r)
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
