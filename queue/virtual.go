package queue

import (
	"maps"
	"math"
	"sort"
	"time"

	"github.com/llmguard/llmguard/quota"
)

// Virtual paces and queues the calls of one pool as the scripts on Redis do, in
// memory and at the instants it is told: for simulations. It is lua/quota.lua,
// reserve.lua, flows.lua, take, give, put, acquire, start, release and finish, told again in
// Go; random histories hold both to the same answers (TestVirtualPool). Nobody
// dies in it, so leases never run out; its clock does not step; providers name no
// limits and refuse nothing; bodies have no size. It is not safe for concurrent use.
//
// Instants are Unix microseconds and never run backwards.
type Virtual struct {
	pool     Pool
	opts     Options
	quota    *virtualQuota
	flows    *virtualFlows
	live     int // grants that are open
	claims   int
	seq      int64
	jobs     map[string]int // that have not ended, of the pool "", orgs and flows
	most     [3]int         // of them: of the pool, an org, a flow; 0: no bound
	credit   [Batch + 1]int64
	probeFor int64
}

// VirtualJob is a call that waits in a Virtual, or runs from it.
type VirtualJob struct {
	Class      Class
	Flow       Flow
	Key, Model string
	Tokens     int64 // booked on the pool's TPM
	Deadline   int64 // of waiting, Unix us
	Of         any   // the caller's

	seq   int64
	lane  string
	waits bool
	at    int64 // of the claim
}

// VirtualGrant is the leave to send one live call.
type VirtualGrant struct{ at, tokens int64 }

// NewVirtual returns an empty Virtual of a pool. Of the options the burst, the
// shares and the weights count.
func NewVirtual(p Pool, o Options) (*Virtual, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	checked, err := newPool(p, o)
	if err != nil {
		return nil, err
	}
	bounds := checked.bounds(o)
	most := func(i int) int { return int(bounds[i].(int64)) }
	return &Virtual{
		pool: checked.Pool, opts: o, quota: newVirtualQuota(checked.Pool, o.Burst),
		flows: newVirtualFlows(maps.Clone(o.Weights)),
		jobs:  map[string]int{}, most: [3]int{most(0), most(2), most(4)}, probeFor: probeTime.Microseconds(),
	}, nil
}

// Lane is what a limit can refuse of a flow by itself: a key and a model. It is
// costly; keep it.
func Lane(key, model string) string { return lane(key, model) }

// Take is [quota.Quota.Take]. The error is a *quota.BusyError.
func (v *Virtual) Take(now int64, flow Flow, tokens int64) (VirtualGrant, error) {
	if v.pool.TPM > 0 && tokens > v.pool.TPM {
		return VirtualGrant{}, &quota.BusyError{Reason: "never", Never: true, Limit: v.pool.TPM}
	}
	q := v.quota
	q.open(now)
	wait, why := q.wait(tokens, askLive)
	if wait == 0 && v.flows.classes[Interactive].flows[flow] != nil {
		wait, why = 100_000, "flow"
	}
	if wait == 0 && v.full() {
		wait, why = 50_000, "concurrency"
	}
	if wait == 0 {
		q.charge(tokens, askLive)
		v.live++
	}
	q.close()
	if wait > 0 {
		return VirtualGrant{}, &quota.BusyError{Reason: why, Wait: time.Duration(wait) * time.Microsecond}
	}
	return VirtualGrant{q.now, tokens}, nil
}

// full reports whether a live call finds no place: those of the backlog's share
// are set aside while jobs wait.
func (v *Virtual) full() bool {
	most, open := v.pool.Concurrency, v.live+v.claims
	if most <= 0 {
		return false
	}
	aside := 0
	if v.quota.waiting && most > 1 {
		aside = max(int(int64(most)*v.quota.share/1000), 1)
	}
	return open >= most || aside > 0 && open-v.claims >= most-aside
}

// Give is [Queue.Give]: used is how many tokens the provider counted, negative
// when not known.
func (v *Virtual) Give(now int64, g VirtualGrant, unused bool, used int64) {
	v.live--
	v.settle(now, g.at, g.tokens, unused, used)
}

func (v *Virtual) settle(now, at, tokens int64, unused bool, used int64) {
	if !v.pool.ActualTokens {
		used = -1
	}
	v.quota.settle(now, at, tokens, unused, used)
}

// Put is [Queue.Put]; lane is what [Lane] returns of the job's key and model. A
// job that the pool has no room for gets a *FullError.
func (v *Virtual) Put(now int64, j *VirtualJob, lane string) error {
	if v.pool.TPM > 0 && j.Tokens > v.pool.TPM {
		return &FullError{Scope: "tokens", Limit: v.pool.TPM}
	}
	names := j.Flow.scopes()
	for i, scope := range []string{"jobs", "org_jobs", "flow_jobs"} {
		if most := v.most[i]; most > 0 && v.jobs[names[i]]+1 > most {
			v.quota.open(now) // as the script does, to say for how long
			v.quota.close()
			return &FullError{Scope: scope, Limit: int64(most)}
		}
	}
	for _, name := range names {
		v.jobs[name]++
	}
	v.seq++
	j.seq, j.lane = v.seq, lane
	v.flows.put(j)
	return nil
}

