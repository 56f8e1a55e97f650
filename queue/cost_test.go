package queue

import (
	"errors"
	"testing"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// A job costs what all its attempts were charged: an attempt whose worker died costs what
// was held for it, and one that was presumed dead but ended after all costs what it really
// cost.
func TestAJobCostsAllItsAttempts(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{MaxAttempts: 9}, Pool{ID: "p"})
	ctx, now := t.Context(), simStart
	e.at(now)
	attempt := func(j *Job, held pricing.Nano) *Claim {
		t.Helper()
		c := e.claimOne("p", j)
		c.ctx, c.held = ctx, held
		if err := errors.Join(c.Start(ctx), c.Start(ctx)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	die := func() {
		now += e.opts.Lease + time.Second
		e.lapse("p", now)
	}
	costs := func(j *Job, want pricing.Nano) {
		t.Helper()
		if got, err := e.Job(ctx, "acme", j.ID); err != nil || got.Charged != want || !got.State.Terminal() {
			t.Errorf("the job is %s and was charged %d, want %d (%v)", got.State, got.Charged, want, err)
		}
	}
	end := func(c *Claim, v Verdict) error { return c.conclude(ctx, v) }

	j := e.put(e.job("p", "acme", "ann", Async, 10))
	first := attempt(j, 100)
	die()
	second := attempt(j, 90)
	if err := end(second, Verdict{Kind: Requeue, Charged: 7}); err != nil { // a broken answer
		t.Fatal(err)
	}
	third := attempt(j, 80)
	if err := end(first, Verdict{Kind: Requeue, Charged: 60}); !errors.Is(err, ErrLost) {
		t.Fatalf("the first attempt was given back: %v", err)
	}
	die()
	last := attempt(j, 70)
	if err := end(last, Verdict{Kind: Done, Charged: 5}); err != nil {
		t.Fatal(err)
	}
	costs(j, 60+7+80+5)
	for range 2 { // the second time as after a lost reply
		third.closed = false
		if err := end(third, Verdict{Kind: Done, Charged: 33}); !errors.Is(err, ErrGone) {
			t.Fatalf("the third attempt ended an ended job: %v", err)
		}
		costs(j, 60+7+33+5)
	}

	refused := e.put(e.job("p", "acme", "ann", Async, 10))
	attempt(refused, 100)
	die()
	if err := end(e.claimOne("p", refused), Verdict{Kind: Fail, Unused: true}); err != nil {
		t.Fatal(err)
	}
	costs(refused, 100)

	cancelled := e.put(e.job("p", "acme", "ann", Async, 10))
	attempt(cancelled, 100)
	die()
	if _, err := e.Cancel(ctx, "acme", cancelled.ID); err != nil {
		t.Fatal(err)
	}
	costs(cancelled, 100)

	recovered := e.put(e.job("p", "acme", "ann", Async, 10))
	c := attempt(recovered, 100)
	if err := c.Output().End(ctx, true, Verdict{Kind: Done, Charged: 9}); err != nil {
		t.Fatal(err)
	}
	die()
	heir := e.claimOne("p", recovered)
	if err := end(heir, *heir.Recovered); err != nil {
		t.Fatal(err)
	}
	costs(recovered, 9)
	if err := end(c, Verdict{Kind: Done, Charged: 9}); !errors.Is(err, ErrGone) {
		t.Errorf("the dead attempt ended an ended job: %v", err)
	}
	costs(recovered, 9)

	for _, known := range []bool{true, false} { // false: the reply of its start was lost
		unsent := e.put(e.job("p", "acme", "ann", Async, 10))
		stopped := attempt(unsent, 100)
		die()
		if err := end(attempt(unsent, 90), Verdict{Kind: Done, Charged: 5}); err != nil {
			t.Fatal(err)
		}
		stopped.started = known
		if err := stopped.Renew(ctx); !errors.Is(err, ErrGone) {
			t.Errorf("an attempt went on after its job had ended: %v", err)
		}
		_ = end(stopped, Verdict{Kind: Requeue, Unused: true})
		costs(unsent, 5)
	}
}
