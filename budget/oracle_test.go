package budget

import (
	"maps"
	"math"
	"math/big"
	"slices"
	"time"
)

// The oracle says what every limit must count, from a plain log of all charges
// that nothing is ever removed from. Only the bucket keeps a state, in exact
// fractions.

// mark is one charge in the log of a limit.
type mark struct {
	at     int64 // the shape's time, us
	amount int64 // what the limit must count
	held   bool
	place  place // bucket only
	pours  []*pour
}

// pour is what a call took at one instant, and what of it it was really charged:
// the oldest first, as a call uses up what it took first.
type pour struct{ at, took, real int64 }

// place is a bucket's counts as of right after a charge.
type place struct {
	busy, volume, given, used int64
	fraction                  *big.Int
}

// model is one limit for one subject.
type model struct {
	shape Shape
	lease int64
	last  int64 // time of the last write
	log   []*mark
	pours []*pour
	open  map[string]int64 // concurrency: hold id -> lease end

	// bucket
	used, volume, given, busy int64
	fraction                  *big.Int // of per, drained beyond used
	heldSum                   int64
}

func newModel(s Shape, lease time.Duration) *model {
	return &model{shape: s, lease: lease.Microseconds(), open: map[string]int64{}, fraction: new(big.Int)}
}

func (m *model) clock(now int64) int64 { return max(now, m.last) }

// counts reports whether a charge at `at` is still in the limit at time t.
func (m *model) counts(at, t int64) bool {
	switch m.shape.Kind {
	case Window:
		slot := (m.shape.Window.Microseconds() + 59) / 60
		return at/slot > t/slot-61
	case ExactWindow:
		return at > t-m.shape.Window.Microseconds()
	case Calendar:
		return periodStart(m.shape.Calendar, time.UnixMicro(at).In(m.shape.Location)).
			Equal(periodStart(m.shape.Calendar, time.UnixMicro(t).In(m.shape.Location)))
	default:
		return true
	}
}

// leaves returns when a charge at `at` no longer counts.
func (m *model) leaves(at int64) int64 {
	switch m.shape.Kind {
	case Window:
		slot := (m.shape.Window.Microseconds() + 59) / 60
		return (at/slot + 61) * slot
	case ExactWindow:
		return at + m.shape.Window.Microseconds()
	case Calendar:
		start := periodStart(m.shape.Calendar, time.UnixMicro(at).In(m.shape.Location))
		return nextPeriod(m.shape.Calendar, start).UnixMicro()
	default:
		return at
	}
}

// drain brings the bucket to time t.
func (m *model) drain(t int64) {
	elapsed := t - m.last
	if m.used > 0 && m.shape.Refill > 0 && elapsed > 0 {
		per := big.NewInt(m.shape.Per.Microseconds())
		x := new(big.Int).Mul(big.NewInt(elapsed), big.NewInt(m.shape.Refill))
		x.Add(x, m.fraction)
		whole, rest := new(big.Int).DivMod(x, per, new(big.Int))
		if whole.Cmp(big.NewInt(m.used)) >= 0 {
			m.used = 0
		} else {
			m.used -= whole.Int64()
			m.fraction = rest
		}
	}
	m.last = t
	if m.used == 0 {
		m.fraction, m.volume, m.given, m.heldSum, m.busy = new(big.Int), 0, 0, 0, t
	}
}

// at returns a copy of a bucket as it is at now; other shapes need none.
func (m *model) at(now int64) *model {
	c := *m
	c.fraction = new(big.Int).Set(m.fraction)
	c.drain(c.clock(now))
	return &c
}

// sums returns used and held at now.
func (m *model) sums(now int64) (used, held int64) {
	t := m.clock(now)
	switch m.shape.Kind {
	case Bucket:
		b := m.at(now)
		return b.used, min(b.heldSum, b.used)
	case Concurrent:
		for _, end := range m.open {
			if end > now {
				used++
			}
		}
		return used, used
	}
	for _, c := range m.log {
		if m.counts(c.at, t) {
			used += c.amount
			if c.held {
				held += c.amount
			}
		}
	}
	return used, held
}

