package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// refusals returns the counts of acme.
func (r *rig) refusals() []budget.Refused {
	r.t.Helper()
	if err := r.store.Refusals.Write(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	list, err := r.store.Refusals.List(r.t.Context(), "acme", budget.RefusalFilter{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)})
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

// refused returns how many of alice's calls were refused and waited for a cause.
func (r *rig) refused(cause budget.Cause) (refused, waited int64) {
	for _, one := range r.refusals() {
		if one.User == "alice" && one.Key == "k1" && one.Cause == cause {
			refused, waited = refused+one.Refused, waited+one.Waited
		}
	}
	return refused, waited
}

// counted waits until these numbers of alice's calls are counted for a cause.
func (r *rig) counted(cause budget.Cause, refused, waited int64) {
	r.t.Helper()
	r.until(fmt.Sprintf("%s has refused %d and delayed %d", cause, refused, waited), func() bool {
		gotRefused, gotWaited := r.refused(cause)
		return gotRefused == refused && gotWaited == waited
	})
}

// parkedUntil returns when a subject parked by a limit wakes; zero if nothing is parked.
func (r *rig) parkedUntil() time.Time {
	r.t.Helper()
	list, err := r.queue.Parked(r.t.Context(), "main")
	if err != nil {
		r.t.Fatal(err)
	}
	if len(list) == 0 {
		return time.Time{}
	}
	return list[0].Until
}

func (r *rig) await(what string, is func() bool) {
	r.t.Helper()
	for range 12_000 {
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.t.Fatalf("it never happened that %s", what)
}

// TestRefusalsAndWaitsAreCounted: a refused call counts once, a job that waits for a limit once
// however often its turn comes, and a job whose org's limits changed is retried immediately.
func TestRefusalsAndWaitsAreCounted(t *testing.T) {
	t.Parallel()
	calls := budget.Limit{
		ID: "calls", Subject: budget.User, Metric: budget.Requests, Shape: budget.Shape{Kind: budget.ExactWindow, Amount: 1, Window: time.Hour},
	}
	r := newRig(t, queue.Pool{}, nil, calls)
	r.worker(nil)
	if a := r.chat(prompt("hi", `"max_tokens":5`)); a.status != http.StatusOK {
		t.Fatalf("the first call: %d %s", a.status, a.body)
	}
	r.org.OverLimit = "refuse"
	for range 3 {
		r.chat(prompt("hi", `"max_tokens":5`)).fails(t, 429, "rate_limit_exceeded")
	}
	r.counted("limit:calls", 3, 0)
	r.org.OverLimit = "wait"
	a := r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "respond-async")
	var job struct{ ID string }
	if err := json.Unmarshal([]byte(a.body), &job); err != nil || a.status != http.StatusAccepted {
		t.Fatalf("got status %d, %s; want 202", a.status, a.body)
	}
	r.counted("limit:calls", 3, 1)
	for range 2 {
		var before time.Time
		r.await("the job is parked", func() bool { before = r.parkedUntil(); return before.After(time.Now().Add(20 * time.Second)) })
		if err := r.queue.Unpark(t.Context(), map[string]bool{"acme": true}); err != nil {
			t.Fatal(err)
		}
		r.await("it is refused again", func() bool { return r.parkedUntil().After(before) })
	}
	r.counted("limit:calls", 3, 1)
	if err := r.store.Reset(t.Context(), calls, ledger.Call{Org: "acme", User: "alice"}); err != nil {
		t.Fatal(err)
	}
	r.await("the job is parked", func() bool { return r.parkedUntil().After(time.Now().Add(20 * time.Second)) })
	one := budget.Amounts{Cost: 1}
	held, err := r.store.Hold(t.Context(), budget.Terms{
		Limits: r.org.Limits, Max: one, Expected: one,
		Call: ledger.Call{ID: wire.NewCallID(), Attempt: 1, Org: "acme", User: "alice", Key: "k1", Model: "gpt-4o"},
	})
	if err != nil {
		t.Fatal(err)
	}
	a = r.chat(prompt("behind it", `"max_tokens":5`), "Prefer", "wait=3") // the held call may soon make room
	a.fails(t, 429, "rate_limit_exceeded")
	if by, again := a.header.Get(headerWaitingFor), a.header.Get("Retry-After"); by != "limit:calls" || again == "" {
		t.Errorf("a call behind the job is told %q and %q, want limit:calls and when to retry", by, again)
	}
	r.counted("limit:calls", 4, 1)
	if err := r.store.Void(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if err := r.queue.Unpark(t.Context(), map[string]bool{"acme": true, "other": true}); err != nil {
		t.Fatal(err)
	}
	r.await("the job has run", func() bool {
		j, err := r.queue.Job(t.Context(), "acme", job.ID)
		return err == nil && j.State == queue.Succeeded
	})
}
