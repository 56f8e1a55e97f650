package proxy

import (
	"context"
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/idempotency"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/queue"
)

const (
	retryHeader = "X-Stainless-Retry-Count"
	keyHeader   = "Idempotency-Key"
)

// second starts another proxy of the same deployment.
func (r *rig) second() *rig {
	o := r.proxy.opts
	o.Idempotency, o.Metrics = idempotency.New(r.redis.DB(), idempotency.Options{}), nil
	other := &rig{t: r.t, redis: r.redis, queue: r.queue, guard: r.guard, org: r.org, key: r.key, proxy: New(o)}
	other.http = httptest.NewServer(other.proxy)
	r.t.Cleanup(other.http.Close)
	return other
}

// sentAway makes a call that waits until its patience ends, and returns its job.
func (r *rig) sentAway(body string, header ...string) string {
	r.t.Helper()
	for range 100 { // on a slow machine its patience may end before it has a place
		a := r.chat(body, append([]string{"X-Stainless-Timeout", "0.4"}, header...)...)
		a.fails(r.t, 429, "rate_limit_exceeded")
		if job := a.header.Get(headerJob); job != "" {
			return job
		}
	}
	r.t.Fatal("no place is kept")
	return ""
}

// heldKey waits until the org's only idempotency key is held.
func (r *rig) heldKey() {
	r.t.Helper()
	rdb := r.redis.Client()
	for range 30000 {
		keys, err := rdb.Keys(r.t.Context(), "lg:{acme}:once:*").Result()
		if err != nil || len(keys) != 1 {
			r.t.Fatalf("keys %v, %v; want one key", keys, err)
		}
		if rdb.HGet(r.t.Context(), keys[0], "holder").Val() != "" {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	r.t.Fatal("no caller holds the key")
}

// TestRejoin: an SDK's retry finds its place again through any proxy, and identical calls each find
// their own.
func TestRejoin(t *testing.T) {
	t.Parallel()
	r := newRig(t, single, nil)
	release := r.occupy()
	body := prompt("hi", `"max_tokens":5`)
	var wg sync.WaitGroup
	var jobs [2]string
	for i := range jobs {
		wg.Go(func() { jobs[i] = r.sentAway(body) })
	}
	redistest.Wait(t, wg.Wait)
	if jobs[0] == jobs[1] {
		t.Fatalf("two calls became the job %s, want one each", jobs[0])
	}
	for _, fresh := range [][]string{{retryHeader, "0"}, {}, {retryHeader, "x"}} { // not a retry
		wg.Go(func() {
			if id := r.sentAway(body, fresh...); slices.Contains(jobs[:], id) {
				t.Errorf("a new call with %v took the place of %s", fresh, id)
			}
		})
	}
	wg.Go(func() {
		if id := r.sentAway(prompt("ho", `"max_tokens":5`), retryHeader, "1"); slices.Contains(jobs[:], id) {
			t.Errorf("another body took the place of %s", id)
		}
	})
	redistest.Wait(t, wg.Wait)
	if id := r.sentAway(body, retryHeader, "1"); id != jobs[0] && id != jobs[1] { // and reserved for the next retry
		t.Errorf("a retry became %s, want one of the first two jobs", id)
	}
	r.worker(nil)
	other := r.second()
	release()
	got := map[string]bool{}
	for i := range jobs {
		at := []*rig{r, other}[i]
		a := at.chat(body, retryHeader, "2")
		if a.status != 200 || !strings.Contains(a.body, `"choices"`) {
			t.Errorf("got status %d, %s; want 200", a.status, a.body)
		}
		got[a.header.Get(headerJob)] = true
	}
	if len(got) != 2 {
		t.Errorf("two retries got %v, want two jobs", got)
	}
}

// TestRejoinRunning: a job that is running when patience ends, or when its caller hangs up,
// continues, once, and the retry claims its answer.
func TestRejoinRunning(t *testing.T) {
	t.Parallel()
	r := newRig(t, single, nil)
	var runs atomic.Int64
	var release atomic.Pointer[chan struct{}]
	started(r, func(ctx context.Context, c *queue.Claim) queue.Verdict {
		runs.Add(1)
		select {
		case <-*release.Load():
		case <-ctx.Done():
			t.Errorf("the run was ended: %v", context.Cause(ctx))
		}
		_, _ = io.WriteString(c.Output(), "whole")
		return queue.Verdict{Kind: queue.Done, Status: 200}
	})
	body := prompt("hi", `"max_tokens":5`)
	gate := make(chan struct{})
	release.Store(&gate)
	r.busy()
	id := r.sentAway(body)
	close(gate)
	if a := r.chat(body, retryHeader, "1"); a.status != 200 || a.body != "whole" || a.header.Get(headerJob) != id {
		t.Errorf("got status %d, %q; want 200", a.status, a.body)
	}

	gate2 := make(chan struct{})
	release.Store(&gate2)
	ctx, cancel := context.WithCancel(t.Context())
	r.onPut(func() {
		for runs.Load() < 2 && ctx.Err() == nil {
			time.Sleep(2 * time.Millisecond)
		}
		cancel()
	})
	r.busy()
	if a := r.do(ctx, "POST", "/v1/chat/completions", body); a.err == nil {
		t.Fatalf("got %d %s, want no answer", a.status, a.body)
	}
	r.records(3)
	close(gate2)
	if a := r.chat(body, retryHeader, "1"); a.status != 200 || a.body != "whole" || runs.Load() != 2 {
		t.Errorf("got %d %q after %d runs, want 200, the whole answer and 2 runs", a.status, a.body, runs.Load())
	}
}

// TestRejoinLost: a place for which the caller did not return is lost.
func TestRejoinLost(t *testing.T) {
	t.Parallel()
	r := newRig(t, single, func(o *Options) { o.KeepPlace = 50 * time.Millisecond })
	defer r.occupy()()
	body := prompt("hi", `"max_tokens":5`)
	id := r.sentAway(body)
	places := func() int { return len(r.rdb.Keys(t.Context(), "lg:{acme}:place:*").Val()) }
	r.until("the place has expired", func() bool { return places() == 0 })
	if again := r.sentAway(body, retryHeader, "1"); again == id {
		t.Error("a place was kept for longer than it should")
	}
	if _, err := r.queue.Cancel(t.Context(), "acme", id); err != nil {
		t.Fatal(err)
	}
}

// TestKeyReplay: the answer for a key is repeated byte for byte and without another charge, live
// and from the queue, plain and as a stream.
func TestKeyReplay(t *testing.T) {
	for _, c := range []struct {
		name, body string
		queued     bool
	}{
		{"live", prompt("hi", `"max_tokens":5`), false},
		{"live stream", prompt("hi", streamed), false},
		{"queued", prompt("hi", `"max_tokens":5`), true},
		{"queued stream", prompt("hi", streamed), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, single, nil, window(roomy, time.Hour))
			if c.queued {
				r.worker(nil)
				r.busy()
			}
			first := r.chat(c.body, keyHeader, "k-1")
			if first.status != 200 || first.header.Get(headerReplayed) != "" || (first.header.Get(headerJob) != "") != c.queued {
				t.Fatalf("got status %d, %v, %s; want 200", first.status, first.header, first.body)
			}
			again := r.second().chat(c.body, keyHeader, "k-1")
			if again.status != 200 || again.body != first.body || again.header.Get(headerReplayed) != "true" {
				t.Errorf("%d %q, want %q; %v", again.status, again.body, first.body, again.header)
			}
			for _, name := range []string{"Content-Type", guard.HeaderCost, "X-Request-Id", headerJob} {
				if again.header.Get(name) != first.header.Get(name) {
					t.Errorf("got %s is %q, was %q; want the same", name, again.header.Get(name), first.header.Get(name))
				}
			}
			r.chat(strings.Replace(c.body, "hi", "ho", 1), keyHeader, "k-1").fails(t, 422, "idempotency_key_reused")
			if n := len(r.fake.Log()); n != 1 {
				t.Errorf("got %d calls reached the provider, want 1", n)
			}
			if a := r.chat(c.body, keyHeader, "k-2"); a.status != 200 || len(r.fake.Log()) != 2 {
				t.Errorf("another key: got status %d, %s; want 200", a.status, a.body)
			}
			if m := r.records(2)[0]; m["replayed"] != nil {
				t.Errorf("record %v, want none that is replayed", m)
			}
		})
	}
}

