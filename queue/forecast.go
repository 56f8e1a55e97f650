package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/tasks"
	"github.com/llmguard/llmguard/pricing"
)

// A forecast runs the waiting jobs of a pool in memory, from a snapshot of the queue and of the limits
// that count them: in their turn, as the quota and the limits admit them. It assumes that no other call
// arrives, that each takes the mean time of the last ones, and is charged the mean part of what it holds.

const (
	// forecastJobs is how many jobs a forecast has; others are estimated from these.
	forecastJobs = 1000
	// forecastSteps and forecastSpan bound a forecast. Jobs that do not run within them have no ETA.
	forecastSteps = 20_000
	forecastSpan  = 400 * 24 * time.Hour
	// probesPer is how often a forecast looks after a limit that is full for long, per time passed. Jobs
	// really do every latePark.
	probesPer = 20
	// unknownRun is how long calls take while none has ended.
	unknownRun = 5 * time.Second
	// leastStep, in us, keeps roundings of the quota's waits from filling a forecast.
	leastStep = 1000
	// forecastRuns is of how many runs a forecast knows the limits.
	forecastRuns = 50
)

// prospect is a waiting job in a forecast.
type prospect struct {
	job  *VirtualJob
	want budget.Amounts
	on   *budget.Bound

	ahead int          // jobs that run before it
	rank  int          // of the jobs that have run or are given up; the other jobs come after these
	start int64        // us; 0: it does not run
	by    budget.Cause // what it waits for last, as Place.Cause
}

// obstacle is what made jobs wait, and until when.
type obstacle struct {
	by   budget.Cause
	till int64
}

// forecast is one run.
type forecast struct {
	*snapshot
	money *budget.Virtual
	jobs  map[string]*prospect
	ends  []forecastEnd // by time
	parks map[string]obstacle
	quota obstacle // the pool's own
	ran   int
	ranks int
	steps int
	// running is how many of the jobs run, by org.
	running map[string]int
	// unknown means that no call of the pool has ended yet. Then open calls may end soon and cost nothing,
	// and nothing tells when one leaves a slot of the pool, or a limit on concurrency.
	unknown bool
}

// forecastEnd is the end of a call.
type forecastEnd struct {
	at int64
	do func()
}

func newForecast(s *snapshot, money *budget.Virtual, jobs map[string]*prospect, open []budget.Open) *forecast {
	f := &forecast{
		snapshot: s, money: money, jobs: jobs, parks: map[string]obstacle{}, running: map[string]int{},
		quota: obstacle{budget.NewCause(budget.CausePool, s.v.pool.ID), 0},
	}
	if s.v.quota.blocked > s.now {
		f.quota.till = s.v.quota.blocked
	}
	for subject, by := range s.by {
		f.parks[subject] = obstacle{by, s.v.flows.parked.score[subject]}
	}
	openShare := s.share
	if s.took == 0 {
		f.unknown, s.took, s.share = true, unknownRun.Microseconds(), 1000
	}
	slices.SortFunc(s.claims, func(a, b VirtualGrant) int { return cmp.Compare(a.at, b.at) })
	for _, o := range open {
		at := f.endOf(o)
		f.ends = append(f.ends, forecastEnd{at, func() { money.Settle(at-f.off, o.Hold, charged(o.Hold.Max, openShare)) }})
	}
	for _, c := range s.claims {
		at := max(c.at+s.took, s.now)
		f.ends = append(f.ends, forecastEnd{at, func() {
			s.v.claims--
			s.v.settle(at, c.at, c.tokens, false, c.tokens*s.share/1000)
		}})
	}
	for i := range s.v.live {
		at := s.now + s.took*int64(2*i+1)/int64(2*s.v.live)
		f.ends = append(f.ends, forecastEnd{at, func() { s.v.live-- }})
	}
	sort.Slice(f.ends, func(i, j int) bool { return f.ends[i].at < f.ends[j].at })
	return f
}

// endOf returns when an open call ends. If nothing tells when it began, it is taken for one of the claimed
// jobs, or if there are none, calls have begun evenly.
func (f *forecast) endOf(o budget.Open) int64 {
	begun := o.Begun + f.off
	switch n := len(f.claims); {
	case o.Begun > 0:
	case n > 0:
		begun = f.claims[min(int(o.Part*float64(n)), n-1)].at
	default:
		begun = f.now - f.took + int64(o.Part*float64(f.took))
	}
	return max(begun+f.took, f.now)
}

