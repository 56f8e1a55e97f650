package simulate

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

// Options configure a Run.
type Options struct {
	// Progress, if set, is called now and then with the number of calls that have arrived.
	Progress func(done, total int)
	// Fill records how full limits are over time, for [Report.Fill].
	Fill bool
}

// Run replays a sorted trace under a policy. It stops early when ctx is done.
func Run(ctx context.Context, t *Trace, p Policy, o Options) (*Result, error) {
	if !t.sorted {
		return nil, errors.New("simulate: sort the trace first")
	}
	e, err := newEngine(t, p)
	if err != nil {
		return nil, err
	}
	if o.Fill {
		e.result.fill = map[fillKey]*[timeSlots]float64{}
		e.sample = e.result.begins
	}
	for i := range t.calls {
		if i%8192 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if o.Progress != nil {
				o.Progress(i, len(t.calls))
			}
		}
		if err := e.until(ctx, t.calls[i].at); err != nil {
			return nil, err
		}
		e.watch(t.calls[i].at)
		e.now = t.calls[i].at
		if err := e.arrive(int32(i)); err != nil {
			return nil, err
		}
	}
	for n := 0; len(e.events) > 0; n++ {
		if n%8192 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		e.step()
	}
	if o.Progress != nil {
		o.Progress(len(t.calls), len(t.calls))
	}
	return e.result, nil
}

// engine is one run. It does what a proxy and a worker do, without their processing time.
type engine struct {
	trace    *Trace
	policy   Policy
	result   *Result
	budget   *budget.Virtual
	pools    map[string]*poolState
	subjects map[who]*subject
	lanes    map[[2]uint32]string
	events   events
	seq      int64
	steps    int   // processed events
	now      int64 // us
	repeats  bool  // a brake counts equal requests
	sample   int64 // when limits are sampled next; 0: never
	open     map[int32]*running
	brakes   map[string]int64 // until when fired ones count, us
}

// poolState is a pool, its queue and its simulated worker.
type poolState struct {
	queue *queue.Virtual
	most  int // maximum concurrent jobs
	busy  int
	next  int64 // when the pacer asks again; 0: not scheduled
}

// running is an admitted call, with what it holds until it ends.
type running struct {
	on    *subject
	held  []*budget.VirtualHold // of its limits, then of each cap
	grant queue.VirtualGrant
	job   *queue.VirtualJob // nil for live calls
}

// lease is longer than every call, because no process dies in a simulation.
const lease = 10 * 365 * 24 * time.Hour

func newEngine(t *Trace, p Policy) (*engine, error) {
	e := &engine{
		trace: t, policy: p, budget: budget.NewVirtual(budget.Options{Lease: lease}), pools: map[string]*poolState{},
		subjects: map[who]*subject{}, lanes: map[[2]uint32]string{},
		open: map[int32]*running{}, brakes: map[string]int64{},
	}
	if p.HoldFor <= 0 {
		e.policy.HoldFor = defaultHold
	}
	for _, pool := range p.Pools {
		v, err := queue.NewVirtual(pool, p.Queue)
		if err != nil {
			return nil, err
		}
		s := &poolState{queue: v, most: p.Workers[pool.ID]}
		if s.most <= 0 {
			s.most = defaultWorkers
		}
		e.pools[pool.ID] = s
	}
	for _, org := range p.Guard.Orgs {
		e.repeats = e.repeats || slices.ContainsFunc(org.Brakes, func(b *budget.Brake) bool { return b.Rule.Repeats > 0 })
	}
	e.result = newResult(t, p)
	return e, nil
}

// arrive does a proxy's part of a call.
func (e *engine) arrive(i int32) error {
	r := &e.trace.calls[i]
	s, err := e.subject(i)
	switch {
	case err != nil:
		return err
	case s.why != "":
		e.result.skip(i, s.why)
		return nil
	case r.class > uint8(queue.Interactive) && !s.org.RefusesOverLimit():
		e.enqueue(i, s, queue.Class(r.class), e.age(s, queue.Class(r.class)))
		return nil
	}
	why, foreseen, final := e.live(i, s)
	switch {
	case why == "":
	case final || s.org.RefusesOverLimit():
		e.result.refuse(i, why)
	default:
		e.wait(i, s, why, foreseen)
	}
	return nil
}

// live tries a call immediately. It returns what refused it, the wait that can be foreseen, and
// whether waiting is pointless.
func (e *engine) live(i int32, s *subject) (why string, foreseen time.Duration, final bool) {
	if why := e.braked(s); why != "" {
		return why, 0, true
	}
	run, refusal := e.hold(i, s)
	if refusal != nil {
		if refusal.Soon {
			return reason(refusal), 0, false
		}
		return reason(refusal), refusal.Binding.Wait, refusal.Binding.Never
	}
	if why := e.judge(s); why != "" {
		e.budget.VoidAll(e.now, run.held)
		return why, 0, true
	}
	grant, err := s.pool.queue.Take(e.now, s.flow, e.trace.calls[i].quota, quota.Normal)
	if busy, ok := errors.AsType[*quota.BusyError](err); ok {
		e.budget.VoidAll(e.now, run.held)
		return "quota of " + s.poolID + " (" + busy.Reason + ")", busy.Wait, busy.Never
	}
	run.grant = grant
	e.start(i, run)
	return "", 0, false
}

