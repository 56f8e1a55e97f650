package guard

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// lateStop is a Quota during whose Take spending is stopped.
type lateStop struct {
	liveQuota
	takes int
}

func (q *lateStop) Take(context.Context, *Call) error {
	q.takes++
	p := *q.guard.Policy()
	p.Stopped = true
	q.guard.SetPolicy(&p)
	return nil
}

// TestStopBeforeTheFirstByte checks that a call whose org is stopped after its hold is not sent, is refused as
// stopped at its first attempt, and costs nothing.
func TestStopBeforeTheFirstByte(t *testing.T) {
	r := newRig(t, roomy()...)
	before := r.used()
	q := &lateStop{liveQuota: liveQuota{guard: r.guard}}
	a := Attempt{ID: wire.NewCallID(), Number: 1, Patience: time.Minute, Quota: q}
	w := httptest.NewRecorder()
	c, err := r.guard.Run(t.Context(), r.plan(prompt("gpt-4o", "hi", "")), a, w)
	if stopped, ok := errors.AsType[*StoppedError](err); !ok || !stopped.Everybody || q.takes != 1 {
		t.Errorf("got %v after quota was taken %d times, want one StoppedError for everybody", err, q.takes)
	}
	r.settle()
	r.charged(before, c)
	if n := len(r.fake.Log()); n != 0 || w.Body.Len() > 0 || c.Result.Outcome != Unsent {
		t.Errorf("%d requests sent, %q written, outcome %s; want an unsent call", n, w.Body, c.Result.Outcome)
	}
}
