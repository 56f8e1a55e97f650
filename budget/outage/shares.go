package outage

import (
	"sync"
	"time"
)

// Shares track, by limit, what this process has admitted while the store was unreachable. They are safe for
// concurrent use.
type Shares struct {
	start time.Time

	mu      sync.Mutex
	uses    map[string]*use // by Ask.Key
	earlier map[string][]pastUse
	seq     int
}

// NewShares returns Shares that count nothing.
func NewShares() *Shares {
	return &Shares{start: time.Now(), uses: map[string]*use{}, earlier: map[string][]pastUse{}}
}

// pastUse is what an earlier process admitted and the store does not have yet. It is in no use,
// because the span is known only with the limit.
type pastUse struct {
	at ShareTime // below 0
	n  int64
}

// use is the count of a limit's share.
type use struct {
	span time.Duration
	used Share
	open int64 // calls under way, for limits on concurrency
}

// Ask is what a call needs of one limit.
type Ask struct {
	Key       string        // of the limit
	Span      time.Duration // in which the limit counts
	Open      bool          // it counts calls under way
	Amount    int64
	Most      int64 // this process's share
	Unlimited bool  // count only
}

// Taken is what a call has taken from one share.
type Taken struct {
	use  *use
	open bool
	slot int64
	n    int64
}

// Refused says which share was too small, of several the one that frees last.
type Refused struct {
	Ask  int // its index
	Used int64
	Wait time.Duration // until the share may have room
}

// mostWait bounds the wait in a refusal, because the store may be back at any moment.
const mostWait = 5 * time.Second

// Take takes a call's amounts from all its shares or from none.
func (s *Shares) Take(asks []Ask) ([]Taken, *Refused) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Since(s.start)
	s.prune(at)
	var refused *Refused
	taken := make([]Taken, len(asks))
	for i, a := range asks {
		u := s.of(a.Key, a.Span)
		taken[i] = Taken{use: u, open: a.Open, n: a.Amount}
		used := u.count(a.Open, at)
		if a.Unlimited || used+a.Amount <= a.Most {
			continue
		}
		wait := min(max(u.used.Frees(at, u.span), time.Second), mostWait)
		if refused == nil || wait > refused.Wait {
			refused = &Refused{Ask: i, Used: used, Wait: wait}
		}
	}
	if refused != nil {
		return nil, refused
	}
	for i := range taken {
		t := &taken[i]
		if t.open {
			t.use.open++
		} else {
			t.slot = t.use.used.Take(at, t.use.span, t.n)
		}
	}
	return taken, nil
}

// count returns what the limit's share counts now.
func (u *use) count(open bool, at ShareTime) int64 {
	if open {
		return u.open
	}
	return u.used.Used(at, u.span)
}

// of returns the count of a limit's share; s.mu is held.
func (s *Shares) of(key string, span time.Duration) *use {
	u := s.uses[key]
	if u == nil {
		u = &use{span: span}
		s.uses[key] = u
		for _, e := range s.earlier[key] {
			u.used.Take(e.at, u.span, e.n)
		}
		delete(s.earlier, key)
	}
	return u
}

// Before counts what an earlier process admitted, as long before now as ago, so that a restart while the store
// is unreachable does not grant a new share. It must precede Take.
func (s *Shares) Before(key string, ago time.Duration, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.earlier[key] = append(s.earlier[key], pastUse{min(-ago, 0), n})
}

// pruneEvery is the number of admissions between searches for shares that count nothing any more.
const pruneEvery = 1000

// prune drops shares that count nothing; s.mu is held.
func (s *Shares) prune(at ShareTime) {
	s.seq++
	if s.seq%pruneEvery != 0 {
		return
	}
	for key, u := range s.uses {
		if u.open == 0 && u.used.Used(at, u.span) == 0 {
			delete(s.uses, key)
		}
	}
}

// Give returns what a call does not use. stays is what it did use of each share, nil: nothing.
func (s *Shares) Give(taken []Taken, stays []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range taken {
		switch {
		case t.open:
			t.use.open -= t.n
		case stays == nil:
			t.use.used.Give(t.slot, t.n)
		case stays[i] < t.n:
			t.use.used.Give(t.slot, t.n-stays[i])
		}
	}
}

// Used returns what a limit's share counts now.
func (s *Shares) Used(key string, span time.Duration) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(key, span).used.Used(time.Since(s.start), span)
}

// Open returns how many calls are under way, by a limit on them.
func (s *Shares) Open(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u := s.uses[key]; u != nil {
		return u.open
	}
	return 0
}
