package queue

import "math"

// virtualReserve is a reservation of lua/reserve.lua: quota for a waiting job that is
// larger than the bucket.
type virtualReserve struct {
	job        *VirtualJob
	tokens     int64
	credit     int64 // in millionths
	over, used int64
	mode       reserveMode
	from, seen int64
}

type reserveMode uint8

// The modes of a reservation, as in lua/quota.lua.
const (
	reserveOpen reserveMode = iota
	reserveStrict
	reserveVain
	reserveClosing
)

// reserveHeld is how long a reservation binds after its job was last seen, in us.
const reserveHeld = 2 * micro

// asker is the kind of caller that requests quota.
type asker uint8

const (
	askJob asker = iota
	askLive
	askHead // the job that quota is reserved for
)

// reserved returns how long other callers must leave the reserved quota alone.
func (q *virtualQuota) reserved(m *virtualMetric, cost int64, who asker) int64 {
	r := q.res
	if r == nil || who == askHead || !m.tokens || q.now-r.seen > reserveHeld {
		return 0
	}
	first := r.mode == reserveStrict || r.mode == reserveClosing && r.over >= r.tokens
	if first && who == askJob {
		return max(r.from+quotaSpan-q.now, 1)
	}
	if r.mode != reserveClosing {
		return 0
	}
	room := max(m.limit-r.tokens, 0)
	took := q.now - r.from
	aside := int64(0)
	if who == askLive {
		aside = max(min(int64(math.Floor(m.aside/micro)), room-cost), 0)
	}
	need := min(r.used+m.live, m.sum) + cost + aside
	if float64(need) <= float64(room)*math.Min(float64(took)/quotaSpan+0.1, 1) {
		return 0
	}
	till := int64(2 * quotaSpan)
	if need <= room {
		till = int64(math.Ceil((float64(need)/float64(room) - 0.1) * quotaSpan))
	}
	return max(till-took, 1)
}

// reserveNow updates the reservation to now. live is what live calls took since the last
// update.
func (q *virtualQuota) reserveNow(share, live int64) {
	r, m := q.res, q.tokens()
	if r == nil {
		return
	}
	unseen := q.now - r.seen
	if m == nil || r.tokens > m.limit || unseen > quotaSpan {
		q.res = nil
		return
	}
	part := float64(m.limit*micro*share) / 1000
	r.credit = min(r.credit+int64(math.Floor(float64(min(unseen, reserveHeld))*(part/quotaSpan))), r.tokens*micro)
	r.used += live
	mode := r.mode
	switch {
	case mode < reserveClosing && float64(r.credit)+part >= float64(r.tokens*micro):
		mode = reserveClosing
	case mode == reserveOpen && r.over >= r.tokens:
		mode = reserveStrict
	case mode == reserveStrict && (r.used > m.limit-r.tokens || q.now-r.from > quotaSpan):
		mode = reserveVain
	}
	if mode != r.mode {
		if mode == reserveClosing {
			r.over = 0
		}
		r.mode = mode
		r.from = q.now
		r.used = 0
	}
}

// reserveRefused records that a job was not picked. It reports whether the jobs behind it
// may be tried.
func (q *virtualQuota) reserveRefused(j *VirtualJob, why string) bool {
	r, m := q.res, q.tokens()
	if why != "tpm" {
		if r != nil {
			r.seen = q.now
		}
		return false
	}
	large := m.cost(j.Tokens)*micro > m.cap
	if large && (r == nil || r.job != j && q.now-r.seen > reserveHeld) {
		next := &virtualReserve{job: j, tokens: m.cost(j.Tokens)}
		if r != nil {
			next.credit = min(r.credit, j.Tokens*micro)
		}
		q.res = next
	}
	switch {
	case q.res != nil && q.res.job == j:
		q.res.seen = q.now
	case !large && q.small == 0:
		q.small = j.Tokens
	}
	return q.res != nil
}

// reservePicked records that a job was picked.
func (q *virtualQuota) reservePicked(j *VirtualJob) {
	switch r := q.res; {
	case r == nil:
	case r.job == j:
		q.res = nil
	default:
		r.over, r.used = r.over+j.Tokens, r.used+j.Tokens
	}
}

// tokens returns the metric of tokens; nil if there is no token quota.
func (q *virtualQuota) tokens() *virtualMetric {
	if n := len(q.metrics); n > 0 && q.metrics[n-1].tokens {
		return q.metrics[n-1]
	}
	return nil
}
