package guard

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/quota"
)

// Quota is the provider quota of one call: a live one, or one claimed together with a job.
// Its methods must be called from one goroutine.
type Quota interface {
	// Take takes quota for a call that holds its money. It is called again after a
	// stale grant was given back. On error nothing is sent, and Run returns the error.
	Take(ctx context.Context, c *Call) error
	// Fresh reports whether the request may still be written.
	Fresh() bool
	// Give ends what Take took. The call's Result shows how much of it was used.
	Give(ctx context.Context, c *Call)
}

// Attempt is one try at a planned call.
type Attempt struct {
	ID     string
	Number int // from 1
	// Quota is the source of the provider's quota. It is nil for a live call, which
	// takes quota from its pool.
	Quota Quota
	// Lane is quota.Request.Lane of a live call.
	Lane string
	// Priority is quota.Request.Priority of a live call.
	Priority quota.Priority
	// Patience is how long a live call waits for its turn to ask the store.
	Patience time.Duration

	// JobID is "" for a live call. The other fields describe a job: Created is when it
	// was put, Class its class if no caller is connected, and Alias the id by which the
	// caller knows the response, if not the provider's.
	JobID, Class, Alias string
	Created             time.Time

	Header http.Header // the caller's; only an allow-list is forwarded
	Query  string
	// Repeats says that the call will be repeated if the provider fails: a complete 5xx
	// answer is then returned as *FailureError and not relayed.
	Repeats bool
	// Send sends the request in place of Forward, for operations whose price is a fee.
	// It must call Call.Paid, and return providers.ErrStale if fresh has become false.
	Send func(ctx context.Context, c *Call, w http.ResponseWriter, fresh func() bool) error
	// Sent is called once the request has been sent and its body is no longer needed.
	// It may be nil.
	Sent func()
}

// staleTries is how often a call requests quota because its grant went stale before the
// request could be written: this process was too busy.
const staleTries = 3

// Run makes a call: it holds what the plan may cost, takes the provider's quota, sends the
// request, relays the answer to w, and settles. A call that is over a limit is made with
// the org's downgrade model if that fits; see Call.Plan. An org's response cache may answer
// in place of the provider.
//
// If the Call is nil, nothing was held. With the errors *StoppedError, *BrakedError, *Refusal,
// *quota.BusyError, *BusyError and providers.ErrStale nothing was charged, sent or written, so that the call
// may wait and run later. For other errors see Forward. The end of a job's call is written,
// or kept in the journal, when Run returns; that of a live call soon after.
func (g *Guard) Run(ctx context.Context, p *Plan, a Attempt, w http.ResponseWriter) (*Call, error) {
	reuse := g.reuse(ctx, p, &a)
	defer reuse.close()
	if reuse.found != nil {
		p, a.Send = reuse.hit(), reuse.replay(a.Sent)
	}
	q, begin := a.Quota, g.admission.beginOr
	if q == nil {
		live := &liveQuota{guard: g, lane: a.Lane, priority: a.Priority}
		q, begin = live, live.begin
	}
	began := time.Now()
	c, err := begin(ctx, p, a)
	if err != nil {
		return nil, err
	}
	c.watch.redis(began.Add(-reuse.waited - reuse.plan.kept.waited))
	w = &timedWriter{ResponseWriter: w, watch: &c.watch}
	if !a.Created.IsZero() {
		c.Waited = max(c.Hold.At.Sub(a.Created), 0) // both are on Redis's clock
	}
	c.Class, c.Alias, c.Cache = a.Class, a.Alias, string(reuse.state)
	w, keep := reuse.record(c, w)
	if a.JobID == "" {
		defer c.End(ctx)
	} else {
		defer c.EndNow(ctx)
	}
	for try := 1; ; try++ {
		if err := c.take(ctx, q); err != nil {
			return c, err
		}
		err := a.send(ctx, c, q, w)
		c.again = c.Result.Outcome == ClientGone && errors.Is(context.Cause(ctx), ErrRepeated)
		if stopped := g.Stopped(p.Caller.Org.ID); stopped != nil && errors.Is(err, providers.ErrStale) {
			return c, stopped
		}
		if try == staleTries || !errors.Is(err, providers.ErrStale) {
			keep(ctx)
			return c, err
		}
	}
}

// take takes the quota and measures it.
func (c *Call) take(ctx context.Context, q Quota) error {
	defer c.watch.redis(time.Now())
	return q.Take(ctx, c)
}

// send sends the request and gives back the quota. If spending is stopped before the first byte is
// written, that looks like a stale grant.
func (a *Attempt) send(ctx context.Context, c *Call, q Quota, w http.ResponseWriter) error {
	defer func() {
		defer c.watch.redis(time.Now())
		q.Give(ctx, c)
	}()
	fresh := func() bool { return q.Fresh() && c.guard.Stopped(c.Plan.Caller.Org.ID) == nil }
	if a.Send != nil {
		return a.Send(ctx, c, w, fresh)
	}
	return c.Forward(ctx, w, Forwarding{
		Header: a.Header, Query: a.Query, Fresh: fresh, Repeats: a.Repeats, Sent: a.Sent,
	})
}
