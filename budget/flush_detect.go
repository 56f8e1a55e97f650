package budget

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// epochKey marks the data of the store. When it is gone or newer than the one
	// this process knows, the data were lost: FLUSHALL, a lost volume, a restart
	// without persistence. On a cluster it stands for the one shard it is on.
	epochKey = "lg:epoch"
	// markName is an org's key with the loss of data that its limits suffered: the
	// Unix us of that epoch, or 0. Scripts compare it with what Go believes.
	markName = "epoch"

	epochLife = 400 * 24 * time.Hour // of both keys after their last use

	epochLost     = "lost"     // limits stay closed for the length of their window
	epochAccepted = "accepted" // an operator let them count from zero
)

// epoch is the value of epochKey: "<Unix us of its creation>.<random>", and after
// a loss of data ".lost" or ".accepted". Older versions wrote the random part only.
type epoch struct {
	id      string // without what became of the loss
	created int64  // us; 0: written by an older version
	state   string
}

// newEpoch is made by the store's clock: it must not look older than one that was
// made elsewhere before.
func (s *Store) newEpoch(ctx context.Context) (epoch, error) {
	now := s.now()
	if s.clock == nil {
		var err error
		if now, err = s.rdb.Time(ctx).Result(); err != nil {
			return epoch{}, storeError("look for a loss of data", err)
		}
	}
	return epoch{id: strconv.FormatInt(now.UnixMicro(), 10) + "." + rand.Text(), created: now.UnixMicro()}, nil
}

// currentEpoch returns the store's epoch, and gives it one when it has none.
func (s *Store) currentEpoch(ctx context.Context) (epoch, error) {
	for range 2 {
		text, err := s.rdb.GetEx(ctx, epochKey, epochLife).Result()
		if err == nil {
			return parseEpoch(text), nil
		}
		if !errors.Is(err, redis.Nil) {
			return epoch{}, storeError("look for a loss of data", err)
		}
		e, err := s.newEpoch(ctx)
		if err != nil {
			return epoch{}, err
		}
		made, err := s.rdb.SetNX(ctx, epochKey, e.String(), epochLife).Result()
		if err != nil {
			return epoch{}, storeError("look for a loss of data", err)
		}
		if made {
			return e, nil
		}
	}
	return epoch{}, fmt.Errorf("%w: the epoch of its data comes and goes", ErrUnavailable)
}

func parseEpoch(text string) epoch {
	created, rest, dotted := strings.Cut(text, ".")
	at, err := strconv.ParseInt(created, 10, 64)
	if !dotted || err != nil {
		return epoch{id: text}
	}
	random, state, _ := strings.Cut(rest, ".")
	return epoch{id: created + "." + random, created: at, state: state}
}

func (e epoch) String() string {
	if e.state == "" {
		return e.id
	}
	return e.id + "." + e.state
}

// lostAt is when the data were found lost, in us; 0: they are whole, or an
// operator accepted the loss.
func (e epoch) lostAt() int64 {
	if e.state == epochLost {
		return e.created
	}
	return 0
}

// replaces reports whether the data marked by e came after a loss of those that
// old marks. An older epoch is that of a backup.
func (e epoch) replaces(old epoch) bool {
	return old.id != "" && e.id != old.id && (e.created == 0 || e.created >= old.created)
}

// loss is what a Store knows of losses of data.
type loss struct {
	turn  chan struct{} // held while this process looks
	began time.Time     // of the last look that succeeded; turn guards it
	file  string

	mu    sync.Mutex
	seen  epoch            // of the store, as this process last saw it
	at    time.Time        // when that was
	fresh bool             // a loss was found that the tail does not know yet
	marks map[string]int64 // of orgs that suffered a loss
}

func newLoss(file string) loss {
	var seen epoch
	if text, err := os.ReadFile(file); err == nil {
		seen = parseEpoch(strings.TrimSpace(string(text)))
	}
	return loss{turn: make(chan struct{}, 1), file: file, seen: seen, marks: map[string]int64{}}
}

// look compares the store's epoch with the one this process knows, and marks a
// loss of data that nobody has marked.
func (s *Store) look(ctx context.Context) error {
	l, asked := &s.loss, time.Now()
	select { // two at once could each believe the other's epoch
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return storeError("look for a loss of data", ctx.Err())
	}
	defer func() { <-l.turn }()
	if l.began.After(asked) {
		return nil // many orgs at once share a look
	}
	began := time.Now()
	e, err := s.currentEpoch(ctx)
	if err != nil {
		return err
	}
	lost := e.replaces(l.known())
	if lost && e.state == "" {
		if e.created == 0 { // an older version was there first
			if e, err = s.newEpoch(ctx); err != nil {
				return err
			}
		}
		e.state = epochLost
		if s.opts.OpenAfterLoss {
			e.state = epochAccepted
		}
		if err := s.rdb.Set(ctx, epochKey, e.String(), epochLife).Err(); err != nil {
			return storeError("mark a loss of data", err)
		}
	}
	s.sawEpoch(e, lost)
	l.began = began
	return nil
}

// known is the epoch that this process knows.
func (l *loss) known() epoch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}

// sawEpoch takes the store's epoch, and reports a loss.
func (s *Store) sawEpoch(e epoch, lost bool) {
	l := &s.loss
	l.mu.Lock()
	changed := l.seen.id != e.id
	l.seen, l.at, l.fresh = e, time.Now(), l.fresh || lost
	l.mu.Unlock()
	if changed && l.file != "" {
		if err := writeWhole(l.file, e.id+"\n"); err != nil {
			s.opts.Log.Warn("store epoch not saved: a loss of data during a restart goes unnoticed", "err", err)
		}
	}
	if !lost {
		return
	}
	s.later.metrics.emptied.Inc()
	after := "limits stay closed for the length of their window; open them with: llmguard limits reopen"
	if e.state == epochAccepted {
		after = "limits count from zero"
	}
	s.opts.Log.Error("redis lost its data: limits, holds, ledger and jobs are gone", "after", after)
}

