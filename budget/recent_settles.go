package budget

import (
	"sync"
	"time"
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