// run starts the jobs until none waits, or none can be foreseen to run.
func (f *forecast) run() {
	f.runAll()
	for _, p := range f.jobs {
		if p.by == "" {
			p.ahead, p.rank, p.by = f.ran, math.MaxInt, f.waits(p)
		}
		if f.paused { // until an operator ends it
			p.start, p.by = 0, f.quota.by
		}
	}
}

// runAll does what workers do. Calls never end at the same instant, and each may let a job run.
func (f *forecast) runAll() {
	for at := f.now; at < f.now+forecastSpan.Microseconds() && f.steps < forecastSteps; {
		if len(f.ends) > 0 && f.ends[0].at <= at {
			f.ends[0].do()
			f.ends = f.ends[1:]
		}
		next := f.work(at)
		if f.v.Waiting() == 0 {
			return
		}
		if len(f.ends) > 0 && (next == 0 || f.ends[0].at < next) {
			next = f.ends[0].at
		}
		if next == 0 {
			return
		}
		at = max(next, at+leastStep)
	}
}

// charged returns a share, per mille, of a hold.
func charged(held budget.Amounts, share int64) budget.Amounts {
	return budget.Amounts{Cost: held.Cost / 1000 * pricing.Nano(share), Tokens: held.Tokens * share / 1000}
}

// work does what a worker does at a time, and returns when it looks again; 0: when a call ends.
func (f *forecast) work(at int64) int64 {
	free := func() int {
		f.steps++
		return min(forecastSteps-f.steps, defaultConcurrency)
	}
	wait, why := f.v.Work(at, free, func(j *VirtualJob) { f.try(at, j.Of.(*prospect)) })
	switch {
	case wait < 0:
		return 0
	case why == "empty":
	case why == "concurrency" && f.unknown:
		f.quota.till, f.steps = at, forecastSteps
		return 0
	case why == "concurrency":
		f.quota.till = 0
		if len(f.ends) > 0 {
			f.quota.till = f.ends[0].at
		}
		return f.quota.till
	default:
		f.quota.till = at + wait.Microseconds()
		if f.v.quota.res != nil { // it depends on how often it is seen
			wait = min(wait, maxSleep)
		}
	}
	return at + wait.Microseconds()
}

// try starts a claimed job, or parks what the limit that refuses it holds back.
func (f *forecast) try(at int64, p *prospect) {
	held, refusal := f.money.HoldAll(at-f.off, p.on, p.want)
	if refusal == nil {
		f.start(at, p, held)
		return
	}
	by := (&guard.Refusal{ExceededError: refusal}).Cause()
	open := f.unknown && refusal.Binding.Metric == budget.Concurrency
	if open || refusal.Binding.Never && !refusal.Soon { // it will fail, or wait until an operator raises the limit
		f.v.Finish(at, p.job, true, -1)
		f.ranks++
		p.ahead, p.rank, p.by = f.ran, f.ranks, by
		return
	}
	scope, rest := RestOf(p.on.Own.Limits(), refusal)
	if refusal.Soon && f.running[p.job.Flow.Org] == 0 {
		rest = min(rest, alonePark)
	}
	if !refusal.Soon && scope != ParkPool {
		rest = min(refusal.Binding.Wait, max(rest, time.Duration(at-f.now)*time.Microsecond/probesPer))
	}
	f.v.Release(at, p.job, scope, max(rest, time.Millisecond))
	subject := subjects(p.job.Flow.Org, p.job.Flow.User, p.job.lane)[scope]
	f.parks[subject] = obstacle{by, f.v.flows.parked.score[subject]}
}

// waits returns what a job has waited for last: ForWorker if nothing has refused it.
func (f *forecast) waits(p *prospect) budget.Cause {
	last := f.quota
	for _, subject := range subjects(p.job.Flow.Org, p.job.Flow.User, p.job.lane) {
		if o := f.parks[subject]; o.by != "" && o.till >= last.till {
			last = o
		}
	}
	if last.till == 0 {
		return ForWorker
	}
	return last.by
}

// start begins a job and records what made it wait last.
func (f *forecast) start(at int64, p *prospect, held []*budget.VirtualHold) {
	if f.v.Start(at, p.job) != nil { // never: it has no deadline, and is not late
		return
	}
	f.ranks++
	p.ahead, p.rank, p.start, p.by = f.ran, f.ranks, at, f.waits(p)
	f.ran++
	f.running[p.job.Flow.Org]++
	end := at + f.took // after all others
	f.ends = append(f.ends, forecastEnd{end, func() {
		for _, h := range held {
			f.money.Settle(end-f.off, h, charged(h.Max, f.share))
		}
		f.running[p.job.Flow.Org]--
		f.v.Finish(end, p.job, false, p.job.Tokens*f.share/1000)
	}})
}

