package queue

import (
	"math"
	"slices"
)

// Constants of lua/quota.lua: slots of 100 ms, and millionths.
const (
	quotaSlot  = 100_000
	quotaSlots = 606
	quotaSpan  = quotaSlot * quotaSlots
	micro      = 1_000_000
	// quotaLife is how long an unused quota is remembered, in us.
	quotaLife = 120 * micro
)

// virtualQuota is lua/quota.lua for a provider that announces no limits and refuses
// nothing, so the quota is the configured one.
type virtualQuota struct {
	metrics  []*virtualMetric
	life     int64 // us for which it is remembered while unused
	known    bool  // it has been used
	last     int64 // us
	slot     int64
	now      int64
	blocked  int64 // until, us
	till     int64 // jobs wait until, us
	share    int64 // share of the waiting jobs, per mille
	head     int64 // tokens of the first waiting job
	waiting  bool
	expected int64 // set by acquire: the next till; 0: none
	small    int64 // set by acquire: tokens of the first refused job that is not large
	res      *virtualReserve
}

type virtualMetric struct {
	tokens      bool
	limit, cap  int64
	sum, level  int64 // level in millionths; negative: debt
	draw        int64
	aside       float64
	live        int64
	ring, draws [quotaSlots]int64
	added       int64 // since open
	drawn       int64
}

func newVirtualQuota(p Pool, burst int) *virtualQuota {
	q := &virtualQuota{life: quotaLife}
	q.metric(false, p.RPM, burst)
	q.metric(true, p.TPM, burst)
	return q
}

// metric returns a metric, as new if it has another limit; without a limit it binds no call. Requests
// come before tokens.
func (q *virtualQuota) metric(tokens bool, limit int64, burst int) *virtualMetric {
	i := slices.IndexFunc(q.metrics, func(m *virtualMetric) bool { return m.tokens == tokens })
	if i >= 0 && (limit == 0 || limit == q.metrics[i].limit) {
		return q.metrics[i]
	}
	full := max(limit*int64(burst)/1000, 1) * micro
	m := &virtualMetric{tokens: tokens, limit: limit, cap: full, level: full}
	switch {
	case i >= 0:
		q.metrics[i] = m
	case limit > 0 && tokens:
		q.metrics = append(q.metrics, m)
	case limit > 0:
		q.metrics = slices.Insert(q.metrics, 0, m)
	}
	return m
}

// cost returns what a call with this many tokens takes of the metric.
func (m *virtualMetric) cost(tokens int64) int64 {
	if !m.tokens {
		return 1
	}
	return min(tokens, m.limit)
}

// book adds tokens or requests to the bucket. An amount larger than the bucket is recorded
// only as a draw.
func (m *virtualMetric) book(n int64) {
	n *= micro
	switch {
	case n <= m.cap && n >= -m.cap:
		m.move(n)
		return
	case n < 0:
		m.level = min(m.level, 0)
	}
	m.drawn -= n
}

func (m *virtualMetric) move(delta int64) {
	before := max(m.level, 0)
	m.level = min(m.level+delta, m.cap)
	m.drawn += before - max(m.level, 0)
}

// rate returns the refill rate in millionths per microsecond, rounded in the same float
// steps as the script.
func (m *virtualMetric) rate() float64 {
	free := float64(m.limit*micro - max(m.draw+m.drawn, 0))
	slow := float64(m.limit*micro) / 100
	return float64(float64(max(free, slow)/quotaSpan)*1000) / 1000
}

func (m *virtualMetric) forget() {
	m.sum = 0
	m.level = m.cap
	m.draw = 0
	m.ring, m.draws = [quotaSlots]int64{}, [quotaSlots]int64{}
}

// open advances the quota to now.
func (q *virtualQuota) open(now int64) {
	if q.known && now-q.last >= q.life+max(q.blocked-q.last, 0) {
		q.known = false
		q.blocked = 0
		q.till = 0
		q.res = nil
		for _, m := range q.metrics {
			m.forget()
			m.aside, m.live = 0, 0
		}
	}
	q.now = now
	if q.known {
		q.now = max(now, q.last)
	}
	from := q.slot
	q.slot = q.now / quotaSlot
	q.waiting = q.till > q.now
	q.expected = 0
	q.small = 0
	switch {
	case !q.known:
	case q.slot-from >= quotaSlots:
		q.till, q.res = 0, nil
		for _, m := range q.metrics {
			m.forget()
		}
	default:
		q.expire(from+1, q.slot)
		q.fill(q.now - q.last)
	}
}

func (q *virtualQuota) expire(from, to int64) {
	for s := from; s <= to; s++ {
		i := s % quotaSlots
		for _, m := range q.metrics {
			m.sum, m.draw = m.sum-m.ring[i], m.draw-m.draws[i]
			m.ring[i], m.draws[i] = 0, 0
		}
	}
}

