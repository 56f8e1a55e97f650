package budget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget/journal"
)

// without is what this process has let through while the store was away.
type without struct {
	start time.Time

	mu      sync.Mutex
	uses    map[string]*use // by org and state
	earlier map[string][]pastUse
	seq     int
}

// pastUse is what a process before this one let through and the store does not
// have yet. It is in no use: their span is known when their limit is.
type pastUse struct {
	at ShareTime // below 0
	n  int64
}

// use is what a limit's share counts.
type use struct {
	span time.Duration
	used Share
	open int64 // calls under way, for limits on concurrency
}

// taken is what a call has of one share.
type taken struct {
	use    *use
	metric Metric
	slot   int64
	n      int64
}

// AdmitShare admits a call without asking the store, if it fits into percent of
// every limit that concerns it: as much as this process lets through by itself
// in any window, calendar period, or time a bucket takes to fill. What other
// processes let through, and what the store counts, is not known. Else the
// error is *ExceededError, whose Binding tells of the share; it has no Statuses.
//
// The admission is in the journal, on disk, when AdmitShare returns: with the
// hold's end, or with all of it if this process dies, the call is charged to
// its limits when the store is back. End, Settle and Void take the hold as any
// other. Spend caps are shared out and charged like the limits.
func (s *Store) AdmitShare(ctx context.Context, limits []Limit, c Call, most Amounts, percent int, caps ...Cap) (*Hold, error) {
	h, err := s.unasked(limits, c, most, caps)
	if err != nil {
		return nil, err
	}
	if err := s.takeShares(h, percent); err != nil {
		return nil, err
	}
	for i, part := range h.caps {
		if err := s.takeShares(part, percent); err != nil {
			s.giveShares(Settle{Hold: h})
			return nil, s.cappedBy(h, caps[i], err, most)
		}
	}
	return h, s.admit(ctx, h)
}

// unasked is a hold that the store is not asked for now.
func (s *Store) unasked(limits []Limit, c Call, most Amounts, caps []Cap) (*Hold, error) {
	h, err := s.prepare(limits, c, most, most)
	if err != nil {
		return nil, err
	}
	h.caps, err = s.uncapped(caps, c, most)
	return h, err
}

// AdmitAll is AdmitShare without shares: every call is admitted, and charged
// when the store is back.
func (s *Store) AdmitAll(ctx context.Context, limits []Limit, c Call, most Amounts, caps ...Cap) (*Hold, error) {
	h, err := s.unasked(limits, c, most, caps)
	if err != nil {
		return nil, err
	}
	return h, s.admit(ctx, h)
}

// admit journals an admission.
func (s *Store) admit(ctx context.Context, h *Hold) error {
	h.without, h.At = true, s.now()
	for _, part := range h.caps {
		part.At = h.At
	}
	k := walRecordOf(Settle{Hold: h})
	k.Open = true
	text, err := json.Marshal(k)
	if err == nil && !s.opts.Journal.Durable() {
		err = errors.New("there is no journal on disk")
	}
	if err == nil {
		s.later.begin(k.id())
		err = s.opts.Journal.PutAll(ctx, []journal.Record{{ID: k.id(), Data: text}})
	}
	if err != nil { // it may have been written all the same
		s.giveShares(Settle{Hold: h})
		s.opts.Journal.Delete(k.id())
		s.later.close(k.id())
		return fmt.Errorf("%w: admission not kept: %w", ErrUnavailable, err)
	}
	return nil
}

// takeShares takes a call's amounts from all its shares or from none.
func (s *Store) takeShares(h *Hold, percent int) error {
	w := &s.without
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Since(w.start)
	w.prune(at)
	e := &ExceededError{}
	refused := false
	uses := make([]*use, len(h.limits))
	for i, l := range h.limits {
		u := w.of(h.Call.Org+" "+h.states[i].Key, l.Shape)
		uses[i] = u
		used, n, most := u.count(l.Metric, at), l.Metric.amountOf(h.Max), ShareOf(l.AmountFor(h.Call, s.now()), percent)
		closed := s.closedUntil(h.Call.Org, &l, s.now())
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

// mostWait bounds the wait that a refusal names: the store may be back any
// moment.
const mostWait = 5 * time.Second

// count is what the limit's share counts now.
func (u *use) count(m Metric, at ShareTime) int64 {
	if m == Concurrency {
		return u.open
	}
	return u.used.Used(at, u.span)
}

// of returns what a limit's share counts; w.mu is held.
func (w *without) of(key string, shape Shape) *use {
	u := w.uses[key]
	if u == nil {
		u = &use{span: shape.span()}
		w.uses[key] = u
		for _, e := range w.earlier[key] {
			u.used.Take(e.at, u.span, e.n)
		}
		delete(w.earlier, key)
	}
	return u
}

// fill counts what the journal has of processes before this one, so that a restart
// while the store is away gives no new share.
func (w *without) fill(records []journal.Record, now time.Time) {
	w.earlier = map[string][]pastUse{}
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
					w.earlier[key] = append(w.earlier[key], pastUse{at, n})
				}
			}
		}
	}
}

// longest is how long a calendar period can be, in any zone.
var longest = map[string]time.Duration{
	"minute": time.Minute, "hour": 2 * time.Hour, "day": 26 * time.Hour, "week": (7*24 + 2) * time.Hour, "month": (31*24 + 2) * time.Hour,
}

// span is the time in which a limit's amount comes back.
func (s Shape) span() time.Duration {
	switch s.Kind {
	case Window, ExactWindow:
		return s.Window
	case Calendar:
		return longest[s.Calendar]
	case Bucket:
		if s.Refill > 0 {
			full := float64(s.Amount) / float64(s.Refill) * float64(s.Per) // a time, no money
			return time.Duration(min(full, float64(maxWindow)))
		}
		return maxWindow
	default: // calls under way leave when they end
		return time.Second
	}
}

// pruneEvery is how many admissions pass between looks for shares that count
// nothing any more.
const pruneEvery = 1000

// prune forgets shares that count nothing; w.mu is held.
func (w *without) prune(at ShareTime) {
	if w.seq++; w.seq%pruneEvery != 0 {
		return
	}
	for key, u := range w.uses {
		if u.open == 0 && u.used.Used(at, u.span) == 0 {
			delete(w.uses, key)
		}
	}
}

// giveShares gives back to its shares, and to those of caps, what a call does
// not use.
func (s *Store) giveShares(e Settle) {
	s.without.mu.Lock()
	defer s.without.mu.Unlock()
	e.giveShares()
	for _, part := range e.Hold.caps {
		Settle{part, e.Settlement}.giveShares()
	}
}

// giveShares needs the lock of the shares.
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

// answered notes that the store took, or lists, the end of a call that it was asked
// for at an instant, or that it may have it.
func (s *Store) answered(e Settle, began time.Time, err error) {
	s.tail.answered(e, err)
	if e.Hold.without && e.Hold.asked.IsZero() && err != nil {
		e.Hold.asked = began
	}
	if e.Hold.without && (err == nil || errors.Is(err, ErrTooOld)) {
		s.giveShares(e)
		id := walRecordOf(e).id()
		s.opts.Journal.Delete(id)
		s.later.close(id)
	}
}