// TestKeyRunning: a key has one call at a time; a failed call frees it.
func TestKeyRunning(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	gate := make(chan struct{})
	var n atomic.Int64
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		if n.Add(1) == 1 {
			redistest.Came(t, gate)
			return fakeprovider.Behaviour{Status: 500}
		}
		return fakeprovider.Behaviour{}
	})
	body := prompt("hi", `"max_tokens":5`)
	got := make(chan answer)
	go func() { got <- r.chat(body, keyHeader, "k") }()
	r.until("the provider is called", func() bool { return n.Load() > 0 })
	a := r.chat(body, keyHeader, "k")
	if a.fails(t, 409, "not_finished"); a.header.Get("Retry-After") == "" {
		t.Errorf("headers %v, want Retry-After", a.header)
	}
	r.chat(prompt("ho", `"max_tokens":5`), keyHeader, "k").fails(t, 422, "idempotency_key_reused")
	close(gate)
	if a := redistest.Came(t, got); a.status != 500 {
		t.Errorf("got status %d, %s; want 500", a.status, a.body)
	}
	if a := r.chat(body, keyHeader, "k"); a.status != 200 || a.header.Get(headerReplayed) != "" {
		t.Errorf("after a failure: got status %d, %s; want 200", a.status, a.body)
	}
}

