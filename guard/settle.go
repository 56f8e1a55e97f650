package guard

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
)

// settleTimeout bounds the attempt to settle. What the store does not accept in that time
// is kept by budget.Store.Later, which may take keepTimeout.
const (
	settleTimeout = time.Second
	keepTimeout   = 10 * time.Second
)

// settler writes the final cost of calls.
type settler struct {
	budget  *budget.Store
	outage  *Outage
	charged func(org, user string)
	log     *slog.Logger
	metrics *metrics

	ends     *redisconn.Batcher[ended]
	settling sync.WaitGroup
}

// endMost is the maximum number of calls ended with one write to the store.
const endMost = 256

// End settles the call, or voids it if the provider did no work. It returns immediately;
// Close waits for the write. What the store does not accept is kept in the journal until it
// does.
func (c *Call) End(ctx context.Context) {
	c.end.Do(func() {
		c.traceSettle(ctx)
		s := c.guard.settler
		s.settling.Add(1)
		s.ends.Add(ended{context.WithoutCancel(ctx), c})
	})
}

// ended is a call waiting to be settled or voided.
type ended struct {
	ctx  context.Context // without cancellation
	call *Call
}

func (s *settler) endBatch(batch []ended) {
	calls := make([]*Call, len(batch))
	for i, e := range batch {
		calls[i] = e.call
	}
	_ = s.endAll(batch[0].ctx, calls) // logged by later
	s.settling.Add(-len(batch))
}

// endAll settles and voids calls. What the store does not accept is kept; the error means that it
// could not be kept either, so that holds will expire.
func (s *settler) endAll(ctx context.Context, calls []*Call) error {
	var away []*Call
	calls = slices.DeleteFunc(calls, func(c *Call) bool {
		gone := s.outage.circuit.Open(budget.Tags(c.Hold.Call, nil)[0])
		if gone { // do not wait for a store known to be unavailable
			away = append(away, c)
		}
		return gone
	})
	err := s.keep(ctx, away)
	if len(calls) == 0 {
		return err
	}
	endings := make([]budget.Settle, len(calls))
	for i, c := range calls {
		endings[i] = c.ending()
	}
	once, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	var failed []*Call
	for i, done := range s.budget.SettleAll(once, endings) {
		if !calls[i].written(done) {
			failed = append(failed, calls[i])
		}
	}
	return errors.Join(err, s.keep(ctx, failed))
}

// written handles the result of writing the call's end. It returns false if the end has to
// be kept.
func (c *Call) written(done budget.Settled) bool {
	c.settled = &done
	if !done.Receipt.At.IsZero() { // even if only a spend cap has not accepted it yet
		c.guard.metrics.of(c).settled(c.Result.Usage, c.Result.Estimated, done.Receipt)
		if charged := c.guard.settler.charged; charged != nil {
			charged(c.Plan.Caller.Org.ID, c.Plan.Caller.User)
		}
	}
	switch {
	case done.Err == nil:
		c.settling.End()
		return true
	case errors.Is(done.Err, budget.ErrTooOld):
		c.settling.Fail("too_old")
		c.settling.End()
		c.guard.log.Error("settlement too late to detect a repeat, see llmguard usage reconcile", "call", c.ID)
		return true
	default:
		c.guard.metrics.settleErrors.Inc()
		c.guard.log.Warn("settlement not written, will retry", "call", c.ID, "err", done.Err)
		return false
	}
}

// keep stores the ends of calls until the store accepts them.
func (s *settler) keep(ctx context.Context, calls []*Call) error {
	if len(calls) == 0 {
		return nil
	}
	endings := make([]budget.Settle, len(calls))
	// by hold, instead of the calls, whose bodies are large
	counters := make(map[string]*series, len(calls))
	for i, c := range calls {
		endings[i] = c.ending()
		counters[c.Hold.ID] = s.metrics.of(c)
		c.settling.Fail("store_unavailable")
		c.settling.End()
	}
	return s.later(ctx, endings, func(e budget.Settle, r budget.Receipt) {
		counters[e.Hold.ID].settled(e.Settlement.Usage, e.Settlement.Estimated, r)
		if s.charged != nil {
			s.charged(e.Hold.Call.Org, e.Hold.Call.User)
		}
	})
}

// later keeps endings. An ending that cannot be kept is left to expire.
func (s *settler) later(
	ctx context.Context, endings []budget.Settle, written func(budget.Settle, budget.Receipt),
) error {
	if len(endings) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	err := s.budget.Later(ctx, endings, written)
	if err != nil {
		for _, e := range endings {
			s.log.Error("settlement lost, the hold will expire and be charged in full", "call", e.Hold.Call.ID, "err", err)
		}
	}
	return err
}

// EndNow is End that waits until the end is written or in the journal, so that a job is not
// reported as done before its money is settled.
func (c *Call) EndNow(ctx context.Context) {
	c.end.Do(func() {
		c.traceSettle(ctx)
		_ = c.guard.settler.endAll(context.WithoutCancel(ctx), []*Call{c}) // logged by later
	})
}

// finish ends the call: a live one soon, a job's now.
func (c *Call) finish(ctx context.Context) {
	if c.JobID == "" {
		c.End(ctx)
	} else {
		c.EndNow(ctx)
	}
}

func (c *Call) ending() budget.Settle {
	r := &c.Result
	if r.void() {
		return budget.Settle{Hold: c.Hold}
	}
	return budget.Settle{Hold: c.Hold, Settlement: &budget.Settlement{
		Actual: budget.Amounts{Cost: r.Cost, Tokens: r.Usage.Input + r.Usage.Output},
		Usage:  r.Usage, Split: r.Split, Estimated: r.Estimated, Outcome: string(r.Outcome), Status: r.Status,
		Failed:     r.Outcome.Failed() || r.Failed || c.again,
		UpstreamID: r.UpstreamID, AnswerID: r.AnswerID, ServiceTier: r.Tier, Waited: c.Waited, Took: r.Took,
		Quota: c.Plan.Quota, Class: c.Class, Stream: c.Plan.Request.Stream,
	}}
}

// void reports whether the call leaves no trace, because the provider did no work that it charges.
func (r *Result) void() bool {
	return r.Outcome == Unsent || r.Outcome == Rejected || r.Outcome == Busy ||
		r.Outcome == UpstreamError && r.Usage.Requests == 0
}

// voidLate releases a hold whose reply was lost and which may have been applied.
func (s *settler) voidLate(ctx context.Context, who ledger.Call, caps []budget.Cap) {
	ctx = context.WithoutCancel(ctx)
	s.settling.Go(func() {
		once, cancel := context.WithTimeout(ctx, settleTimeout)
		defer cancel()
		if err := s.budget.VoidLost(once, who, caps...); err != nil {
			s.metrics.settleErrors.Inc()
			_ = s.later(ctx, []budget.Settle{{Hold: budget.Lost(who, caps...)}}, nil) // logged
		}
	})
}
