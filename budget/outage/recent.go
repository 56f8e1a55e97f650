package outage

import (
	"sync"
	"time"
)

const recentMost = 100_000 // endings remembered, at 1.1 KB each

// Recent remembers the endings that the store answered recently. A store that answers before its
// replica or disk has the write can lose it, and then it is written again. It is a ring of the newest
// 100,000 endings. It is safe for concurrent use.
type Recent[E any] struct {
	span time.Duration

	mu   sync.Mutex
	ring []Remembered[E]
	head int // of the oldest
	n    int

	replicas map[string]*replicaSeen // by server
}

// Remembered is an ending and when the store answered it.
type Remembered[E any] struct {
	Ending E
	At     time.Time
}

// NewRecent returns a Recent that remembers endings for span at least; 0 or less: none.
func NewRecent[E any](span time.Duration) *Recent[E] { return &Recent[E]{span: span} }

// Remembers reports whether Answered has an effect.
func (t *Recent[E]) Remembers() bool { return t.span > 0 }

// Answered remembers an ending that the store accepted at the given instant.
func (t *Recent[E]) Answered(e E, at time.Time) {
	if !t.Remembers() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == len(t.ring) && t.n < recentMost {
		t.grow()
	}
	if t.n == len(t.ring) {
		t.head = (t.head + 1) % len(t.ring)
		t.n--
	}
	t.ring[(t.head+t.n)%len(t.ring)] = Remembered[E]{e, at}
	t.n++
}

// grow doubles the ring; t.mu is held.
func (t *Recent[E]) grow() {
	ring := make([]Remembered[E], min(max(2*len(t.ring), 64), recentMost))
	for i := range t.n {
		ring[i] = t.ring[(t.head+i)%len(t.ring)]
	}
	t.ring, t.head = ring, 0
}

// Forget drops what was answered before the given instant.
func (t *Recent[E]) Forget(before time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.n > 0 && t.ring[t.head].At.Before(before) {
		t.ring[t.head] = Remembered[E]{}
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
func (t *Recent[E]) replicated(server string, asked time.Time, offset, replica int64, backlog bool) {
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
func (t *Recent[E]) renewed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replicas = nil
}

// Until returns the instant before which answers need not be remembered: they are older than the
// span and on a replica of each server, or too old to be distinguished from repetitions.
func (t *Recent[E]) Until(now time.Time, horizon time.Duration) time.Time {
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

// List returns the endings, oldest first.
func (t *Recent[E]) List() []Remembered[E] {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]Remembered[E], t.n)
	for i := range out {
		out[i] = t.ring[(t.head+i)%len(t.ring)]
	}
	return out
}
