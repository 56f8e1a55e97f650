package guard

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/internal/cache"
	"github.com/llmguard/llmguard/quota"
)

// Quota is the provider quota of one call: a live one, or one claimed together with a job.
// Its methods must be called from one goroutine.
type Quota interface {
	// Take takes quota for a call that holds its money. It is called again after a
	// stale grant was given back. On error nothing is sent, and Run returns the error.
	Take(ctx context.Context, c *Call) error
	// Permit returns nil if the request may still be written, otherwise quota.ErrStale.
	Permit() error
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
	// It must call Call.Paid. Before the first byte is written it must call permit, whose error, which it
	// returns then, stops the request unsent.
	Send func(ctx context.Context, c *Call, w http.ResponseWriter, permit func() error) error
	// Sent is called once the request has been sent and its body is no longer needed.
	// It may be nil.
	Sent func()

	cache cache.Outcome // of its request; "" if it does not use the response cache
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
// *quota.BusyError, *BusyError and quota.ErrStale nothing was charged, sent or written, so that the call
// may wait and run later. For other errors see Forward. The end of a job's call is written,
// or kept in the journal, when Run returns; that of a live call soon after.
func (g *Guard) Run(ctx context.Context, p *Plan, a Attempt, w http.ResponseWriter) (*Call, error) {
	if p.counts {
		return g.answerCount(ctx, p, &a, w)
	}
	use := g.useCache(ctx, p, &a)
	defer use.close()
	a.cache = use.state
	if use.found != nil {
		return use.answer(ctx, &a, w)
	}
	q, hold := a.Quota, g.admission.beginOr
	if q == nil {
		live := &liveQuota{guard: g, lane: a.Lane, priority: a.Priority}
		q, hold = live, live.begin
	}
	began := time.Now()
	c, err := hold(ctx, p, &a)
	if err != nil {
		return nil, err
	}
	c.watch.redis(began)
	c.watch.Redis += use.waited
	defer c.finish(ctx)
	w = &timedWriter{ResponseWriter: w, watch: &c.watch}
	t := use.record(c, w)
	if t != nil {
		w = t
	}
	err = a.send(ctx, c, q, w)
	use.store(ctx, c, t)
	return c, err
}

// send takes quota and sends the request, a few times if the grant goes stale before the first byte is
// written.
func (a *Attempt) send(ctx context.Context, c *Call, q Quota, w http.ResponseWriter) error {
	for try := 1; ; try++ {
		if err := c.take(ctx, q); err != nil {
			return err
		}
		err := a.sendOnce(ctx, c, q, w)
		c.again = c.Result.Outcome == ClientGone && errors.Is(context.Cause(ctx), ErrRepeated)
		if try == staleTries || !errors.Is(err, quota.ErrStale) {
			return err
		}
	}
}

// sendOnce sends the request and gives back the quota. The request is refused if spending was stopped,
// or the grant went stale, before the first byte is written.
func (a *Attempt) sendOnce(ctx context.Context, c *Call, q Quota, w http.ResponseWriter) error {
	defer c.give(ctx, q)
	permit := func() error { return cmp.Or(c.guard.Stopped(c.Plan.Caller.Org.ID), q.Permit()) }
	if a.Send != nil {
		return a.Send(ctx, c, w, permit)
	}
	return c.Forward(ctx, w, Forwarding{
		Header: a.Header, Query: a.Query, Permit: permit, Repeats: a.Repeats, Sent: a.Sent,
	})
}

// take takes the quota and measures it.
func (c *Call) take(ctx context.Context, q Quota) error {
	defer c.watch.redis(time.Now())
	return q.Take(ctx, c)
}

// give gives back the quota and measures it.
func (c *Call) give(ctx context.Context, q Quota) {
	defer c.watch.redis(time.Now())
	q.Give(ctx, c)
}

// answerCount answers a request to count tokens for a model whose provider does not count them, with the estimate by
// which the call would be held.
func (g *Guard) answerCount(ctx context.Context, p *Plan, a *Attempt, w http.ResponseWriter) (*Call, error) {
	return g.answerHere(ctx, p, a, func(c *Call) error {
		c.Result = Result{Outcome: Completed, Status: http.StatusOK, Ended: true}
		c.tell(w.Header())
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		err := written(w.Write([]byte(`{"input_tokens":` + strconv.FormatInt(p.counted, 10) + `}`)))
		c.Result.Relayed = err == nil
		return err
	})
}
