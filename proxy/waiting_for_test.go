package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// waiter makes a caller wait in the pool, which is blocked, until the test ends.
func (r *rig) waiter() {
	r.t.Helper()
	r.block(time.Minute)
	ctx, leave := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.do(ctx, "POST", "/v1/chat/completions", prompt("hi", `"max_tokens":5,"stream":true`)) })
	r.t.Cleanup(func() {
		leave()
		redistest.Wait(r.t, wg.Wait)
	})
	r.until("the caller waits", func() bool {
		r.proxy.calls.flows.mu.Lock()
		defer r.proxy.calls.flows.mu.Unlock()
		return len(r.proxy.calls.flows.count) > 0
	})
}

// TestRefusedBesideAWaitingCall: a caller whose budget has no capacity for an hour is refused
// immediately, whatever another call of the same user waits for.
func TestRefusedBesideAWaitingCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil, budget.Limit{
		ID: "hourly", Subject: budget.User, Metric: budget.Requests, Models: []string{"gpt-4.1"},
		Shape: budget.Shape{Kind: budget.ExactWindow, Amount: 1, Window: time.Hour},
	})
	other := strings.Replace(prompt("hi", `"max_tokens":5`), "gpt-4o", "gpt-4.1", 1)
	if a := r.chat(other); a.status != 200 {
		t.Fatalf("the first call: got status %d, %s", a.status, a.body)
	}
	r.waiter()
	a := r.chat(other, "Prefer", "wait=2")
	if text := a.fails(t, 429, "rate_limit_exceeded"); !strings.Contains(text, `"hourly"`) {
		t.Errorf("got %q, want the limit named", text)
	}
	if after, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || after < 3000 {
		t.Errorf("got Retry-After %q, want about an hour", a.header.Get("Retry-After"))
	}
}

// TestSilentRedisBesideAWaitingCall: calls that would wait behind another are refused while Redis
// is known to be unreachable, and do not query it one after another.
func TestSilentRedisBesideAWaitingCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	r.waiter()
	if err := r.redis.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.redis.Signal(syscall.SIGCONT) }()
	r.chat(prompt("hi", `"max_tokens":5`)).fails(t, 503, "server_is_overloaded")
	if n := r.guard.Outage.Away()[guard.Deny]; n != 1 {
		t.Errorf("Redis is known to be away for %d orgs, want 1", n)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { r.chat(prompt("hi", `"max_tokens":5`)).fails(t, 503, "server_is_overloaded") })
	}
	redistest.Wait(t, wg.Wait)
	if n := r.guard.Outage.Away()[guard.Deny]; n != 1 {
		t.Errorf("Redis is known to be away for %d orgs after nine calls, want 1", n)
	}
}

// TestPatienceBeginsWithTheCall: the time that a call queues before it becomes a job is part of its
// caller's patience, so that its proxy answers before the queue drops the job.
func TestPatienceBeginsWithTheCall(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil)
	q := httptest.NewRequest("POST", "/v1/chat/completions", http.NoBody)
	x := r.proxy.newExchange(httptest.NewRecorder(), q)
	x.caller = guard.Caller{Org: r.org, User: "alice", Key: "k1"}
	x.plan = &guard.Plan{Caller: x.caller, Request: &wire.Request{Model: "gpt-4o"}}
	x.arrived = time.Now().Add(-2 * time.Second)
	v := r.proxy.calls.arrive(x, q, &queue.Job{ID: r.queue.NewID("main"), Pool: "main", Org: "acme"}, preferences{patience: 10 * time.Second})
	defer v.depart()
	if want := x.arrived.Add(10 * time.Second); !v.patience.Equal(want) || !v.hold.Equal(want) {
		t.Errorf("the caller is kept until %s and %s, want %s", v.patience, v.hold, want)
	}
}
