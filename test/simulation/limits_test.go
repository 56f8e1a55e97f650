package simulation

import (
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
)

// rate is a bucket's refill from a time (of the store's clock) on.
type rate struct {
	limit  string
	from   time.Time
	refill int64
	per    time.Duration
}

// admitted checks the limits of a call right after its admission, against the calls known to
// have been admitted before.
func (w *world) admitted(c *call) {
	w.mu.Lock()
	var over string
	var used, amount int64
	for _, l := range c.limits {
		if l.Mode == budget.Shadow {
			continue
		}
		most := l.AmountFor(c.Call, c.at)
		if n := w.usedOf(l, c); n > most && !w.spared(l, c) {
			over, used, amount = l.ID, n, most
			break
		}
	}
	w.mu.Unlock()
	if over != "" {
		w.fail("no limit over its amount", "limit %s of %s let call %s in: %d of %d", over, c.org.id, c.ID[20:], used, amount)
	}
}

// spared reports whether a limit may be exceeded, because the store has lost what it had
// counted.
func (w *world) spared(l budget.Limit, c *call) bool {
	if w.lost.IsZero() {
		return false
	}
	return c.at.Sub(w.lost) < span(l)
}

// span returns the period that a limit covers.
func span(l budget.Limit) time.Duration {
	if l.Shape.Kind == budget.Window || l.Shape.Kind == budget.ExactWindow {
		return l.Shape.Window
	}
	return 400 * 24 * time.Hour
}

// usedOf returns the most that a limit counts now for the subject of c.
func (w *world) usedOf(l budget.Limit, c *call) int64 {
	switch l.Shape.Kind {
	case budget.Window, budget.ExactWindow:
		return w.sum(l, c, c.at.Add(-l.Shape.Window))
	case budget.Calendar:
		return w.sum(l, c, c.at.Truncate(time.Hour).Add(-1)) // periods are UTC hours
	case budget.Bucket:
		return w.drawn(l, c)
	default:
		return w.atOnce(l, c)
	}
}

// together reports whether two calls count towards the same limit.
func together(l budget.Limit, a, b *call) bool {
	if a.org != b.org || l.Subject == budget.User && a.User != b.User {
		return false
	}
	return slices.ContainsFunc(b.limits, func(m budget.Limit) bool { return m.ID == l.ID })
}

// charge returns what a call certainly counts of a metric.
func (c *call) charge(m budget.Metric) int64 {
	switch {
	case !c.held || c.void && c.ended:
		return 0
	case m == budget.Requests:
		return 1
	case c.ended:
		return min(c.actual, c.max)
	}
	return c.max
}

// sum adds up what was admitted after a time.
func (w *world) sum(l budget.Limit, c *call, after time.Time) (n int64) {
	for _, other := range w.calls {
		if other.held && other.at.After(after) && !other.at.After(c.at) && together(l, c, other) {
			n += other.charge(l.Metric)
		}
	}
	return n
}

// atOnce returns the number of calls in progress.
func (w *world) atOnce(l budget.Limit, c *call) (n int64) {
	for _, other := range w.calls {
		if other.held && other.live && !other.apart && !other.p.isDead() && !w.forgot(other) && together(l, c, other) {
			n++
		}
	}
	return n
}

// drawn returns the most that was taken from a bucket in any period until now, minus the refill
// in that period.
func (w *world) drawn(l budget.Limit, c *call) int64 {
	var worst, taken int64
	for _, other := range slices.Backward(w.calls) {
		if !other.held || other.at.After(c.at) || !together(l, c, other) {
			continue
		}
		if !w.lost.IsZero() && other.at.Before(w.lost) {
			break
		}
		taken += other.charge(l.Metric)
		worst = max(worst, taken-w.refilled(l, other.at, c.at))
	}
	return worst
}

// lateAtMost is how long a command may be in transit and carry a limit that is no longer in
// effect.
const lateAtMost = 30 * time.Second

// refilled returns a bucket's refill between two times.
func (w *world) refilled(l budget.Limit, from, to time.Time) int64 {
	var flow float64
	end, slack := to, time.Duration(0)
	for _, r := range slices.Backward(w.rates) {
		if r.limit != l.ID || !r.from.Before(end) {
			continue
		}
		begin := r.from
		if begin.Before(from) {
			begin = from
		}
		flow += float64(r.refill) * (end.Sub(begin) + slack).Seconds() / r.per.Seconds()
		if end, slack = begin, lateAtMost; !end.After(from) {
			break
		}
	}
	return int64(flow) + 1
}
