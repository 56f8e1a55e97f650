package simulate

import (
	"container/heap"
	"context"
	"time"

	"github.com/llmguard/llmguard/queue"
)

type eventKind uint8

const (
	evEnd      eventKind = iota // a call ends
	evPatience                  // a caller's patience, or a job's time, has run out
	evAsk                       // a pacer asks for work
)

type event struct {
	at   int64
	seq  int64
	kind eventKind
	call int32
	job  *queue.VirtualJob
	pool *poolState
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push and Pop implement heap.Interface.
func (q *events) Push(x any) { *q = append(*q, x.(event)) }

// Pop removes the last event.
func (q *events) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}

func (e *engine) at(when int64, kind eventKind, call int32, job *queue.VirtualJob) {
	e.seq++
	heap.Push(&e.events, event{at: when, seq: e.seq, kind: kind, call: call, job: job})
}

// until processes all events before a call arrives at now.
func (e *engine) until(ctx context.Context, now int64) error {
	for len(e.events) > 0 && e.events[0].at <= now {
		e.steps++
		if e.steps%8192 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		e.step()
	}
	return nil
}

func (e *engine) step() {
	ev := heap.Pop(&e.events).(event)
	e.watch(ev.at)
	e.now = max(e.now, ev.at)
	switch ev.kind {
	case evEnd:
		e.end(ev.call)
	case evPatience:
		s := e.subjects[e.whose(ev.call)]
		e.leave(ev.call, s.pool, ev.job, e.result.whyOf(ev.call))
	case evAsk:
		if ev.pool.next == ev.at {
			ev.pool.next = 0
			e.work(ev.pool)
		}
	}
}

// ask schedules a pool's pacer to ask for work at a time, unless it does so earlier anyway.
func (e *engine) ask(p *poolState, at int64) {
	if p.next != 0 && p.next <= at {
		return
	}
	p.next = at
	e.seq++
	heap.Push(&e.events, event{at: at, seq: e.seq, kind: evAsk, pool: p})
}

// As in queue/pacer.go: how long a pacer sleeps at most between two requests for quota.
const (
	maxSleep  = 250 * time.Millisecond
	probeTime = time.Second
)

// work does a worker's part: it takes jobs that may run until there are none. It is called again when a job ends.
func (e *engine) work(p *poolState) {
	wait, why := p.queue.Work(e.now, func() int { return p.most - p.busy }, func(j *queue.VirtualJob) { e.try(p, j) })
	switch {
	case wait < 0:
		return
	case why == "empty":
		wait = min(wait, probeTime)
	default:
		wait = min(wait, maxSleep)
	}
	e.ask(p, e.now+wait.Microseconds())
}

// try runs a claimed job, or puts it back if a limit has no capacity for it.
func (e *engine) try(p *poolState, j *queue.VirtualJob) {
	i := j.Of.(int32)
	s := e.subjects[e.whose(i)]
	if why := e.braked(s); why != "" {
		e.brake(p, j, why)
		return
	}
	run, refusal := e.hold(i, s)
	if refusal != nil {
		why := reason(refusal)
		left := time.Duration(j.Deadline-e.now) * time.Microsecond
		outlasts := j.Class == queue.Interactive && !refusal.Soon && refusal.Binding.Wait > left
		if refusal.Binding.Never && !refusal.Soon || outlasts {
			p.queue.Finish(e.now, j, true, -1)
			e.result.giveUp(i, e.now, why)
			return
		}
		e.result.waits(i, why)
		scope, rest := queue.RestOf(s.limits, refusal)
		p.queue.Release(e.now, j, scope, rest)
		return
	}
	if why := e.judge(s); why != "" {
		e.budget.VoidAll(e.now, run.held)
		e.brake(p, j, why)
		return
	}
	if p.queue.Start(e.now, j) != nil {
		e.budget.VoidAll(e.now, run.held)
		e.result.giveUp(i, e.now, e.result.whyOf(i))
		return
	}
	run.job = j
	p.busy++
	e.start(i, run)
}

// brake ends a claimed job that a brake refuses. In reality it waits for a release; here nobody releases.
func (e *engine) brake(p *poolState, j *queue.VirtualJob, why string) {
	p.queue.Finish(e.now, j, true, -1)
	e.result.giveUp(j.Of.(int32), e.now, why)
}
