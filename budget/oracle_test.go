package budget

import (
	"maps"
	"math"
	"math/big"
	"slices"
	"time"
)

// The oracle computes what every limit must count from an append-only log of all charges. A bucket
// is replayed from its first charge, in exact fractions, as if every call had cost from the start
// what it costs now.

// mark is one charge in the log of a limit.
type mark struct {
	at     int64 // the shape's time, us
	amount int64 // what the limit must count
	held   bool
	pours  []*pour
}

// pour is what a call took at one instant and how much of it was really charged. A call uses up
// what it took first.
type pour struct{ at, took, real int64 }

// model is one limit for one subject.
type model struct {
	shape Shape
	lease int64
	last  int64 // time of the last write
	lead  int64 // of the shape's time over the clock, in us
	log   []*mark
	pours []*pour
	open  map[string]int64 // concurrency: hold id -> lease end

	// bucket
	busy    int64 // when it was last empty
	heldSum int64
	coarse  bool // it had more dips than the scripts keep
}

func newModel(s Shape, lease time.Duration) *model {
	return &model{shape: s, lease: lease.Microseconds(), open: map[string]int64{}}
}

// clock returns the shape's time, which never goes backwards: if the clock goes back a little, it
// waits; if by more than 10 s, it gets a lead over the clock.
func (m *model) clock(now int64) int64 {
	t, _ := m.own(now)
	return t
}

// own returns the shape's time and its lead.
func (m *model) own(now int64) (t, lead int64) {
	lead = m.lead
	const back = 10_000_000
	switch m.shape.Kind {
	case Fixed, Calendar, Concurrent:
		return max(now, m.last), 0
	case Window:
		slot := (m.shape.Window.Microseconds() + 59) / 60
		if behind := m.last/slot - (now+lead)/slot; m.last > 0 && behind*slot > back {
			lead += (behind - 1) * slot
		}
	default:
		if m.last > 0 && m.last-now-lead > back {
			lead = m.last - now
		}
	}
	return max(now+lead, m.last), lead
}

// counts reports whether a charge at `at` is still in the limit at time t.
func (m *model) counts(at, t int64) bool {
	switch m.shape.Kind {
	case Window:
		slot := (m.shape.Window.Microseconds() + 59) / 60
		return at/slot > t/slot-61
	case ExactWindow:
		return at > t-m.shape.Window.Microseconds()
	case Fixed, Calendar:
		p, zone, _ := m.shape.period()
		return p.start(time.UnixMicro(at).In(zone)).Equal(p.start(time.UnixMicro(t).In(zone)))
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
	case Fixed, Calendar:
		p, zone, _ := m.shape.period()
		return p.next(p.start(time.UnixMicro(at).In(zone))).UnixMicro()
	default:
		return at
	}
}

// keptDips is the minimum number of dips of a bucket that the scripts keep exactly.
const keptDips = 16

// replay returns the amount used of a bucket at t, rounded up; the drained fraction of a unit
// beyond it in 1/per; and how many dips determine what is given back.
func (m *model) replay(t int64) (used int64, fraction *big.Int, dips int) {
	per := big.NewInt(max(1, m.shape.Per.Microseconds()))
	level, then := new(big.Int), int64(0) // in 1/per
	var low []*big.Int
	dip := func(at int64) {
		level.Sub(level, new(big.Int).Mul(big.NewInt(at-then), big.NewInt(m.shape.Refill)))
		if level.Sign() < 0 {
			level.SetInt64(0)
		}
		for len(low) > 0 && low[len(low)-1].Cmp(level) >= 0 {
			low = low[:len(low)-1]
		}
		then = at
	}
	for _, p := range m.pours {
		if p.at != then {
			dip(p.at)
			low = append(low, new(big.Int).Set(level))
		}
		level.Add(level, new(big.Int).Mul(big.NewInt(p.real), per))
	}
	dip(t)
	whole, rest := new(big.Int).DivMod(level, per, new(big.Int))
	if rest.Sign() > 0 {
		return whole.Int64() + 1, rest.Sub(per, rest), len(low)
	}
	return whole.Int64(), rest, len(low)
}