// reason names what refused a call.
func reason(r *budget.ExceededError) string {
	if r.Cap != nil {
		return "cap of " + r.Cap.String() + ": " + r.Binding.LimitID
	}
	return r.Binding.LimitID
}

// hold takes holds on all limits and caps, or on none.
func (e *engine) hold(i int32, s *subject) (*running, *budget.ExceededError) {
	r := &e.trace.calls[i]
	held, refusal := e.budget.HoldAll(e.now, s.on, budget.Amounts{Cost: pricing.Nano(r.held), Tokens: r.heldTokens})
	return &running{on: s, held: held}, refusal
}

// start runs an admitted call to its end.
func (e *engine) start(i int32, run *running) {
	e.result.start(i, e.now, run)
	if e.sample > 0 {
		e.look(run.on, e.now)
	}
	e.open[i] = run
	e.at(e.now+e.trace.calls[i].took, evEnd, i, nil)
}

// end settles a call at its actual cost.
func (e *engine) end(i int32) {
	r, run := &e.trace.calls[i], e.open[i]
	delete(e.open, i)
	actual := budget.Amounts{Cost: pricing.Nano(r.cost), Tokens: r.tokens}
	settle := e.budget.Settle
	if r.failed {
		settle = e.budget.SettleFailed
	}
	settle(e.now, run.held[0], actual)
	for _, part := range run.held[1:] {
		e.budget.Settle(e.now, part, actual)
	}
	pool := run.on.pool
	if run.job == nil {
		pool.queue.Give(e.now, run.grant, false, r.tokens)
	} else {
		pool.queue.Finish(e.now, run.job, false, r.tokens)
		pool.busy--
	}
	if pool.queue.Waiting() > 0 {
		e.ask(pool, e.now)
	}
}

// wait queues a call whose caller waits, unless the foreseeable wait for its limit exceeds the caller's patience. A
// proxy also refuses calls for which it expects a late turn; here these leave when patience ends.
func (e *engine) wait(i int32, s *subject, why string, foreseen time.Duration) {
	patience := e.policy.HoldFor
	if e.trace.calls[i].stream {
		patience = streamWait
	}
	if most := s.org.MaxWait; most > 0 {
		patience = min(patience, most)
	}
	if foreseen > patience {
		e.result.refuse(i, why)
		return
	}
	e.result.waits(i, why)
	job := e.enqueue(i, s, queue.Interactive, patience+deadlineSlack)
	if job != nil {
		e.at(e.now+patience.Microseconds(), evPatience, i, job)
	}
}

// age returns how long a job without a caller may wait.
func (e *engine) age(s *subject, _ queue.Class) time.Duration {
	if most := s.org.MaxWait; most > 0 {
		return most
	}
	return s.pool.queue.MaxAge()
}

// enqueue adds a job to the queue; it returns nil if the job is refused.
func (e *engine) enqueue(i int32, s *subject, class queue.Class, age time.Duration) *queue.VirtualJob {
	j := &queue.VirtualJob{
		Class: class, Flow: s.flow, Tokens: e.trace.calls[i].quota, Of: i,
		Deadline: e.now + min(age, s.pool.queue.MaxAge()).Microseconds(),
	}
	if limit := e.tooLarge(i, s); limit != "" && class != queue.Interactive {
		e.result.refuse(i, limit)
		return nil
	}
	if err := s.pool.queue.Put(e.now, j, s.lane); err != nil {
		e.result.refuse(i, "queue of "+s.poolID+" is full")
		return nil
	}
	e.result.queued(i, e.now)
	if class != queue.Interactive {
		e.at(j.Deadline, evPatience, i, j)
	}
	e.ask(s.pool, e.now)
	return j
}

// tooLarge returns a limit that the call exceeds on its own, or "".
func (e *engine) tooLarge(i int32, s *subject) string {
	r := &e.trace.calls[i]
	for _, l := range s.limits {
		need := int64(1)
		switch l.Metric {
		case budget.Cost:
			need = r.held
		case budget.Tokens:
			need = r.heldTokens
		}
		if l.Mode != budget.Shadow && need > l.Shape.Amount {
			return l.ID
		}
	}
	return ""
}

// leave removes a waiting call from the queue, because its caller gave up.
func (e *engine) leave(i int32, p *poolState, j *queue.VirtualJob, why string) {
	if p.queue.Expire(e.now, j) {
		e.result.giveUp(i, e.now, why)
	}
}
