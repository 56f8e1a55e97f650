package budget

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	tailMost   = 100_000          // endings remembered, at 1.1 KB each
	watchEvery = time.Second      // between looks at who the store is
	tailMargin = 30 * time.Second // before the horizon: what is older is not written again
)

// tail remembers the endings that the store has answered lately. A store that
// answers before its replica or its disk has the write can forget what it said,
// and then they are written again. It is a ring: the newest tailMost.
type recentSettles struct {
	span time.Duration

	servers map[string]bool // as watchOnce found them last
	again   bool            // it has to be written again

	mu   sync.Mutex
	ring []remembered
	head int // of the oldest
	n    int

	replicas map[string]*replicaSeen // by server

	known bool         // the store has been seen
	done  time.Time    // when it was last written again
	last  replayReport // what came of that
}

// remembered is an ending and when the store answered it.
type remembered struct {
	Settle
	at time.Time
}

// answered remembers an ending that the store took.
func (t *recentSettles) answered(e Settle, err error) {
	if t.span <= 0 || err != nil {
		return
	}
	e.Hold = e.Hold.bare()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == len(t.ring) && t.n < tailMost {
		t.grow()
	}
	if t.n == len(t.ring) {
		t.head = (t.head + 1) % len(t.ring)
		t.n--
	}
	t.ring[(t.head+t.n)%len(t.ring)] = remembered{e, time.Now()}
	t.n++
}

// bare is a hold without what its end does not need.
func (h *Hold) bare() *Hold {
	out := &Hold{ID: h.ID, Call: h.Call, Max: h.Max, Expected: h.Expected, At: h.At, states: h.states}
	for _, part := range h.caps {
		out.caps = append(out.caps, part.bare())
	}
	return out
}

// grow doubles the ring; t.mu is held.
func (t *recentSettles) grow() {
	ring := make([]remembered, min(max(2*len(t.ring), 64), tailMost))
	for i := range t.n {
		ring[i] = t.ring[(t.head+i)%len(t.ring)]
	}
	t.ring, t.head = ring, 0
}

// forget drops what was answered before an instant.
func (t *recentSettles) forget(before time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.n > 0 && t.ring[t.head].at.Before(before) {
		t.ring[t.head] = remembered{}
		t.head = (t.head + 1) % len(t.ring)
		t.n--
	}
	if t.n == 0 {
		t.ring, t.head = nil, 0
	}
}

// replicaSeen is how far the replicas of a server are.
type replicaSeen struct {
	asked  time.Time // when the server was at offset
	offset int64
	acked  time.Time // until when a replica has what the server answered
}

// replicated takes what a server says of its replicas: how far it is itself, and the
// replica that is furthest, -1 without one. Only a server that had one lately, for
// which it keeps a backlog, is followed: without any nothing is lost to a failover.
func (t *recentSettles) replicated(server string, asked time.Time, offset, replica int64, backlog bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.replicas[server]
	if r == nil {
		if !backlog {
			return
		}
		r = &replicaSeen{asked: asked, offset: offset}
		if t.replicas == nil {
			t.replicas = map[string]*replicaSeen{}
		}
		t.replicas[server] = r
	}
	if replica >= r.offset {
		r.acked, r.asked, r.offset = r.asked, asked, offset
	}
}

// renewed forgets how far replicas were: the servers are others.
func (t *recentSettles) renewed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replicas = nil
}

// until is the instant before which answers need not be remembered: they are older
// than the span and a replica of each server has them, or they are too old to be told
// from a repetition.
func (t *recentSettles) until(now time.Time, horizon time.Duration) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := now.Add(-t.span)
	for _, r := range t.replicas {
		if r.acked.Before(at) {
			at = r.acked
		}
	}
	if old := now.Add(-horizon); at.Before(old) {
		return old
	}
	return at
}

func (t *recentSettles) see() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = true
}

// list returns the endings, oldest first.
func (t *recentSettles) list() []remembered {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]remembered, t.n)
	for i := range out {
		out[i] = t.ring[(t.head+i)%len(t.ring)]
	}
	return out
}

// watch looks once a second who the store is, and writes the tail again when it
// is another: after a failover or a restart. It is a part of Run.
func (s *Store) watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		s.watchOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// watchOnce is one round of watch.
func (s *Store) watchOnce(ctx context.Context) {
	t, now := &s.tail, time.Now()
	found, err := s.identities(ctx)
	if err == nil {
		if t.servers != nil && news(t.servers, found) {
			t.again = true
			t.renewed()
		}
		t.servers = found
		t.again = s.emptied(ctx) || t.again
		t.see()
	}
	if t.again && s.replayTail(ctx) == nil {
		t.again = false
	}
	// What was answered while the store was away is kept, however long that is.
	if err == nil && !t.again {
		t.forget(t.until(now, s.opts.Horizon))
	}
}

