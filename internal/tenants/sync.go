package tenants

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

const (
	// PollEvery is how often a process looks for changes if it receives no notification. A stop of
	// spending must be known everywhere within a second.
	PollEvery = 500 * time.Millisecond
	// missEvery is the minimum time between lookups for unknown keys, so that wrong keys cause
	// little load on Redis.
	missEvery   = 100 * time.Millisecond
	missTimeout = 250 * time.Millisecond
	usedEvery   = time.Minute
	scanStep    = 1000
)

// Load reads all records. Call it before the first use.
func (s *Store) Load(ctx context.Context) error { return s.Refresh(ctx) }

// Changed receives after new snapshots; one receive may stand for several. It supports one
// receiver.
func (s *Store) Changed() <-chan struct{} { return s.changed }

// Run follows changes in Redis and writes last uses until ctx is done, and then returns nil. It
// survives Redis outages.
func (s *Store) Run(ctx context.Context) error {
	sub := s.rdb.Subscribe(ctx, changedChan)
	defer sub.Close()
	changes := make(chan struct{}, 1)
	go sub.Each(func(m redisconn.Message) {
		if m.Joined {
			return
		}
		select {
		case changes <- struct{}{}:
		default:
		}
	})
	poll, used := time.NewTicker(PollEvery), time.NewTicker(usedEvery)
	defer poll.Stop()
	defer used.Stop()
	away := false
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			s.writeUsed(last)
			return nil
		case <-used.C:
			s.writeUsed(ctx)
			continue
		case <-changes:
		case <-poll.C:
		}
		err := s.Refresh(ctx)
		if err == nil {
			err = s.restore(ctx)
		}
		if gone := err != nil && ctx.Err() == nil; gone != away {
			away = gone
			if away {
				s.log.Warn("runtime settings not readable, keeping the last known ones", "err", err)
			} else {
				s.log.Info("runtime settings readable again")
			}
		}
	}
}

// Missed looks for changes because something unknown here may exist, and reports whether there
// were any. All misses within 100 ms share one lookup, so that wrong keys cause little load on
// Redis. It takes at most 250 ms.
func (s *Store) Missed(ctx context.Context) bool {
	before := s.Snapshot()
	s.missMu.Lock()
	round := s.missRound
	if round == nil {
		round = make(chan struct{})
		s.missRound = round
		go s.look(context.WithoutCancel(ctx), round, time.Until(s.missLast.Add(missEvery)))
	}
	s.missMu.Unlock()
	select {
	case <-round:
	case <-ctx.Done():
	}
	return s.Snapshot() != before
}

// look looks for changes after a delay, for everyone who waits for the round.
func (s *Store) look(ctx context.Context, round chan struct{}, after time.Duration) {
	time.Sleep(after)
	s.missMu.Lock()
	s.missRound, s.missLast = nil, time.Now() // later misses need another round
	s.missMu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, missTimeout)
	defer cancel()
	if err := s.Refresh(ctx); err != nil {
		s.log.Debug("lookup of an unknown key failed", "err", err)
	}
	close(round)
}

// Refresh brings the snapshot up to date.
func (s *Store) Refresh(ctx context.Context) error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	old := s.snapshot.Load()
	last, err := s.rdb.Get(ctx, lastKey).Result()
	if err != nil && !redisconn.IsNil(err) {
		return unavailable("look for changes", err)
	}
	if last == old.last {
		return nil
	}
	next, err := s.follow(ctx, old)
	if err == nil && next == nil {
		next, err = s.readAll(ctx)
		if err == nil {
			next, err = s.recall(ctx, old, next)
		}
	}
	if err != nil {
		return err
	}
	s.snapshot.Store(next)
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return nil
}

// follow applies the changes since old. It returns nil if they are no longer available, or if
// old belongs to another history than that in Redis.
func (s *Store) follow(ctx context.Context, old *Snapshot) (*Snapshot, error) {
	if old.last == "" {
		return nil, nil
	}
	list, err := s.rdb.XRange(ctx, changesKey, old.last, "+").Result()
	if err != nil {
		return nil, unavailable("read changes", err)
	}
	if len(list) == 0 || list[0].ID != old.last {
		return nil, nil
	}
	d := old.draft()
	if err := s.fetch(ctx, d, changedBy(list[1:])); err != nil {
		return nil, err
	}
	return d.finish(list[len(list)-1].ID), nil
}

// changedBy returns the fields that changes name.
func changedBy(list []redisconn.Entry) map[string]bool {
	changed := map[string]bool{}
	for _, m := range list {
		text, _ := m.Values["f"].(string)
		for field := range strings.SplitSeq(text, "\n") {
			if field != "" { // otherwise it is only an audit entry
				changed[field] = true
			}
		}
	}
	return changed
}

// texts returns the texts of records in Redis, empty for those that it does not have.
func (s *Store) texts(ctx context.Context, fields []string) ([]string, error) {
	values, err := s.rdb.HMGet(ctx, recordsKey, fields...).Result()
	if err != nil {
		return nil, unavailable("read records", err)
	}
	out := make([]string, len(fields))
	for i, v := range values {
		out[i], _ = v.(string)
	}
	return out, nil
}

// fetch reads the changed records into the draft.
func (s *Store) fetch(ctx context.Context, d *draft, changed map[string]bool) error {
	if len(changed) == 0 {
		return nil
	}
	fields := slices.Collect(maps.Keys(changed))
	texts, err := s.texts(ctx, fields)
	for i, text := range texts {
		s.take(d, fields[i], text)
	}
	return err
}

// take adds a record that was read from Redis to a draft, unless it is an older version of one that Redis
// lost.
func (s *Store) take(d *draft, field, text string) {
	ours := s.lost[field]
	if ours != "" && text != "" && older(text, ours) {
		text = ours
	} else {
		delete(s.lost, field) // written again, changed, or deleted after the loss
	}
	s.set(d, field, text)
}

// set adds a record to a draft. An invalid record is left out, so that it does not hide the others.
func (s *Store) set(d *draft, field, text string) {
	r, err := parseRef(field)
	if err == nil {
		err = d.set(r, text)
	}
	if err != nil {
		s.log.Error("runtime setting not understood, skipped", "record", field, "err", err)
	}
}

// readAll reads every record, in steps so that a large number does not delay calls, and then
// applies what changed meanwhile.
func (s *Store) readAll(ctx context.Context) (*Snapshot, error) {
	last, err := s.rdb.Get(ctx, lastKey).Result()
	if err != nil && !redisconn.IsNil(err) {
		return nil, unavailable("look for changes", err)
	}
	d := emptySnapshot().draft()
	err = redisconn.Pairs(func(cursor uint64) redisconn.Scan {
		return s.rdb.HScan(ctx, recordsKey, cursor, "", scanStep)
	}, func(field, text string) error {
		s.take(d, field, text)
		return nil
	})
	if err != nil {
		return nil, unavailable("read records", err)
	}
	read := d.finish(last)
	if last == "" {
		return read, nil
	}
	// Apply changes made during the reading. If that is not possible, the next refresh finds
	// them.
	if next, err := s.follow(ctx, read); err != nil || next != nil {
		return next, err
	}
	return read, nil
}