// TestKeyWaits: a caller that was sent away, or whose proxy died, rejoins its job by its key; while
// another caller is connected, it is asked to retry.
func TestKeyWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t, single, nil)
	release := r.occupy()
	body := prompt("hi", `"max_tokens":5`)
	id := r.sentAway(body, keyHeader, "k")
	if again := r.sentAway(body, keyHeader, "k"); again != id {
		t.Errorf("became %s, was %s; want the same", again, id)
	}
	if r.jobs() != 1 {
		t.Errorf("got %d jobs, want 1", r.jobs())
	}
	got := make(chan answer)
	go func() { got <- r.chat(body, keyHeader, "k") }()
	r.heldKey()
	r.chat(body, keyHeader, "k").fails(t, 409, "not_finished")
	r.worker(nil)
	release()
	first := redistest.Came(t, got)
	if first.status != 200 || first.header.Get(headerJob) != id {
		t.Errorf("got status %d, %s; want 200", first.status, first.body)
	}
	if a := r.chat(body, keyHeader, "k"); a.status != 200 || a.body != first.body || a.header.Get(headerReplayed) != "true" {
		t.Errorf("got status %d, %s; want 200", a.status, a.body)
	}
	if n := len(r.fake.Log()); n != 1 {
		t.Errorf("got %d calls reached the provider, want 1", n)
	}
}