// news reports whether a server is among those found that was not known.
func news(known, found map[string]bool) bool {
	for id := range found {
		if !known[id] {
			return true
		}
	}
	return false
}

// identities returns what tells the store's primaries from any other, and from
// themselves after a restart or a failover.
func (s *Store) identities(ctx context.Context) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, watchEvery)
	defer cancel()
	found := map[string]bool{}
	var mu sync.Mutex
	ask := func(ctx context.Context, c *redis.Client) error {
		id, err := s.identity(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		found[id] = true
		return err
	}
	switch c := s.rdb.(type) {
	case *redis.ClusterClient:
		return found, c.ForEachMaster(ctx, ask)
	case *redis.Client:
		return found, ask(ctx, c)
	default:
		return found, nil
	}
}

// identity is a server's run id and the id of its replication history, which
// changes when a replica becomes a primary. Servers that do not tell are all the
// same. The server's clock and its replicas are read on the way.
func (s *Store) identity(ctx context.Context, c *redis.Client) (string, error) {
	pipe := c.Pipeline()
	clock, asked := pipe.Time(ctx), time.Now()
	server, replication := pipe.Info(ctx, "server"), pipe.Info(ctx, "replication")
	if _, err := pipe.Exec(ctx); err != nil {
		if unavailable(err) {
			return "", err
		}
		return "", nil
	}
	s.readClock(c.Options().Addr, asked, clock.Val())
	id, offset, replica, backlog := "", int64(0), int64(-1), false
	for line := range strings.Lines(server.Val() + "\n" + replication.Val()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "run_id" || name == "master_replid":
			id += value + "/"
		case name == "master_repl_offset":
			offset, _ = strconv.ParseInt(value, 10, 64)
		case name == "repl_backlog_active":
			backlog = value == "1"
		case strings.HasPrefix(name, "slave") && strings.Contains(value, "state=online"):
			_, text, _ := strings.Cut(value, ",offset=")
			text, _, _ = strings.Cut(text, ",")
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				replica = max(replica, n)
			}
		}
	}
	s.tail.replicated(c.Options().Addr, asked, offset, replica, backlog)
	return id, nil
}

// replayReport is what came of writing the tail again.
type replayReport struct {
	calls, forgotten, tooOld int
	oldest                   time.Time // when the first that was forgotten had been answered
}

// replayTail writes again what the store answered lately.
func (s *Store) replayTail(ctx context.Context) error {
	list := s.tail.list()
	m := replayReport{calls: len(list)}
	since := time.Now().Add(tailMargin - s.opts.Horizon)
	list = slices.DeleteFunc(list, func(r remembered) bool {
		return r.at.Before(since) // its tombstone may be gone: nobody could tell it from a repetition
	})
	m.tooOld = m.calls - len(list)
	for len(list) > 0 {
		n := min(len(list), replayFlight)
		if err := s.writeAgain(ctx, list[:n], &m); err != nil {
			return err
		}
		list = list[n:]
	}
	s.tail.mu.Lock()
	s.tail.done, s.tail.last = time.Now(), m
	s.tail.mu.Unlock()
	s.opts.Log.Warn("the store was restarted or replaced: the ends of calls that it answered lately are written again",
		"calls", m.calls, "forgotten", m.forgotten, "forgotten_since", m.oldest, "too_old", m.tooOld)
	return nil
}

// writeAgain writes some of the tail; an error says that the store is away.
func (s *Store) writeAgain(ctx context.Context, list []remembered, m *replayReport) error {
	once, cancel := context.WithTimeout(ctx, replayTimeout)
	defer cancel()
	endings := make([]Settle, len(list))
	for i, r := range list {
		endings[i] = r.Settle
	}
	for i, done := range s.endAll(once, endings) {
		if errors.Is(done.Err, ErrUnavailable) || ctx.Err() != nil {
			return done.Err
		}
		what := result(done)
		s.later.metrics.replayed.WithLabelValues("tail", what).Inc()
		if what == "new" {
			m.forgotten++
			if m.oldest.IsZero() || list[i].at.Before(m.oldest) {
				m.oldest = list[i].at
			}
		}
	}
	return nil
}
