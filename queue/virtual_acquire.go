package queue

import (
	"math"
)

// acquiring is one run of lua/acquire.lua.
type acquiring struct {
	*Virtual
	n      int
	why    string
	out    []*VirtualJob
	shares [Batch + 1]int64
	heads  [Batch + 1]*turn
	looked [Batch + 1]bool
	past   [Batch + 1]map[Flow]bool // skipped flows
	skips  int
}

// mostSkips is how many jobs that cannot run now are passed over.
const mostSkips = 32

// turn is the next job of a class.
type turn struct {
	job      *VirtualJob
	vt, cost int64
	mixed    bool // jobs of several priorities of the flow may run
}

func (a *acquiring) run() (wait int64) {
	q := a.quota
	a.flows.wake(q.now)
	waiting := int64(0)
	for c, share := range [Batch + 1]int{
		Interactive: a.opts.Shares.Interactive, Async: a.opts.Shares.Async,
		Batch: a.opts.Shares.Batch,
	} {
		if c > 0 && a.flows.classes[c].waiting > 0 {
			a.shares[c] = int64(share)
			waiting += int64(share)
		}
	}
	r, t := q.takenLive()
	if r+t > 0 {
		a.earn(a.costOf(r, t))
	}
	q.reserveNow(waiting*10, t)
	wait, refused := a.pickAll()
	if refused {
		q.expected = q.now + reserveHeld
		q.share = waiting * 10
		q.head = q.small
	}
	return wait
}

// pickAll picks the jobs that can run. refused reports whether some could not.
func (a *acquiring) pickAll() (wait int64, refused bool) {
	q, open := a.quota, a.live+a.claims
	soonest, reason := int64(-1), "empty"
	for {
		next := a.next()
		if next == nil {
			a.why = reason
			return soonest, refused
		}
		who := askJob
		if q.res != nil && q.res.job == next.job {
			who = askHead
		}
		wait, a.why = q.wait(next.job.Tokens, who)
		if wait == 0 && a.pool.Concurrency > 0 && open+len(a.out) >= a.pool.Concurrency {
			wait, a.why = 50_000, "concurrency"
		}
		switch {
		case wait == 0 && len(a.out) >= a.n:
			a.why = "more"
			return 0, refused
		case wait == 0:
			a.pick(next)
			continue
		case !refused:
			soonest = wait
			reason = a.why
			refused = true
		}
		soonest = min(soonest, wait)
		if !q.reserveRefused(next.job, a.why) || a.skips == mostSkips {
			a.why = reason
			return soonest, true
		}
		a.skip(next.job)
	}
}

// skip passes over the flow of a job that cannot run.
func (a *acquiring) skip(j *VirtualJob) {
	a.skips++
	if a.past[j.Class] == nil {
		a.past[j.Class] = map[Flow]bool{}
	}
	a.past[j.Class][j.Flow] = true
	a.looked[j.Class] = false
}

func (a *acquiring) pick(t *turn) {
	j, c := t.job, t.job.Class
	a.quota.charge(j.Tokens, askJob)
	a.quota.reservePicked(j)
	a.flows.take(j)
	a.flows.charge(t)
	a.credit[c] = max(a.credit[c]-100*t.cost, 0)
	a.earn(t.cost)
	a.looked[c] = false
	if a.flows.probe(j, a.quota.now+a.probeFor) {
		a.looked = [Batch + 1]bool{}
	}
	j.at = a.quota.now
	a.claims++
	a.out = append(a.out, j)
}

func (a *acquiring) earn(cost int64) {
	a.credit[Async] += cost * a.shares[Async]
	a.credit[Batch] += cost * a.shares[Batch]
}

func (a *acquiring) head(c Class) *turn {
	if !a.looked[c] {
		a.looked[c], a.heads[c] = true, nil
		if t := a.flows.next(c, a.past[c]); t != nil {
			t.cost = a.costOf(1, t.job.Tokens)
			a.heads[c] = t
		}
	}
	return a.heads[c]
}

// next returns the next job: interactive before async before batch, except that a class
// whose credit pays for its next job goes first.
func (a *acquiring) next() *turn {
	for c := Batch; c >= Async; c-- {
		if a.credit[c] > 0 && a.head(c) != nil {
			if most := 100 * a.heads[c].cost; a.credit[c] >= most {
				a.credit[c] = most
				return a.heads[c]
			}
		} else if a.looked[c] && a.heads[c] == nil && a.past[c] == nil {
			a.credit[c] = 0 // a class with nothing to run saves no credit
		}
	}
	for c := Interactive; c <= Batch; c++ {
		if t := a.head(c); t != nil {
			return t
		}
	}
	return nil
}

// costOf returns the dominant share of requests and tokens in the minute's quota, in
// billionths. Without a quota it is the number of tokens.
func (a *acquiring) costOf(requests, tokens int64) int64 {
	if len(a.quota.metrics) == 0 {
		return max(tokens, 1)
	}
	share := 0.0
	for _, m := range a.quota.metrics {
		n := requests
		if m.tokens {
			n = tokens
		}
		share = max(share, float64(n)/float64(m.limit))
	}
	return max(int64(math.Ceil(share*1e9)), 1)
}

// takenLive returns what live calls took since the last call.
func (q *virtualQuota) takenLive() (requests, tokens int64) {
	for _, m := range q.metrics {
		if m.tokens {
			tokens = m.live
		} else {
			requests = m.live
		}
		m.live = 0
	}
	return requests, tokens
}