// real returns the most that the limit may admit to have been charged at now:
// for windows the sum inside, for a bucket the level if every call had been
// charged its real cost from the start, rounded up.
func (m *model) realSum(now int64) int64 {
	t := m.clock(now)
	if m.shape.Kind != Bucket {
		var sum int64
		for _, p := range m.pours {
			if m.counts(p.at, t) {
				sum += p.real
			}
		}
		return sum
	}
	per := big.NewInt(max(1, m.shape.Per.Microseconds()))
	level, then := new(big.Int), int64(0) // in 1/per
	drainTo := func(at int64) {
		level.Sub(level, new(big.Int).Mul(big.NewInt(at-then), big.NewInt(m.shape.Refill)))
		if level.Sign() < 0 {
			level.SetInt64(0)
		}
		then = at
	}
	for _, p := range m.pours {
		drainTo(p.at)
		level.Add(level, new(big.Int).Mul(big.NewInt(p.real), per))
	}
	drainTo(t)
	whole, rest := new(big.Int).DivMod(level, per, new(big.Int))
	if rest.Sign() > 0 {
		return whole.Int64() + 1
	}
	return whole.Int64()
}

// touch is what any write does to the limit's clock.
func (m *model) touch(now int64) {
	t := m.clock(now)
	if m.shape.Kind == Bucket {
		m.drain(t)
	}
	m.last = t
}

// charge adds n and returns the mark, nil for concurrency.
func (m *model) charge(now int64, id string, n int64, held bool) *mark {
	if m.shape.Kind == Concurrent {
		maps.DeleteFunc(m.open, func(_ string, end int64) bool { return end <= now })
		m.open[id] = now + m.lease
		return nil
	}
	m.touch(now)
	p := &pour{m.last, n, n}
	c := &mark{at: m.last, amount: n, held: held, pours: []*pour{p}}
	if m.shape.Kind == Bucket {
		m.used, m.volume = m.used+n, m.volume+n
		if held {
			m.heldSum += n
		}
		c.place = place{m.busy, m.volume, m.given, m.used, new(big.Int).Set(m.fraction)}
	}
	m.log, m.pours = append(m.log, c), append(m.pours, p)
	return c
}

// regrade lets the marks of one hold amount to want, newest first; what is
// missing is charged now.
func (m *model) regrade(now int64, id string, marks []*mark, had, want int64) *mark {
	if m.shape.Kind == Concurrent {
		delete(m.open, id)
		return nil
	}
	m.touch(now)
	back := max(had-want, 0)
	for _, c := range slices.Backward(marks) {
		to := max(c.amount-back, 0)
		back -= c.amount - to
		c.amount -= m.giveBack(c, c.amount-to)
		c.held = false
	}
	left := min(want, had) // what is missing is charged now
	for _, c := range marks {
		for _, p := range c.pours {
			p.real = min(p.took, left)
			left -= p.real
		}
	}
	if want > had {
		return m.charge(now, id, want-had, false)
	}
	return nil
}

func (m *model) giveBack(c *mark, n int64) int64 {
	if m.shape.Kind != Bucket {
		if m.counts(c.at, m.last) {
			return n
		}
		return 0
	}
	p := c.place
	if p.busy != m.busy {
		return 0
	}
	if c.held {
		m.heldSum = max(0, m.heldSum-c.amount)
	}
	drained := m.volume - m.given - m.used
	ahead := p.volume - m.given - drained
	if m.fraction.Sign() > 0 {
		ahead--
	}
	alone := c.amount - (drained - (p.volume - p.given - p.used))
	if m.fraction.Cmp(p.fraction) != 0 {
		alone--
	}
	left := max(ahead, alone)
	n = max(0, min(n, left, m.used))
	m.used, m.given = m.used-n, m.given+n
	if m.used == 0 {
		m.fraction.SetInt64(0)
	}
	return n
}

// wait returns how long after now a call of n first fits, never is MaxInt64. It
// tries the instants at which something leaves.
func (m *model) wait(now, n int64) int64 {
	if n > m.shape.Amount {
		return math.MaxInt64
	}
	switch m.shape.Kind {
	case Bucket:
		b := m.at(now)
		if m.shape.Refill == 0 {
			return math.MaxInt64
		}
		need := big.NewInt(b.used + n - m.shape.Amount)
		need.Mul(need, big.NewInt(m.shape.Per.Microseconds()))
		need.Sub(need, b.fraction)
		refill := big.NewInt(m.shape.Refill)
		need.Add(need, refill).Sub(need, big.NewInt(1)).Div(need, refill)
		return b.last + need.Int64() - now
	case Concurrent:
		first := int64(math.MaxInt64)
		for _, end := range m.open {
			if end > now {
				first = min(first, end-now)
			}
		}
		return first
	case Calendar:
		return m.leaves(m.clock(now)) - now
	}
	var leave []int64
	for _, c := range m.log {
		leave = append(leave, m.leaves(c.at))
	}
	slices.Sort(leave)
	for _, t := range leave {
		if used, _ := m.sums(t); t > now && used+n <= m.shape.Amount {
			return t - now
		}
	}
	return math.MaxInt64
}
