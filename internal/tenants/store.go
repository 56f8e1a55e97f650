package tenants

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/lua"
)

// All keys have a hash tag that no org can have, because ids contain no colon.
const (
	prefix      = "lg:{identity:}:"
	recordsKey  = prefix + "records"
	versionKey  = prefix + "version"
	lastKey     = prefix + "last"
	changesKey  = prefix + "changes"
	auditKey    = prefix + "audit"
	usedKey     = prefix + "used"
	changedChan = prefix + "changed"
)

const (
	keepChanges = 1_000
	keepAudit   = 100_000
)

var commitScript = lua.Load("identity_commit")

// Options configure a Store; the zero value is usable.
type Options struct {
	Log *slog.Logger // nil: discarded
}

// Store holds the records in Redis and this process's copy of them. It is safe for concurrent
// use.
type Store struct {
	rdb redisconn.DB
	log *slog.Logger

	snapshot atomic.Pointer[Snapshot]
	syncing  sync.Mutex        // one refresh at a time
	lost     map[string]string // by field: records that Redis lost and that are to be written again; guarded by syncing
	changed  chan struct{}     // signals a new snapshot

	missMu    sync.Mutex
	missRound chan struct{} // closed after the next lookup of something unknown; nil: none is scheduled
	missLast  time.Time     // when the last lookup started

	usedMu sync.Mutex
	used   map[string]int64 // "org key" -> Unix seconds, not yet written
}

// New returns an empty Store; call Load and Run next.
func New(rdb redisconn.DB, o Options) *Store {
	s := &Store{
		rdb: rdb, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), changed: make(chan struct{}, 1),
		used: map[string]int64{}, lost: map[string]string{},
	}
	s.snapshot.Store(emptySnapshot())
	return s
}

// Snapshot returns the records as last read.
func (s *Store) Snapshot() *Snapshot { return s.snapshot.Load() }

// Text is a record as stored in Redis, or empty if there is none. Comparing it detects
// concurrent changes.
type Text string

// Get reads a record from Redis into v and returns its text, empty if there is none.
func (s *Store) Get(ctx context.Context, r Ref, v any) (Text, error) {
	text, err := s.rdb.HGet(ctx, recordsKey, r.String()).Result()
	if redisconn.IsNil(err) {
		return "", nil
	}
	if err != nil {
		return "", unavailable("read a record", err)
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return "", fmt.Errorf("tenants: record %s: %w", r, err)
	}
	return Text(text), nil
}

// Change is a record before and after a change.
type Change struct {
	Ref Ref
	Old Text // text that Redis must have
	New any  // nil deletes the record
}

// text returns the new text; empty deletes the record.
func (c Change) text() (string, error) {
	if c.New == nil {
		return "", nil
	}
	raw, err := json.Marshal(c.New)
	if err != nil {
		return "", fmt.Errorf("tenants: encode record: %w", err)
	}
	return string(raw), nil
}

// Commit makes all changes or none, with one audit entry, and waits until this process has read
// them. ErrConflict means that a record no longer matches Change.Old; then nothing was changed.
func (s *Store) Commit(ctx context.Context, entry AuditEntry, changes ...Change) error {
	if err := s.commit(ctx, entry, changes...); err != nil {
		return err
	}
	return s.Refresh(ctx)
}

// commit is Commit without the reading.
func (s *Store) commit(ctx context.Context, entry AuditEntry, changes ...Change) error {
	audit, err := json.Marshal(entry)
	if err != nil {
		return fmt.Errorf("tenants: encode audit entry: %w", err)
	}
	token := strconv.FormatUint(1+rand.Uint64N(1e15-1), 10)
	args := []any{token, changedChan, keepChanges, audit, keepAudit}
	for _, c := range changes {
		text, err := c.text()
		if err != nil {
			return err
		}
		args = append(args, c.Ref.String(), string(c.Old), text)
	}
	reply, err := commitScript.Run(ctx, s.rdb, []string{recordsKey, versionKey, lastKey, changesKey, auditKey},
		args...).Text()
	if err != nil {
		return unavailable("commit", err)
	}
	if field, ok := strings.CutPrefix(reply, "conflict "); ok {
		return fmt.Errorf("%w: %s", ErrConflict, field)
	}
	return nil
}

func unavailable(what string, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, what, err)
}

// Used records that a key was used. Run writes it once a minute.
func (s *Store) Used(org, key string, at time.Time) {
	id, now := org+" "+key, at.Unix()
	s.usedMu.Lock()
	defer s.usedMu.Unlock()
	s.used[id] = now
}

// LastUsed returns when the org's keys were last used, accurate to about a minute. Keys that
// were never used are missing.
func (s *Store) LastUsed(ctx context.Context, org string, ids ...string) (map[string]time.Time, error) {
	out := map[string]time.Time{}
	if len(ids) == 0 {
		return out, nil
	}
	fields := make([]string, len(ids))
	for i, id := range ids {
		fields[i] = org + " " + id
	}
	values, err := s.rdb.HMGet(ctx, usedKey, fields...).Result()
	if err != nil {
		return nil, unavailable("read last uses", err)
	}
	for i, v := range values {
		text, _ := v.(string)
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			out[ids[i]] = time.Unix(n, 0).UTC()
		}
	}
	return out, nil
}

// writeUsed writes the recorded uses. If Redis does not accept them, they are kept for the next
// attempt.
func (s *Store) writeUsed(ctx context.Context) {
	s.usedMu.Lock()
	batch := s.used
	s.used = map[string]int64{}
	s.usedMu.Unlock()
	if len(batch) == 0 {
		return
	}
	args := make([]any, 0, 2*len(batch))
	for id, at := range batch {
		args = append(args, id, at)
	}
	if err := s.rdb.HSet(ctx, usedKey, args...).Err(); err != nil {
		s.usedMu.Lock()
		defer s.usedMu.Unlock()
		for id, at := range batch {
			s.used[id] = max(at, s.used[id])
		}
	}
}

// ForgetUsed deletes when an org's keys were last used.
func (s *Store) ForgetUsed(ctx context.Context, org string) error {
	err := redisconn.Pairs(func(cursor uint64) redisconn.Scan {
		return s.rdb.HScan(ctx, usedKey, cursor, org+" *", scanStep)
	}, func(field, _ string) error { return s.rdb.HDel(ctx, usedKey, field).Err() })
	if err != nil {
		return unavailable("forget last uses", err)
	}
	return nil
}