// TestKeyAsync: a key submits one job, however often it is sent.
func TestKeyAsync(t *testing.T) {
	r := newRig(t, single, nil)
	body := prompt("hi", `"max_tokens":5`)
	var first answer
	for i := range 3 {
		a := r.chat(body, keyHeader, "k", "Prefer", "respond-async")
		if a.status != 202 {
			t.Fatalf("got status %d, %s; want 202", a.status, a.body)
		}
		if i == 0 {
			first = a
		} else if a.header.Get("Location") != first.header.Get("Location") {
			t.Errorf("became %s, want the first job's", a.header.Get("Location"))
		}
	}
	if _, err := r.queue.Cancel(t.Context(), "acme", strings.TrimPrefix(first.header.Get("Location"), "/v1/jobs/")); err != nil {
		t.Fatal(err)
	}
	a := r.chat(body, keyHeader, "k", "Prefer", "respond-async")
	if a.status != 202 || a.header.Get("Location") == first.header.Get("Location") {
		t.Errorf("a cancelled job was handed out again: %v, want a new job", a.header)
	}
	r.worker(nil)
	live := r.chat(body, keyHeader, "k") // connects to the job
	if live.status != 200 || live.header.Get(headerJob) != strings.TrimPrefix(a.header.Get("Location"), "/v1/jobs/") {
		t.Errorf("got status %d, %v; want 200", live.status, live.header)
	}
}

// TestKeyGone: a caller that hangs up on a live call finds its answer by its key.
func TestKeyGone(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	gate, arrived := make(chan struct{}), make(chan struct{}, 9)
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		arrived <- struct{}{}
		redistest.Came(t, gate)
		return fakeprovider.Behaviour{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { redistest.Came(t, arrived); cancel(); redistest.Came(t, r.hungUp); close(gate) }()
	body := prompt("hi", `"max_tokens":5`)
	if a := r.do(ctx, "POST", "/v1/chat/completions", body, keyHeader, "k"); a.err == nil {
		t.Fatalf("got %d %s, want no answer", a.status, a.body)
	}
	if m := r.records(1)[0]; m["status"] != 499.0 {
		t.Errorf("record %v, want status 499", m)
	}
	if a := r.chat(body, keyHeader, "k"); a.status != 200 || !strings.Contains(a.body, `"choices"`) || a.header.Get(headerReplayed) != "true" || len(r.fake.Log()) != 1 {
		t.Errorf("got %d %s after %d calls, want 200, the answer again and 1 call", a.status, a.body, len(r.fake.Log()))
	}
}

// TestKeyStoreDown: without Redis, a request with a key is refused within the deadline, and a retry
// is treated as any call.
func TestKeyStoreDown(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	body := prompt("hi", `"max_tokens":5`)
	r.redis.Kill()
	r.chat(body, keyHeader, "k").fails(t, 503, "server_is_overloaded")
	text := r.chat(body).fails(t, 503, "server_is_overloaded")
	if again := r.chat(body, retryHeader, "1").fails(t, 503, "server_is_overloaded"); again != text {
		t.Errorf("a retry is told %q, a call %q; want the same", again, text)
	}
	r.redis.Restart()
	r.until("calls are served again", func() bool { return r.chat(body, keyHeader, "k").status == 200 })
}

// TestKeyBounds: which keys are valid, and which answers are too large to store.
func TestKeyBounds(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	body := prompt("hi", `"max_tokens":5`)
	for _, bad := range []string{strings.Repeat("k", 256), "a\tb", "schlüssel"} {
		r.chat(body, keyHeader, bad).fails(t, 400, "invalid_idempotency_key")
	}
	large := `{"model":"text-embedding-3-large","input":["` + strings.TrimSuffix(strings.Repeat(`a","`, 200), `","`) + `"]}`
	if a := r.call("POST", "/v1/embeddings", large, keyHeader, "k"); a.status != 200 || len(a.body) <= maxKept {
		t.Fatalf("got %d, %d bytes; want 200 and more than is kept", a.status, len(a.body))
	}
	r.call("POST", "/v1/embeddings", large, keyHeader, "k").fails(t, 410, "answer_not_kept")
	if a := r.chat(body, keyHeader, "k"); a.status != 200 { // of another route
		t.Errorf("got status %d, %s; want 200", a.status, a.body)
	}
	if n := len(r.fake.Log()); n != 2 {
		t.Errorf("got %d calls reached the provider, want 2", n)
	}
}
