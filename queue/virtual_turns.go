package queue

import (
	"cmp"
	"math"
	"sort"

	"github.com/llmguard/llmguard/quota"
)

// index returns the number of jobs before j.
func (l *virtualLane) index(j *VirtualJob) int {
	return sort.Search(len(l.jobs), func(i int) bool { return l.jobs[i].seq >= j.seq })
}

// inOrder plus a count is the seq of a job that is not served by its deadline.
const inOrder = 9_000_000_000_000_000

// turns is the period of the turns of a flow with jobs of several priorities.
const turns = 16

// head returns the first job of a flow that may run, or nil; mixed reports whether jobs of several
// priorities may.
func (f *virtualFlows) head(c Class, flow Flow) (job *VirtualJob, mixed bool) {
	w := f.classes[c].flows[flow]
	if w == nil {
		return nil, false
	}
	best := map[quota.Priority]*VirtualJob{}
	for _, l := range w.lanes {
		j := l.jobs[0]
		if old := best[j.Priority]; (old == nil || j.seq < old.seq) && !f.lanePark(flow, l.name) {
			best[j.Priority] = j
		}
	}
	var present []*VirtualJob // highest priority first
	for p := quota.High; p >= quota.Low; p-- {
		if best[p] != nil {
			present = append(present, best[p])
		}
	}
	switch len(present) {
	case 0:
		return nil, false
	case 1:
		return present[0], false
	}
	turn := f.classes[c].turns[flow]
	switch {
	case turn%4 < 3:
		return present[0], true
	case turn == turns-1:
		return present[len(present)-1], true
	}
	return present[1], true
}

// paces are the factors of a user's virtual time.
var paces = map[quota.Priority]float64{quota.High: 0.25, quota.Normal: 1, quota.Low: 4}

// charge advances the virtual times of the org and the user of a turn, and counts it.
func (f *virtualFlows) charge(t *turn) {
	c, flow := t.job.Class, t.job.Flow
	class := &f.classes[c]
	by := func(who string, pace float64) int64 {
		return int64(math.Ceil(float64(t.cost*100) / f.weight(who) * pace))
	}
	t.job.orgUp, t.job.userUp = by(flow.Org, 1), by(flow.Org+" "+flow.User, paces[t.job.Priority])
	class.orgs.set(flow.Org, class.orgs.score[flow.Org]+t.job.orgUp)
	class.users[flow.Org].set(flow.User, t.vt+t.job.userUp)
	if t.mixed {
		class.turns[flow] = (class.turns[flow] + 1) % turns
	}
}

// turnKept is for how many us a job gets its turn back that is refused as a probe, as in lua/flows.lua.
const turnKept = 60 * micro

// turnBack takes back what the pick of a job has advanced that did not start. subject is about to be parked.
func (f *virtualFlows) turnBack(now int64, j *VirtualJob, subject string) {
	if f.probes[subject] {
		j.probed = cmp.Or(j.probed, now)
		if now-j.probed > turnKept {
			return
		}
	}
	class := &f.classes[j.Class]
	class.orgs.lower(j.Flow.Org, j.orgUp)
	if users := class.users[j.Flow.Org]; users != nil {
		users.lower(j.Flow.User, j.userUp)
	}
}

func (f *virtualFlows) countHigh(j *VirtualJob, by int) {
	if j.Class == Interactive && j.Priority == quota.High {
		f.high[j.Flow.Org] += by
	}
}