func (q *virtualQuota) fill(took int64) {
	for _, m := range q.metrics {
		inflow := math.Floor(float64(took) * m.rate())
		m.move(int64(inflow))
		if !q.waiting {
			m.aside = 0
			continue
		}
		head := int64(micro)
		if m.tokens {
			head = q.head * micro
		}
		most := max(float64(m.cap*q.share)/1000, float64(head))
		m.aside = min(m.aside+float64(inflow*float64(q.share))/1000, float64(m.cap), most)
	}
}

// ringWait returns the time until `need` of a metric's sum has left the window.
func (q *virtualQuota) ringWait(m *virtualMetric, need int64) int64 {
	for s := q.slot - quotaSlots + 1; s <= q.slot; s++ {
		need -= m.ring[s%quotaSlots]
		if need <= 0 {
			return (s+quotaSlots)*quotaSlot - q.now
		}
	}
	return quotaSpan
}

// wait returns 0, or the microseconds until a grant may fit and what refuses it.
func (q *virtualQuota) wait(tokens int64, who asker) (int64, string) {
	if q.now < q.blocked {
		return q.blocked - q.now, "blocked"
	}
	for _, m := range q.metrics {
		cost := m.cost(tokens)
		why := "rpm"
		aside := 0.0
		if m.tokens {
			why = "tpm"
		}
		if kept := q.reserved(m, cost, who); kept > 0 {
			return kept, why
		}
		if who == askLive {
			aside = m.aside
		}
		over := m.sum + cost + min(int64(math.Floor(aside/micro)), m.limit-cost) - m.limit
		if over > 0 {
			return max(q.ringWait(m, over), 1), why
		}
		if who == askHead && m.tokens && q.res.credit >= cost*micro {
			continue // paid by the credit
		}
		short := min(float64(cost*micro)+aside, float64(m.cap)) - float64(m.level)
		if short > 0 {
			return max(int64(math.Ceil(short/m.rate())), 1), why
		}
	}
	return 0, ""
}

func (q *virtualQuota) charge(tokens int64, who asker) {
	for _, m := range q.metrics {
		cost := m.cost(tokens)
		m.sum, m.added = m.sum+cost, m.added+cost
		m.book(-cost)
		if who == askLive {
			m.live += cost
		} else {
			m.aside = max(m.aside-float64(cost*micro), 0)
		}
	}
}

// giveBack returns what was charged at a time, if it is still in the ring.
func (q *virtualQuota) giveBack(m *virtualMetric, at, cost int64) {
	s := at / quotaSlot
	if q.slot-s >= quotaSlots || s > q.slot {
		return
	}
	i := s % quotaSlots
	cost = min(cost, m.ring[i])
	m.ring[i] -= cost
	m.sum -= cost
	m.book(cost)
}

// renew moves what was charged at a time to now, like renew in lua/start.lua.
func (q *virtualQuota) renew(now, at, tokens int64) (int64, bool) {
	q.open(now)
	defer q.close()
	gone, fits := q.slot-at/quotaSlot >= quotaSlots, q.now >= q.blocked
	for _, m := range q.metrics {
		more := int64(0)
		if gone {
			more = m.cost(tokens)
		}
		fits = fits && m.sum+more <= m.limit
	}
	if !fits {
		return 0, false
	}
	for _, m := range q.metrics {
		cost := m.cost(tokens)
		q.giveBack(m, at, cost)
		m.sum, m.added = m.sum+cost, m.added+cost
		m.book(-cost)
	}
	return q.now, true
}

// settle ends a grant. If unused, all of it is returned; otherwise used replaces its tokens
// unless it is negative.
func (q *virtualQuota) settle(now, at, tokens int64, unused bool, used int64) {
	if !unused && used < 0 {
		return
	}
	q.open(now)
	for _, m := range q.metrics {
		switch {
		case unused:
			q.giveBack(m, at, m.cost(tokens))
		case m.tokens:
			q.giveBack(m, at, m.cost(tokens))
			m.sum, m.added = m.sum+used, m.added+used
			m.book(-used)
		}
	}
	q.close()
}

// close writes the state back.
func (q *virtualQuota) close() {
	q.known, q.last = true, q.now
	if q.expected > 0 {
		q.till = q.expected
	}
	i := q.slot % quotaSlots
	for _, m := range q.metrics {
		m.ring[i], m.draws[i] = m.ring[i]+m.added, m.draws[i]+m.drawn
		m.draw += m.drawn
		m.aside = math.RoundToEven(m.aside)
		m.added, m.drawn = 0, 0
	}
}