// sums returns used and held at now.
func (m *model) sums(now int64) (used, held int64) {
	t := m.clock(now)
	switch m.shape.Kind {
	case Bucket:
		used, _, _ = m.replay(t)
		return used, min(m.heldSum, used)
	case Concurrent:
		for _, end := range m.open {
			if end > now-dayMicros {
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

// realSum returns how much of the real charges counts at now, rounded up for a bucket.
func (m *model) realSum(now int64) int64 {
	t := m.clock(now)
	if m.shape.Kind == Bucket {
		used, _, _ := m.replay(t)
		return used
	}
	var sum int64
	for _, p := range m.pours {
		if m.counts(p.at, t) {
			sum += p.real
		}
	}
	return sum
}

// touch updates the limit's clock as any write does.
func (m *model) touch(now int64) {
	m.last, m.lead = m.own(now)
	if m.shape.Kind != Bucket {
		return
	}
	used, _, dips := m.replay(m.last)
	m.coarse = m.coarse || dips > keptDips
	if used == 0 {
		m.busy, m.heldSum, m.coarse = m.last, 0, false
	}
}

// asked updates the limit's clock if a caller that only reads its state at now writes it: keep_time in
// lua/whole.lua.
func (m *model) asked(now int64) {
	t, lead := m.own(now)
	late := t-m.last > seenMicros
	switch m.shape.Kind {
	case Fixed, Calendar, Concurrent:
		return
	case Window:
		slot := (m.shape.Window.Microseconds() + 59) / 60
		late = (t/slot-m.last/slot)*slot > seenMicros
	}
	if used, _ := m.sums(now); used > 0 && m.last > 0 && (late || lead != m.lead) {
		m.touch(now)
	}
}

// charge adds n and returns the mark, nil for concurrency.
func (m *model) charge(now int64, id string, n int64, held bool) *mark {
	if m.shape.Kind == Concurrent {
		maps.DeleteFunc(m.open, func(_ string, end int64) bool { return end <= now-dayMicros })
		m.open[id] = now + m.lease
		return nil
	}
	m.touch(now)
	p := &pour{m.last, n, n}
	c := &mark{at: m.last, amount: n, held: held, pours: []*pour{p}}
	if held {
		m.heldSum += n
	}
	m.log, m.pours = append(m.log, c), append(m.pours, p)
	return c
}

// regrade adjusts the marks of one hold to add up to want, newest first; what is missing is charged
// now.
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
		if c.held && c.at >= m.busy {
			m.heldSum -= c.amount
		}
		if m.shape.Kind == Bucket || m.counts(c.at, m.last) {
			c.amount = to
		}
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

// wait returns how long after now a call of n first fits; MaxInt64 means never. It tries the
// instants at which something leaves.
func (m *model) wait(now, n int64) int64 {
	if n > m.shape.Amount {
		return math.MaxInt64
	}
	_, lead := m.own(now)
	defer func(lead int64) { m.lead = lead }(m.lead)
	m.lead = lead
	switch m.shape.Kind {
	case Bucket:
		if m.shape.Refill == 0 {
			return math.MaxInt64
		}
		used, fraction, _ := m.replay(m.clock(now))
		need := big.NewInt(used + n - m.shape.Amount)
		need.Mul(need, big.NewInt(m.shape.Per.Microseconds()))
		need.Sub(need, fraction)
		refill := big.NewInt(m.shape.Refill)
		need.Add(need, refill).Sub(need, big.NewInt(1)).Div(need, refill)
		return m.clock(now) - lead + need.Int64() - now
	case Concurrent:
		first := int64(math.MaxInt64)
		for _, end := range m.open {
			if end > now-dayMicros {
				first = min(first, end)
			}
		}
		switch {
		case first == math.MaxInt64:
			return first
		case first <= now: // it is swept soon
			return sweptSoon
		default:
			return first - now
		}
	case Fixed, Calendar:
		return m.leaves(m.clock(now)) - now
	}
	var leave []int64
	for _, c := range m.log {
		leave = append(leave, m.leaves(c.at)-lead)
	}
	slices.Sort(leave)
	for _, t := range leave {
		if used, _ := m.sums(t); t > now && used+n <= m.shape.Amount {
			return t - now
		}
	}
	return math.MaxInt64
}
