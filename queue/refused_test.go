package queue

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
)

// TestExpiredJobIsRefused: a job that expires counts once as refused, by what it waited for, and its wait no more. The
// proxy of a connected caller counts that itself.
func TestExpiredJobIsRefused(t *testing.T) {
	t.Parallel()
	var got []guard.RefusedCall
	e := newEnv(t, Options{Refused: func(c guard.RefusedCall) { got = append(got, c) }}, Pool{ID: "p", MaxAge: time.Minute})
	e.at(simStart)
	waited := e.job("p", "acme", "ann", Async, 10)
	waited.Labels, waited.Cause, waited.WaitCause, waited.WaitAt = "project=web", "limit:day", "pool:p", time.UnixMicro(5)
	never := e.job("p", "acme", "bob", Batch, 10)
	for _, j := range []*Job{waited, never, e.job("p", "acme", "carol", Interactive, 10)} {
		e.put(j)
	}
	e.at(simStart + 61*time.Second)
	for range 2 {
		e.endings.endOverdue(t.Context())
	}
	if len(got) != 2 || got[0].User != "ann" && got[1].User != "ann" {
		t.Fatalf("got %+v, want the jobs of ann and bob", got)
	}
	for _, c := range got {
		want := budget.RefusedCall{Call: never.Call(), Cause: "pool:p", Status: 504}
		if c.User == "ann" {
			want = budget.RefusedCall{
				Call: waited.Call(), Cause: "limit:day", Status: 504, Before: "pool:p", Since: time.UnixMicro(5),
			}
		}
		if c.RefusedCall != want {
			t.Errorf("got  %+v\nwant %+v", c.RefusedCall, want)
		}
	}
}

// TestWaitOfARefusedCaller: the wait of a call is not taken back again when its job fails, if its caller was refused after
// the job was claimed, unless it waits again.
func TestWaitOfARefusedCaller(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p"})
	j := e.job("p", "acme", "ann", Interactive, 10)
	j.WaitCause, j.WaitAt = "pool:p", time.UnixMicro(5)
	c := e.claimOne("p", e.put(j))
	if cause, at := e.reader.counted(t.Context(), c.Job); cause != "pool:p" || !at.Equal(j.WaitAt) {
		t.Errorf("while it is claimed, its wait is counted as %s at %s", cause, at)
	}
	if _, err := e.Places().Reserve(t.Context(), "acme", j.ID, time.Minute); err != nil {
		t.Fatal(err)
	}
	if cause, at := e.reader.counted(t.Context(), c.Job); cause != "" {
		t.Errorf("after its caller was refused, its wait is counted as %s at %s", cause, at)
	}
	if _, err := e.Places().Return(t.Context(), "acme", j.ID, time.Minute, time.Minute); err != nil {
		t.Fatal(err)
	}
	if cause, at := e.reader.counted(t.Context(), c.Job); cause != "pool:p" || !at.After(j.WaitAt) {
		t.Errorf("after its caller came back, its wait is counted as %s at %s", cause, at)
	}
}
