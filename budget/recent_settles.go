package budget

import (
	"sync"
	"time"
)

const (
	tailMost   = 100_000          // endings remembered, at 1.1 KB each
	watchEvery = time.Second      // between checks of the store's identity
	tailMargin = 30 * time.Second // before the horizon; older endings are not written again
)

// recentSettles remembers the endings that the store answered recently. A store that answers before
// its replica or disk has the write can lose it, and then it is written again. It is a ring of the
// newest tailMost endings.
type recentSettles struct {
	span time.Duration

	mu   sync.Mutex
	ring []remembered
	head int // of the oldest
	n    int

	replicas map[string]*replicaSeen // by server

	known bool         // the store has been seen
	done  time.Time    // when it was last written again
	last  replayReport // result of that
}

// remembered is an ending and when the store answered it.
type remembered struct {
	Settle
	at time.Time
}

// answered remembers an ending that the store accepted.
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

// bare returns the hold without what its end does not need.
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

// forget drops what was answered before the given instant.
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

// replicaSeen is how far a server's replicas have acknowledged.
type replicaSeen struct {
	asked  time.Time // when the server had this offset
	offset int64
	acked  time.Time // what the server answered before then is on a replica
}

// replicated records what a server reports about its replicas: its own offset, and that of the most
// advanced replica, -1 if there is none. A server is tracked only if it recently had a replica, for
// which it keeps a backlog: without replicas, a failover cannot lose anything.
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

// renewed forgets how far replicas were, because the servers changed.
func (t *recentSettles) renewed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replicas = nil
}

// until returns the instant before which answers need not be remembered: they are older than the
// span and on a replica of each server, or too old to be distinguished from repetitions.
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
