package simulation

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

var discard = slog.New(slog.DiscardHandler)

// newJob returns a job that a process is about to submit.
func (w *world) newJob(p *process, o *org, class queue.Class, d dice) (*job, *queue.Job) {
	j := &job{
		id: p.queue.NewID(poolID), org: o.id, user: []string{"ann", "bob"}[d.IntN(2)], p: p, class: class,
		tokens: w.tokens(d, w.fam.large),
	}
	q := &queue.Job{
		ID: j.id, Pool: poolID, Org: j.org, User: j.user, CallID: wire.NewCallID(), Class: class,
		Endpoint: wire.ChatCompletions,
		Model:    []string{"m1", "m2"}[d.IntN(2)], Key: "k1", Tokens: j.tokens,
	}
	if w.fam.lanes > 0 {
		q.Key = "k" + string(rune('a'+d.IntN(w.fam.lanes)))
		q.Model = "m" + string(rune('a'+d.IntN(w.fam.lanes)))
	}
	if w.fam.patience == 0 { // the bound of waits there assumes that jobs run in order
		q.Priority = w.priority(d)
		if d.chance(200) {
			q.Deadline, q.ByDeadline = time.Now().Add(d.around(time.Hour)+time.Minute), true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	j.put = time.Now()
	w.jobs = append(w.jobs, j)
	w.jobBy[j.id] = j
	return j, q
}

// priority returns a random priority, most often normal.
func (w *world) priority(d dice) quota.Priority {
	return [...]quota.Priority{quota.Normal, quota.Normal, quota.Low, quota.High}[d.IntN(4)]
}

// tokens returns what a call uses of the provider's quota.
func (w *world) tokens(d dice, large int) int64 {
	if w.pool.TPM == 0 {
		return 10
	}
	if d.chance(large) {
		return w.pool.TPM * int64(60+d.IntN(35)) / 100
	}
	return 1 + d.Int64N(w.pool.TPM/50)
}

// put submits a job, and retries until the outcome is known.
func (w *world) put(ctx context.Context, p *process, j *job, q *queue.Job) bool {
	for range 5 {
		select {
		case p.puts <- struct{}{}:
		case <-w.link.over:
			return false
		}
		once, cancel := context.WithTimeout(ctx, readTimeout)
		err := p.queue.Put(once, q, []byte("x"))
		cancel()
		p.alive()
		<-p.puts
		var full *queue.FullError
		switch {
		case err == nil:
			j.known = true
			w.note("%s job %s of %s waits, %s, %d tokens", p.name, j.id[len(j.id)-6:], j.org, j.class, j.tokens)
			return true
		case errors.As(err, &full):
			w.note("%s job %s is refused: %v", p.name, j.id[len(j.id)-6:], err)
			if len(w.jobs) < w.pool.MaxJobs/2 {
				w.fail("a pool with room takes jobs", "%v", err)
			}
			return false
		}
		w.sleep(p, time.Second)
	}
	return false
}

// asyncJob submits a job without a connected caller.
func (w *world) asyncJob(p *process, o *org, class queue.Class) {
	w.do(p, func(ctx context.Context, d dice) {
		j, q := w.newJob(p, o, class, d)
		if w.put(ctx, p, j, q) && d.chance(50) {
			w.sleep(p, d.around(time.Minute))
			j.left = true
			_, _ = p.queue.Cancel(ctx, j.org, j.id)
		}
	})
}

// waitingCall is a call whose caller stays connected as long as it is patient.
func (w *world) waitingCall(p *process, o *org) {
	w.do(p, func(ctx context.Context, d dice) {
		j, q := w.newJob(p, o, queue.Interactive, d)
		if !w.put(ctx, p, j, q) {
			j.left = true
			return
		}
		watch := p.queue.Watch(ctx, q)
		p.alive()
		stay := time.Hour
		if w.fam.leave {
			stay = d.around(w.fam.stay)
		}
		if w.await(ctx, p, j, stay) {
			watch.Close()
			return
		}
		reserved := w.reserve(ctx, p, j) // it gets a 429 and keeps its place in the queue
		watch.Close()
		if !reserved {
			j.left = true
			return
		}
		j.away = true
		w.note("%s the caller of job %s leaves", p.name, j.id[len(j.id)-6:])
		w.sleep(p, 10*time.Second+d.around(40*time.Second))
		if d.chance(500) {
			j.left = true
			return // does not come back
		}
		j.returning = true
		if !w.back(ctx, p, j) {
			j.left = true
			return
		}
		back := p.queue.Watch(ctx, q)
		p.alive()
		j.away = false
		w.await(ctx, p, j, 10*time.Minute)
		j.left = true
		back.Close()
	})
}

// reserve keeps the place of a job whose caller leaves; false means that it has none.
func (w *world) reserve(ctx context.Context, p *process, j *job) bool {
	state, err := p.queue.Places().Reserve(ctx, j.org, j.id, 90*time.Second)
	p.alive()
	return err == nil && state == queue.Queued
}

// back continues a job because its caller is back; false means that its place is gone.
func (w *world) back(ctx context.Context, p *process, j *job) bool {
	got, err := p.queue.Places().Return(ctx, j.org, j.id, 15*time.Second, 10*time.Minute)
	p.alive()
	return err == nil && !got.State.Terminal()
}

// await polls for a job's end for up to d.
func (w *world) await(ctx context.Context, p *process, j *job, d time.Duration) bool {
	for end := time.Now().Add(d); time.Now().Before(end); {
		w.sleep(p, 3*time.Second)
		got, err := p.queue.Job(ctx, j.org, j.id)
		p.alive()
		if errors.Is(err, queue.ErrNotFound) || err == nil && got.State.Terminal() {
			return true
		}
	}
	return false
}

// carry runs a claimed job like a worker: hold, start, send, settle.
func (w *world) carry(ctx context.Context, p *process, claim *queue.Claim) queue.Verdict {
	j := w.jobBy[claim.Job.ID]
	w.mu.Lock()
	w.ops++
	d := newDice(w.seed, uint64(w.ops), 11)
	w.mu.Unlock()
	o := w.orgBy(claim.Job.Org)
	c := w.newCall(p, o, d)
	c.User = j.user
	h, refusal := w.hold(p.ctx, c)
	if h == nil {
		return w.parked(j, c, refusal)
	}
	if err := claim.Start(ctx); err != nil || claim.Permit() != nil {
		p.alive()
		w.giveBack(c, h)
		return queue.Verdict{Kind: queue.Requeue, Wait: time.Second, Unused: true, Refused: err == nil}
	}
	r := &run{p: p}
	w.started(j, r)
	s := w.send(p, claim.Job.Tokens)
	defer func() { r.done, s.done = true, true }()
	c.sent = true
	if w.refused(p, "m1") {
		c.live = false
		w.giveBack(c, h)
		return queue.Verdict{Kind: queue.Requeue, Refused: true}
	}
	if !w.work(ctx, p, d.around(w.fam.took)) { // its lease was lost, or it was cancelled
		c.live = false
		w.end(p.ctx, c, budget.Settle{Hold: h, Settlement: &budget.Settlement{Actual: amounts(c.actual), Estimated: true}})
		w.note("%s job %s is stopped: %v", p.name, j.id[len(j.id)-6:], context.Cause(ctx))
		return queue.Verdict{Kind: queue.Cancel}
	}
	c.live = false
	w.end(p.ctx, c, budget.Settle{Hold: h, Settlement: &budget.Settlement{Actual: amounts(c.actual)}})
	return queue.Verdict{Kind: queue.Done, Status: 200}
}

// work simulates the duration of a call; it returns false if the call was stopped.
func (w *world) work(ctx context.Context, p *process, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		p.alive()
		return true
	case <-ctx.Done():
		p.alive()
		return false
	}
}

// parked returns the verdict for a job whose hold was refused.
func (w *world) parked(j *job, c *call, why error) queue.Verdict {
	j.parked = true
	var exceeded *budget.ExceededError
	if !errors.As(why, &exceeded) {
		return queue.Verdict{Kind: queue.Requeue, Wait: time.Second, Unused: true}
	}
	if exceeded.Binding.Never {
		j.left = true
		never := &wire.Error{Status: http.StatusPaymentRequired, Code: "budget", Message: "never"}
		return queue.Verdict{Kind: queue.Fail, Unused: true, Error: never}
	}
	scope, wait := queue.RestOf(c.limits, exceeded)
	return queue.Verdict{Kind: queue.Park, Scope: scope, Wait: wait, Unused: true}
}

// giveBack releases a call that was not sent.
func (w *world) giveBack(c *call, h *budget.Hold) {
	c.live, c.void, c.actual = false, true, 0
	w.end(c.p.ctx, c, budget.Settle{Hold: h})
}

// started checks that a job may start.
func (w *world) started(j *job, r *run) {
	short := j.id[len(j.id)-6:]
	w.note("%s job %s runs", r.p.name, short)
	for _, before := range j.runs {
		if !before.done && !before.apart && !before.p.isDead() && !w.mayForget(j) {
			w.fail("a job runs once", "job %s runs again while %s works on it", short, before.p.name)
		}
	}
	if j.away && !j.returning && !j.p.isDead() && j.class == queue.Interactive {
		w.fail("a reserved place waits for its caller", "job %s runs with nobody connected", short)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	j.runs = append(j.runs, r)
}

func (w *world) orgBy(id string) *org {
	for _, o := range w.orgs {
		if o.id == id {
			return o
		}
	}
	return nil
}