// foresee reads a pool and the limits of its jobs, and runs them. known are the calls of jobs that were
// read before.
func (r *reader) foresee(
	ctx context.Context, rooms guard.Rooms, p *pool, known map[string]guard.Waiter,
) (*forecast, error) {
	s, err := r.snapshot(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := r.recall(ctx, p, s.jobs, known); err != nil {
		return nil, err
	}
	money := budget.NewVirtual(budget.Options{Lease: forecastSpan})
	b := &binding{rooms: rooms, money: money, bound: map[guard.Waiter]*budget.Bound{}}
	jobs := map[string]*prospect{}
	for id, j := range s.jobs {
		on, err := b.bind(ctx, known[id])
		if err != nil {
			return nil, err
		}
		jobs[id] = &prospect{job: j, want: known[id].Want, on: on}
		j.Of = jobs[id]
	}
	var open []budget.Open
	if rooms.Store != nil {
		open, err = rooms.Store.Load(ctx, money, b.all)
	}
	if err != nil {
		return nil, err
	}
	f := newForecast(s, money, jobs, open)
	f.run()
	return f, nil
}

// snapshot reads a pool.
func (r *reader) snapshot(ctx context.Context, p *pool) (*snapshot, error) {
	args := append([]any{forecastJobs}, p.limits...)
	reply, err := r.scripts.eval(ctx, "snapshot", snapshotScript, p.with(tasks.PausedKey(p.ID)), args...)
	if err != nil {
		return nil, err
	}
	o := r.settings.now().opts
	o.Burst = p.quota.Burst
	return parseSnapshot(p, o, reply)
}

// recall reads the calls of the jobs that are not known yet, and forgets those that do not wait.
func (r *reader) recall(
	ctx context.Context, p *pool, jobs map[string]*VirtualJob, known map[string]guard.Waiter,
) error {
	maps.DeleteFunc(known, func(id string, _ guard.Waiter) bool { return jobs[id] == nil })
	pipe, reads := r.rdb.Pipeline(), map[string]redisconn.Cmd[[]any]{}
	for id := range jobs {
		if _, ok := known[id]; !ok {
			reads[id] = pipe.HMGet(ctx, jobKey(p.ID, id), "key", "ip", "labels", "run", "model", "endpoint", "cost", "held")
		}
	}
	if len(reads) == 0 {
		return nil
	}
	if err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("queue: read jobs: %w", err)
	}
	for id, read := range reads {
		field := func(i int) string { text, _ := read.Val()[i].(string); return text }
		cost, _ := strconv.ParseInt(field(6), 10, 64)
		held, _ := strconv.ParseInt(field(7), 10, 64)
		flow := jobs[id].Flow
		known[id] = guard.Waiter{
			Call: ledger.Call{
				Org: flow.Org, User: flow.User, Key: field(0), IP: field(1), Labels: ledger.Labels(field(2)),
				Run: ledger.RunPath(field(3)), Model: field(4), Endpoint: field(5),
			},
			Want: budget.Amounts{Cost: pricing.Nano(cost), Tokens: cmp.Or(held, jobs[id].Tokens)},
		}
	}
	return nil
}

// binding binds the jobs of a forecast to their limits. Jobs of the same caller for the same model share
// what they are bound to.
type binding struct {
	rooms guard.Rooms
	money *budget.Virtual
	bound map[guard.Waiter]*budget.Bound // by the call without its amounts
	all   []*budget.Standing
	runs  int
}

// bind returns what counts a call. A call that can no longer be made is counted by nothing: its turn
// will show. Reading a run takes a command, so the limits of most are left out.
func (b *binding) bind(ctx context.Context, w guard.Waiter) (*budget.Bound, error) {
	w.Want = budget.Amounts{}
	if had := b.bound[w]; had != nil {
		return had, nil
	}
	of := w
	if w.Run != "" {
		b.runs++
	}
	if b.runs > forecastRuns {
		of.Run = ""
	}
	on, err := b.rooms.Bind(ctx, b.money, of)
	switch {
	case errors.Is(err, budget.ErrUnavailable):
		return nil, err
	case err != nil:
		on = &budget.Bound{Own: &budget.Standing{}}
	}
	b.bound[w] = on
	b.all = append(append(b.all, on.Own), on.Caps...)
	return on, nil
}
