package queue

import (
	"context"
	"errors"
	"net/http"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/quota"
)

// claimedQuota is the quota that was booked when the job was claimed. The guard takes it by
// starting the attempt.
type claimedQuota struct {
	queue *Queue
	claim *Claim
	org   *orgRun

	started bool         // the org has one more running job
	grant   *quota.Grant // of another pool; see elsewhere
}

// unsentError ends a run that sent nothing upstream.
type unsentError struct{ verdict Verdict }

func (e *unsentError) Error() string { return "queue: not sent: " + e.verdict.Kind.String() }

func unsent(v Verdict) error { return &unsentError{v} }

// Take implements [guard.Quota].
func (q *claimedQuota) Take(ctx context.Context, call *guard.Call) error {
	c := q.claim
	if q.started && q.grant == nil {
		return q.renew(ctx)
	}
	if !q.started {
		q.org.start()
		q.started = true
		if err := c.Reserve(ctx, AnswerBytes(call.Plan)); err != nil {
			return unsent(noRoom(err))
		}
	}
	if call.Plan.Target.Pool != c.Job.Pool {
		if err := q.elsewhere(ctx, call); err != nil {
			return err
		}
	}
	err := q.start(ctx)
	if err != nil {
		q.Give(ctx, call) // returns the grant that elsewhere took
	}
	return err
}

// start begins the attempt; from here on it counts.
func (q *claimedQuota) start(ctx context.Context) error {
	switch err := q.claim.Start(ctx); {
	case err == nil:
		return nil
	case errors.Is(err, errNoQuota):
		return unsent(Verdict{Kind: Requeue, Unused: true})
	default:
		return unsent(Verdict{Kind: Requeue, Wait: storeRest, Unused: true}) // ignored if lost or ended
	}
}

// renew makes the claim fresh again after this process was too busy to send the request in
// time.
func (q *claimedQuota) renew(ctx context.Context) error {
	q.queue.metrics.stale.WithLabelValues(q.claim.p.ID).Inc()
	if q.claim.Renew(ctx) != nil {
		return quota.ErrStale
	}
	return nil
}

// elsewhere takes quota for a job whose model has moved to another pool since it was put,
// because the configuration changed. The booking in the old pool is returned. Quota of the
// new pool is taken as for a live call; if there is none, the org's jobs for that model
// wait.
func (q *claimedQuota) elsewhere(ctx context.Context, call *guard.Call) error {
	job := q.claim.Job
	grant, err := q.queue.quota.Take(ctx, quota.Request{
		Pool: call.Plan.Target.Pool, ID: call.ID, Org: job.Org, User: job.User,
		Model: call.Plan.Target.Model, Tokens: call.Plan.Quota,
		Priority: quota.High, // it has had its turn in the queue
	})
	var busy *quota.BusyError
	switch {
	case errors.As(err, &busy) && busy.Never:
		return unsent(failed(TooLarge(busy.Limit, "")))
	case errors.As(err, &busy):
		rest := min(max(busy.Wait, reloadRest), latePark)
		return unsent(Verdict{Kind: Park, Scope: ParkOrgModel, Wait: rest, Unused: true})
	case err != nil:
		return unsent(Verdict{Kind: Requeue, Wait: storeRest, Unused: true})
	}
	q.grant = grant
	return nil
}

// end records that the run and its hold have ended.
func (q *claimedQuota) end() {
	if q.started {
		q.org.end()
	}
}

// Permit implements [guard.Quota].
func (q *claimedQuota) Permit() error {
	if q.grant != nil {
		return q.grant.Permit()
	}
	return q.claim.Permit()
}

// Give implements [guard.Quota]. The claim's own booking is used or returned with its
// verdict.
func (q *claimedQuota) Give(ctx context.Context, call *guard.Call) {
	if q.grant == nil {
		return
	}
	q.grant.Counted = call.Counted()
	if err := q.queue.quota.Give(ctx, q.grant, unused(call)); err != nil {
		q.queue.log.WarnContext(ctx, "quota grant not returned, its lease will expire", "pool", q.grant.Pool, "err", err)
	}
}

// unused reports whether nothing was sent to the provider.
func unused(call *guard.Call) bool {
	return call.Result.Outcome == guard.Unsent || call.Result.Outcome == guard.Cached
}

// used completes the verdict with the use of the claim's booking: all of it is returned if
// the call used another pool's quota, or was answered from the response cache.
func (q *claimedQuota) used(v Verdict, call *guard.Call) Verdict {
	if call.Plan.Target.Pool != q.claim.Job.Pool || call.Result.Outcome == guard.Cached {
		v.Unused, v.Counted = true, quota.Counted{}
	}
	return v
}

// claimOutput is the output of a claim's attempt, which exists only once the attempt has
// started.
type claimOutput struct{ claim *Claim }

func (o *claimOutput) Header() http.Header         { return o.claim.Output().Header() }
func (o *claimOutput) WriteHeader(status int)      { o.claim.Output().WriteHeader(status) }
func (o *claimOutput) Write(p []byte) (int, error) { return o.claim.Output().Write(p) }

// Unwrap lets http.ResponseController flush the output.
func (o *claimOutput) Unwrap() http.ResponseWriter { return o.claim.Output() }
