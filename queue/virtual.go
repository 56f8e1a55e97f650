package queue

import (
	"maps"
	"time"

	"github.com/llmguard/llmguard/quota"
)

// Virtual paces and queues the calls of one pool like the scripts on Redis, but in memory
// and at given instants, for simulations. It is a Go version of lua/quota.lua, reserve.lua,
// flows.lua, take, give, put, acquire, start, release and finish; TestVirtualPool checks
// with random histories that both give the same answers. Processes never die in it, so
// leases never expire; its clock does not step; providers announce no limits and refuse
// nothing; bodies have no size. It is not safe for concurrent use.
//
// Instants are Unix microseconds and never decrease.
type Virtual struct {
	pool     Pool
	opts     Options
	quota    *virtualQuota
	flows    *virtualFlows
	live     int // open grants
	claims   int
	seq      int64
	jobs     map[string]int // unfinished jobs of the pool (""), of orgs and of flows
	most     [3]int         // bounds of jobs: of the pool, an org, a flow; 0: none
	credit   [Batch + 1]int64
	probeFor int64
}

// VirtualJob is a call that waits in a Virtual or has been acquired from it.
type VirtualJob struct {
	Class      Class
	Flow       Flow
	Key, Model string
	Tokens     int64 // booked on the pool's TPM
	Deadline   int64 // of waiting, Unix us
	Priority   quota.Priority
	ByDeadline bool // see [Job.ByDeadline]
	Of         any  // for the caller's use

	seq   int64
	lane  string
	waits bool
	at    int64 // time of the claim
	// by how much its last pick advanced the virtual times of its org and user
	orgUp, userUp int64
	probed        int64 // when it was first refused as a probe; 0: not yet
}

// VirtualGrant is the permission to send one live call.
type VirtualGrant struct{ at, tokens int64 }

// NewVirtual returns an empty Virtual of a pool. Of the options it uses Burst, OrgShare,
// FlowShare, Shares and Weights.
func NewVirtual(p Pool, o Options) (*Virtual, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	checked, err := newPool(p, o)
	if err != nil {
		return nil, err
	}
	v := checked.virtual(o)
	v.flows.weights = maps.Clone(o.Weights)
	return v, nil
}

// virtual returns an empty Virtual of the pool, which reads the weights of the options.
func (p *pool) virtual(o Options) *Virtual {
	bounds := p.bounds(o)
	most := func(i int) int { return int(bounds[i].(int64)) }
	return &Virtual{
		pool: p.Pool, opts: o, quota: newVirtualQuota(p.Pool, o.Burst), flows: newVirtualFlows(o.Weights),
		jobs: map[string]int{}, most: [3]int{most(0), most(2), most(4)}, probeFor: probeTime.Microseconds(),
	}
}

// Lane returns what a limit can refuse separately within a flow: a key and a model. It is
// expensive; cache the result.
func Lane(key, model string) string { return lane(key, model) }

// Take is [quota.Quota.Take]. The error is a *quota.BusyError.
func (v *Virtual) Take(now int64, flow Flow, tokens int64, priority quota.Priority) (VirtualGrant, error) {
	if !v.pool.Split && v.pool.TPM > 0 && tokens > v.pool.TPM {
		return VirtualGrant{}, &quota.BusyError{Reason: "never", Never: true, Limit: v.pool.TPM}
	}
	q := v.quota
	q.open(now)
	wait, why := q.wait(tokens, askLive)
	if wait == 0 && v.flows.classes[Interactive].flows[flow] != nil {
		wait, why = 100_000, "flow"
	}
	if wait == 0 && v.yields(flow.Org, priority) {
		wait, why = 100_000, "priority"
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

// yields reports whether a call leaves scarce quota to waiting jobs of higher priority.
func (v *Virtual) yields(org string, priority quota.Priority) bool {
	if !v.quota.waiting || priority == quota.High {
		return false
	}
	return priority == quota.Low || v.flows.high[org] > 0
}

// full reports whether there is no slot for a live call. While jobs wait, the backlog's
// share of the slots is set aside.
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

// Give is [quota.Quota.Give]: used is the number of tokens the provider counted, negative
// if unknown.
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

// Put is [Queue.Put]; lane is what [Lane] returns for the job's key and model. The error is
// a *FullError if the pool has no room for the job.
func (v *Virtual) Put(now int64, j *VirtualJob, lane string) error {
	if !v.pool.Split && v.pool.TPM > 0 && j.Tokens > v.pool.TPM {
		return &FullError{Scope: "tokens", Limit: v.pool.TPM}
	}
	names := j.Flow.scopes()
	for i, scope := range []string{"jobs", "org_jobs", "flow_jobs"} {
		if most := v.most[i]; most > 0 && v.jobs[names[i]]+1 > most {
			v.quota.open(now) // as the script does to compute the retry time
			v.quota.close()
			return &FullError{Scope: scope, Limit: int64(most)}
		}
	}
	for _, name := range names {
		v.jobs[name]++
	}
	v.seq++
	j.seq, j.lane = inOrder+v.seq, lane+j.Priority.Mark()
	if j.ByDeadline {
		j.seq = (j.Deadline+500_000)/1_000_000*1_000_000 + v.seq%1_000_000
	}
	v.flows.put(j)
	return nil
}

// scopes returns the names under which the jobs of a flow are counted.
func (f Flow) scopes() [3]string { return [3]string{"", f.Org, f.Org + " " + f.User} }

// MaxAge returns how long a job may wait.
func (v *Virtual) MaxAge() time.Duration { return v.pool.MaxAge }

// Waiting returns how many jobs wait.
func (v *Virtual) Waiting() int {
	n := 0
	for c := Interactive; c <= Batch; c++ {
		n += v.flows.classes[c].waiting
	}
	return n
}

// Acquire is what a worker's pacer calls: it returns up to n jobs to run now, and when to
// ask again. wait is 0 for immediately and negative if no job waits. why is "more",
// "empty", or what refuses.
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

// Work does a worker's part: try gets the jobs that may run, until there are none or free returns 0. It returns what
// the last Acquire did; a negative wait also if free ended it.
func (v *Virtual) Work(now int64, free func() int, try func(*VirtualJob)) (wait time.Duration, why string) {
	for n := 1; ; n = min(2*n, mostAsked) { // handlers double: see pacer.spread
		most := min(n, free())
		if most <= 0 {
			return -1, "busy"
		}
		jobs, wait, why := v.Acquire(now, most)
		for _, j := range jobs {
			try(j)
		}
		if why != "more" && len(jobs) == 0 {
			return wait, why
		}
	}
}

// Start is [Claim.Start]. The error is ErrGone for a job past its deadline, which has then
// ended, or errNoQuota for one that was claimed too long ago and must be released.
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

// Release returns a claimed job to its place and its quota to the pool. With a rest, scope
// says what is parked for that long.
func (v *Virtual) Release(now int64, j *VirtualJob, scope Scope, rest time.Duration) {
	v.claims--
	v.settle(now, j.at, j.Tokens, true, -1)
	subject := ""
	if rest > 0 {
		subject = subjects(j.Flow.Org, j.Flow.User, j.lane)[scope]
	}
	v.flows.turnBack(now, j, subject)
	v.flows.admitted(now, j, subject)
	if subject != "" {
		v.flows.park(subject, now+rest.Microseconds())
	}
	v.flows.put(j)
}

// Finish ends a started job, whatever its outcome.
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

// Expire ends a waiting job. It returns false if the job does not wait.
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