// scopes are what the jobs of a flow are counted under.
func (f Flow) scopes() [3]string { return [3]string{"", f.Org, f.Org + " " + f.User} }

// MaxAge is how long a job may wait.
func (v *Virtual) MaxAge() time.Duration { return v.pool.MaxAge }

// Waiting is how many jobs wait.
func (v *Virtual) Waiting() int {
	n := 0
	for c := Interactive; c <= Batch; c++ {
		n += v.flows.classes[c].waiting
	}
	return n
}

// Position is [Queue.Position]: how many jobs are before a waiting one, and when
// its turn comes.
func (v *Virtual) Position(now int64, j *VirtualJob) (ahead int, eta time.Duration) {
	class := &v.flows.classes[j.Class]
	own := 0
	for _, l := range class.flows[j.Flow].lanes {
		own += sort.Search(len(l.jobs), func(i int) bool { return l.jobs[i].seq >= j.seq })
	}
	users, orgs := 1, max(len(class.orgs.score), 1)
	if u := class.users[j.Flow.Org]; u != nil {
		users = max(len(u.score), 1)
	}
	ahead = min((own+1)*users*orgs, class.waiting) - 1
	tokens := float64(class.tokens) / float64(class.waiting) * float64(ahead)
	for c := Interactive; c < j.Class; c++ {
		ahead += v.flows.classes[c].waiting
		tokens += float64(v.flows.classes[c].tokens)
	}
	till := max(v.quota.blocked, v.flows.parkedTill(now, j))
	p := pool{Pool: v.pool}
	return ahead, max(p.drainTime(int64(ahead), int64(math.RoundToEven(tokens))),
		time.Duration(max(till-now, 0))*time.Microsecond)
}

// Acquire is what a worker's pacer asks: up to n jobs to run now, and when to ask
// again. Wait 0: at once; negative: nothing waits. Why is more, empty, or what
// refuses.
func (v *Virtual) Acquire(now int64, n int) (jobs []*VirtualJob, wait time.Duration, why string) {
	a := acquiring{Virtual: v, n: n}
	v.quota.open(now)
	us := a.run()
	v.quota.close()
	if us == -1 {
		if _, soon, ok := v.flows.parked.first(); ok {
			us = max(soon-v.quota.now, 1)
		}
	}
	return a.out, time.Duration(us) * time.Microsecond, a.why
}

// Start is [Claim.Start]. The error is ErrGone for a job that may wait no longer, which has
// then ended, and errNoQuota for one that was claimed long ago and is to be released.
func (v *Virtual) Start(now int64, j *VirtualJob) error {
	if j.Deadline < now {
		v.drop(now, j)
		v.settle(now, j.at, j.Tokens, true, -1)
		return ErrGone
	}
	if now-j.at > grantMoves.Microseconds() {
		at, ok := v.quota.renew(now, j.at, j.Tokens)
		if !ok {
			return errNoQuota
		}
		j.at = at
	}
	v.flows.admitted(now, j, "")
	return nil
}

// Release puts a claimed job back, in its place. Unused gives its quota back; with
// a rest, scope says what waits for so long.
func (v *Virtual) Release(now int64, j *VirtualJob, scope Scope, rest time.Duration) {
	v.claims--
	v.settle(now, j.at, j.Tokens, true, -1)
	subject := ""
	if rest > 0 {
		subject = subjects(j.Flow.Org, j.Flow.User, j.lane)[scope]
	}
	v.flows.admitted(now, j, subject)
	if subject != "" {
		v.flows.park(subject, now+rest.Microseconds())
	}
	v.flows.put(j)
}

// Finish ends a started job, whatever became of it.
func (v *Virtual) Finish(now int64, j *VirtualJob, unused bool, used int64) {
	v.drop(now, j)
	v.flows.shorten(now, j)
	v.settle(now, j.at, j.Tokens, unused, used)
}

// drop ends a claimed job.
func (v *Virtual) drop(now int64, j *VirtualJob) {
	v.claims--
	v.gone(now, j)
}

// Expire ends a job that waits; it reports false when it does not.
func (v *Virtual) Expire(now int64, j *VirtualJob) bool {
	if !v.flows.take(j) {
		return false
	}
	v.gone(now, j)
	return true
}

func (v *Virtual) gone(now int64, j *VirtualJob) {
	for _, name := range j.Flow.scopes() {
		v.jobs[name]--
		if v.jobs[name] <= 0 {
			delete(v.jobs, name)
		}
	}
	v.flows.admitted(now, j, "")
}
