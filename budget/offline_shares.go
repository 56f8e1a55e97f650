package budget

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget/journal"
)

// shares tracks, by limit, what this process has admitted while the store was unreachable.
type shares struct {
	clock *clock
	loss  *DataLoss
	start time.Time

	mu      sync.Mutex
	uses    map[string]*use // by org and state
	earlier map[string][]pastUse
	seq     int
}

func newShares(c *clock, loss *DataLoss) *shares {
	return &shares{clock: c, loss: loss, start: time.Now(), uses: map[string]*use{}}
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

// taken is what a call has taken from one share.
type taken struct {
	use    *use
	metric Metric
	slot   int64
	n      int64
}

// take takes a call's amounts from all its shares or from none.
func (s *shares) take(h *Hold, percent int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Since(s.start)
	s.prune(at)
	e := &ExceededError{}
	refused := false
	uses := make([]*use, len(h.limits))
	for i, l := range h.limits {
		u := s.of(h.Call.Org+" "+h.states[i].Key, l.Shape)
		uses[i] = u
		used, n, most := u.count(l.Metric, at), l.Metric.amountOf(h.Max), ShareOf(l.AmountFor(h.Call, s.clock.now()), percent)
		closed := s.loss.closedUntil(h.Call.Place(), &l, s.clock.now())
		if !closed.IsZero() {
			most = 0
		}
		if l.Mode == Shadow || used+n <= most {
			continue
		}
		wait := min(max(u.used.Frees(at, u.span), time.Second), mostWait)
		if !refused || wait > e.Binding.Wait {
			refused, e.Requested = true, n
			e.Binding = Status{
				LimitID: l.ID, Subject: l.Subject, Metric: l.Metric, Mode: l.Mode, Used: used, Amount: most,
				Remaining: max(most-used, 0), Wait: wait, Refused: true, ClosedUntil: closed,
			}
		}
	}
	if refused {
		return e
	}
	for i, l := range h.limits {
		t := taken{use: uses[i], metric: l.Metric, n: l.Metric.amountOf(h.Max)}
		if l.Metric == Concurrency {
			t.use.open++
		} else {
			t.slot = t.use.used.Take(at, t.use.span, t.n)
		}
		h.taken = append(h.taken, t)
	}
	return nil
}

// mostWait bounds the wait in a refusal, because the store may be back at any moment.
const mostWait = 5 * time.Second

// count returns what the limit's share counts now.
func (u *use) count(m Metric, at ShareTime) int64 {
	if m == Concurrency {
		return u.open
	}
	return u.used.Used(at, u.span)
}

// of returns the count of a limit's share; s.mu is held.
func (s *shares) of(key string, shape Shape) *use {
	u := s.uses[key]
	if u == nil {
		u = &use{span: shape.Span()}
		s.uses[key] = u
		for _, e := range s.earlier[key] {
			u.used.Take(e.at, u.span, e.n)
		}
		delete(s.earlier, key)
	}
	return u
}

// fill counts what earlier processes left in the journal, so that a restart while the store is
// unreachable does not grant a new share.
func (s *shares) fill(records []journal.Record, now time.Time) {
	s.earlier = map[string][]pastUse{}
	for _, r := range records {
		var k walRecord
		if json.Unmarshal(r.Data, &k) != nil {
			continue // Replay reports it
		}
		e := k.ending()
		if e.Settlement == nil {
			continue
		}
		for _, part := range append([]walRecord{k}, k.Caps...) {
			if !part.Share {
				continue
			}
			for _, st := range part.States {
				at, n := min(part.At.Sub(now), 0), st.Metric.settled(e.Settlement.Actual)
				if n > 0 {
					key := part.Call.Org + " " + st.Key
					s.earlier[key] = append(s.earlier[key], pastUse{at, n})
				}
			}
		}
	}
}

// pruneEvery is the number of admissions between searches for shares that count nothing any more.
const pruneEvery = 1000

// prune drops shares that count nothing; s.mu is held.
func (s *shares) prune(at ShareTime) {
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

// give returns what a call does not use to its shares, including those of caps.
func (s *shares) give(e Settle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.giveShares()
	for _, part := range e.Hold.caps {
		Settle{part, e.Settlement}.giveShares()
	}
}

// giveShares requires the lock of the shares.
func (e Settle) giveShares() {
	for _, t := range e.Hold.taken {
		stays := int64(0)
		if e.Settlement != nil {
			stays = t.metric.settled(e.Settlement.Actual)
		}
		if t.metric == Concurrency {
			t.use.open -= t.n
		} else if stays < t.n {
			t.use.used.Give(t.slot, t.n-stays)
		}
	}
	e.Hold.taken = nil
}

// used returns what a share counts now.
func (s *shares) used(key string, shape Shape) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Since(s.start)
	return s.of(key, shape).count(Requests, at)
}
