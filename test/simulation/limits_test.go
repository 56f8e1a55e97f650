package simulation

import (
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
)

// rate is a bucket's refill from an instant of the store's clock on.
type rate struct {
	limit  string
	from   time.Time
	refill int64
	per    time.Duration
}

// admitted checks the limits of a call right after it was let in, by what is known to
// have been let in before.
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

// spared reports whether the bound of a limit is not owed: what the store has forgotten
// it cannot count.
func (w *world) spared(l budget.Limit, c *call) bool {
	if w.lost.IsZero() {
		return false
	}
	return c.at.Sub(w.lost) < span(l)
}

// span is how far a limit looks back.
func span(l budget.Limit) time.Duration {
	if l.Shape.Kind == budget.Window || l.Shape.Kind == budget.ExactWindow {
		return l.Shape.Window
	}
	return 400 * 24 * time.Hour
}

// usedOf is the most that a limit counts now for what c counts towards.
func (w *world) usedOf(l budget.Limit, c *call) int64 {
	switch l.Shape.Kind {
	case budget.Window, budget.ExactWindow:
		return w.sum(l, c, c.at.Add(-l.Shape.Window))
	case budget.Calendar:
		return w.sum(l, c, c.at.Truncate(time.Hour).Add(-1)) // periods are hours in UTC
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

// charge is what a call certainly counts of a metric.
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

// sum is what was let in after an instant.
func (w *world) sum(l budget.Limit, c *call, after time.Time) (n int64) {
	for _, other := range w.calls {
		if other.held && other.at.After(after) && !other.at.After(c.at) && together(l, c, other) {
			n += other.charge(l.Metric)
		}
	}
	return n
}

// atOnce is how many calls are at work.
func (w *world) atOnce(l budget.Limit, c *call) (n int64) {
	for _, other := range w.calls {
		if other.held && other.live && !other.apart && !other.p.isDead() && !w.forgot(other) && together(l, c, other) {
			n++
		}
	}
	return n
}

// drawn is the most that any stretch of time until now has taken from a bucket, less
// what flowed in meanwhile.
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

// lateAtMost is how long a command of a call may be under way, and bring a limit along that
// is not in force any more.
const lateAtMost = 30 * time.Second

// refilled is what flows into a bucket between two instants.
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