// writeWhole replaces a file by one with this text.
func writeWhole(name, text string) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*") // other processes write it too
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// emptied reports, once, that the store lost its data.
func (s *Store) emptied(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	if s.look(ctx) != nil {
		return false
	}
	s.loss.mu.Lock()
	defer s.loss.mu.Unlock()
	fresh := s.loss.fresh
	s.loss.fresh = false
	return fresh
}

// mark is the loss that this process believes the org's limits suffered.
func (s *Store) mark(org string) int64 {
	s.loss.mu.Lock()
	defer s.loss.mu.Unlock()
	return s.loss.marks[org]
}

func (l *loss) setMark(org string, mark int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if mark > 0 {
		l.marks[org] = mark
	} else {
		delete(l.marks, org)
	}
}

// settleMark settles what a script found: an org without a mark, below 0, or with
// another than this process believed. An org without one is new, or its data were
// lost.
func (s *Store) settleMark(ctx context.Context, org string, mark int64) error {
	if err := s.look(ctx); err != nil {
		return err
	}
	if mark < 0 {
		name := key(org, markName)
		pipe := s.rdb.Pipeline()
		pipe.SetNX(ctx, name, s.loss.known().lostAt(), epochLife)
		now := pipe.Get(ctx, name)
		if _, err := pipe.Exec(ctx); err != nil {
			return storeError("mark org", err)
		}
		var err error
		if mark, err = now.Int64(); err != nil {
			return fmt.Errorf("budget: mark of org %s: %w", org, err)
		}
	}
	s.loss.setMark(org, mark)
	return nil
}

// readLoss takes the org's mark and the epoch from the store, unless this process
// just saw that nothing is lost.
func (s *Store) readLoss(ctx context.Context, org string) error {
	l := &s.loss
	l.mu.Lock()
	sound := time.Since(l.at) < 3*watchEvery && l.seen.lostAt() == 0
	l.mu.Unlock()
	if sound {
		return nil
	}
	pipe := s.rdb.Pipeline()
	found, mark := pipe.Get(ctx, epochKey), pipe.Get(ctx, key(org, markName))
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return storeError("read loss of data", err)
	}
	e := parseEpoch(found.Val())
	if l.known().id == "" {
		l.mu.Lock()
		l.seen = e
		l.mu.Unlock()
	}
	at, err := mark.Int64()
	if err != nil { // what the first hold will write
		at = e.lostAt()
	}
	l.setMark(org, at)
	return nil
}

// closedUntil is when a limit of an org opens that is closed after a loss of
// data: when all that may have been charged to it would have left it. Zero: it is
// not closed.
func (s *Store) closedUntil(org string, l *Limit, now time.Time) time.Time {
	s.loss.mu.Lock()
	at := s.loss.marks[org]
	lost := at > 0 && at == s.loss.seen.lostAt()
	s.loss.mu.Unlock()
	if !lost || l.Metric == Concurrency { // open calls are in no window
		return time.Time{}
	}
	until := time.UnixMicro(at).Add(l.Shape.span())
	if l.Shape.Kind == Calendar {
		zone, err := zoneNamed(l.Shape.zone())
		if err == nil {
			until = boundaries(l.Shape.Calendar, zone, time.UnixMicro(at)).to
		}
	}
	if !until.After(now) {
		return time.Time{}
	}
	return until
}

// closed tells a status that its limit is closed until an instant.
func (st *Status) closed(until, now time.Time) {
	if until.IsZero() {
		return
	}
	st.ClosedUntil, st.Remaining, st.Reset = until, 0, max(st.Reset, until.Sub(now))
	if st.Refused && !st.Never {
		st.Wait = until.Sub(now)
	}
}

// DataLoss is when the store was found to have lost its data, if that closes
// limits; zero: it has not, or an operator accepted it.
func (s *Store) DataLoss(ctx context.Context) (time.Time, error) {
	text, err := s.rdb.Get(ctx, epochKey).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return time.Time{}, storeError("read loss of data", err)
	}
	if at := parseEpoch(text).lostAt(); at > 0 {
		return time.UnixMicro(at), nil
	}
	return time.Time{}, nil
}

// Reopen lets the limits of an org that a loss of data closed count from zero.
func (s *Store) Reopen(ctx context.Context, org string) error {
	if !validOrg(org) {
		return fmt.Errorf("budget: org id %q is empty or has braces", org)
	}
	if err := s.rdb.Set(ctx, key(org, markName), 0, epochLife).Err(); err != nil {
		return storeError("reopen", err)
	}
	s.loss.setMark(org, 0)
	return nil
}

// ReopenAll lets the limits of all orgs, and spend caps, that a loss of data closed
// count from zero. Every process follows within a second or two.
func (s *Store) ReopenAll(ctx context.Context) error {
	text, err := s.rdb.Get(ctx, epochKey).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return storeError("reopen", err)
	}
	e := parseEpoch(text)
	if e.lostAt() == 0 {
		return nil
	}
	e.state = epochAccepted
	if err := s.rdb.Set(ctx, epochKey, e.String(), epochLife).Err(); err != nil {
		return storeError("reopen", err)
	}
	s.sawEpoch(e, false)
	return nil
}
