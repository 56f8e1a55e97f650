package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// giveUp ends a wait that outlasted the caller's patience. If a status can still be sent, the place
// is reserved; a running job continues.
func (v *waitingCaller) giveUp(ctx context.Context) error {
	if v.wish.async {
		return v.defer202(ctx)
	}
	if !v.running && v.calls.opts.Guard.Stopped(v.job.Org) != nil {
		return v.refuseStopped(ctx)
	}
	if d := v.wish.deadline; !d.IsZero() && !v.running && !time.Now().Before(d) {
		return v.missDeadline(ctx)
	}
	if v.running && !v.stream {
		v.calls.runs.outlasted(v.job.Org, v.job.Model, time.Since(v.since))
	}
	const late = "The call waited as long as its request allows"
	at, waits := queue.Place{}, false
	if !v.running && v.exchange.status == 0 { // a reserved place has no number
		at, waits = v.look(ctx)
	}
	if v.exchange.status == 0 {
		at.Room.Tell(v.exchange.Header())
	}
	if kept, err := v.keepPlace(ctx); kept > 0 {
		if waits {
			tellPlace(v.exchange.Header(), at)
		}
		v.exchange.outlast(v.job, at)
		return v.end(wire.RateLimited(fmt.Sprintf("%s. Its place in the queue is reserved for %d s: repeat the same "+
			"request or its Idempotency-Key. The job is %s",
			late, int(kept.Seconds()), v.job.ID), time.Second))
	} else if errors.Is(err, errGoesOn) {
		return v.run(ctx)
	}
	began, err := v.expire(ctx)
	if err == nil && began {
		return v.run(ctx)
	}
	v.exchange.outlast(v.job, at)
	return v.end(wire.RateLimited(late+" and is still over the limit", time.Second))
}

// missDeadline ends a wait at the deadline that the call named.
func (v *waitingCaller) missDeadline(ctx context.Context) error {
	began, err := v.expire(ctx)
	if err == nil && began {
		return v.run(ctx)
	}
	v.exchange.outlast(v.job, queue.Place{})
	return v.end(queue.DeadlinePassed())
}

// expire ends the job if it still waits. Otherwise its answer exists or is on its way: the job has
// begun, and the caller waits for it without a deadline.
func (v *waitingCaller) expire(ctx context.Context) (began bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	job, err := v.calls.opts.Queue.Expire(ctx, v.job.Org, v.job.ID)
	if err != nil || job.State == queue.Expired || job.State == queue.Cancelled {
		return false, err
	}
	v.waiting = nil
	v.deadline = time.Now().Add(claimedAgain)
	return true, nil
}

// claimedAgain is when a caller whose wait is over checks again whether its claimed job started: a
// worker can also put it back into the queue, and nothing announces that.
const claimedAgain = time.Second

// errGoesOn means that there is no place to reserve, but an answer to wait for.
var errGoesOn = errors.New("the job has an answer, or is about to")

// keepPlace reserves the caller's place for its return and returns for how long; until then the job
// is not started. It returns 0 if that is impossible because the status was sent, or because the
// org's calls may wait no longer.
func (v *waitingCaller) keepPlace(ctx context.Context) (time.Duration, error) {
	c := v.calls
	if v.exchange.status != 0 {
		return 0, nil
	}
	d := c.opts.KeepPlace
	if most := v.exchange.caller.Org.MaxWait; most > 0 && !v.running {
		d = min(d, most-time.Since(v.job.Created), v.exchange.left(most))
	}
	if d <= 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	state, err := c.opts.Queue.Places().Reserve(ctx, v.job.Org, v.job.ID, d)
	if err != nil {
		return 0, err
	}
	if state.Terminal() || state == queue.Running && v.stream {
		v.running = true
		v.patience = time.Time{}
		v.deadline = time.Time{}
		return 0, errGoesOn
	}
	if err := v.leavePlace(ctx, d); err != nil {
		return 0, err
	}
	v.exchange.Header().Set(headerJob, v.job.ID)
	return d, nil
}

// leavePlace lets a repetition of the call find its job: by its key if it has one.
func (v *waitingCaller) leavePlace(ctx context.Context, d time.Duration) error {
	v.calls.metrics.kept.Inc()
	v.exchange.stays = v.exchange.key != nil
	if v.exchange.stays {
		return nil
	}
	return v.calls.opts.Idempotency.Keep(ctx, v.job.Org, v.print, v.job.ID, d)
}

// defer202 ends a wait that the caller requested with respond-async.
func (v *waitingCaller) defer202(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	job, err := v.calls.opts.Queue.Job(bounded, v.job.Org, v.job.ID)
	if err != nil {
		return unavailable(err)
	}
	return v.calls.accepted(v.exchange, job, v.wish)
}

// sendAway ends a wait because this process shuts down. The caller's retry reaches another process
// and finds its place there.
func (v *waitingCaller) sendAway(ctx context.Context) error {
	if v.wish.async {
		return v.defer202(ctx)
	}
	kept, err := v.keepPlace(ctx)
	if kept == 0 && !errors.Is(err, errGoesOn) {
		began, expireErr := v.expire(ctx)
		if expireErr == nil && began {
			err = errGoesOn
		}
	}
	if errors.Is(err, errGoesOn) {
		v.waiting = nil // it costs money now, so the shutdown waits for it
		return v.run(ctx)
	}
	return v.end(shuttingDown())
}

func shuttingDown() *wire.Error {
	return wire.ServiceUnavailable("This proxy is shutting down. Retry the request", time.Second, nil)
}

// leave handles a caller that has disconnected. A job that continues because it is already paid for
// can be claimed by the caller's retry.
func (v *waitingCaller) leave(ctx context.Context) error {
	if v.job.Class != queue.Interactive { // it needs no waiting caller
		return guard.ErrGone
	}
	ctx = context.WithoutCancel(ctx)
	job, err := v.drop(ctx)
	if err == nil && !v.stream && (job.State == queue.Running || job.State == queue.Succeeded) {
		bounded, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		err = v.leavePlace(bounded, v.calls.opts.KeepPlace)
	}
	if err != nil {
		v.calls.opts.Log.Warn("job of a disconnected caller not dropped, the queue will drop it", "job", v.job.ID, "err", err)
	}
	return guard.ErrGone
}

// drop gives the job up on the caller's behalf: a waiting job is canceled, a running one ends as a
// live call without its caller would.
func (v *waitingCaller) drop(ctx context.Context) (*queue.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return v.calls.opts.Queue.Places().Leave(ctx, v.job.Org, v.job.ID)
}
