package proxy

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

// block makes the provider's quota unavailable for d.
func (r *rig) block(d time.Duration) {
	r.t.Helper()
	if err := r.queue.Quota().Block(r.t.Context(), "main", d); err != nil {
		r.t.Fatal(err)
	}
}

// occupy takes a single pool's only slot, so that calls have to wait for it.
func (r *rig) occupy() (release func()) {
	r.t.Helper()
	var g *quota.Grant
	for g == nil { // the previous call may hold it a moment longer
		var err error
		var busy *quota.BusyError
		if g, err = r.queue.Quota().Take(r.t.Context(), quota.Request{Pool: "main", ID: wire.NewCallID(), Org: "acme", User: "tester"}); err != nil && !errors.As(err, &busy) {
			r.t.Fatal(err)
		}
	}
	return func() {
		if err := r.queue.Quota().Give(context.Background(), g, true); err != nil {
			r.t.Error(err)
		}
	}
}

// jobs counts the org's jobs.
func (r *rig) jobs() int {
	page, err := r.queue.List(context.Background(), "acme", queue.Filter{}, "", 100)
	if err != nil {
		r.t.Error(err)
	}
	return len(page.Jobs)
}

// onPut runs fn once the next job has been queued.
func (r *rig) onPut(fn func()) {
	n := r.jobs()
	r.background(func(ctx context.Context) error {
		for r.jobs() == n && ctx.Err() == nil {
			time.Sleep(2 * time.Millisecond)
		}
		fn()
		return nil
	})
}

// onWait runs fn once one more caller waits for a job.
func (r *rig) onWait(fn func()) {
	waiting := func() float64 {
		var m dto.Metric
		if err := r.proxy.metrics.waiting.Write(&m); err != nil {
			r.t.Error(err)
		}
		return m.GetGauge().GetValue()
	}
	n := waiting()
	r.background(func(ctx context.Context) error {
		for waiting() <= n && ctx.Err() == nil {
			time.Sleep(2 * time.Millisecond)
		}
		fn()
		return nil
	})
}

// busy makes the next call wait until its job is queued.
func (r *rig) busy() {
	r.t.Helper()
	release := r.occupy()
	r.onPut(release)
}

// started starts a runner that starts its job and passes it to run.
func started(r *rig, run func(ctx context.Context, c *queue.Claim) queue.Verdict) {
	r.worker(func(ctx context.Context, c *queue.Claim) queue.Verdict {
		if err := c.Start(ctx); err != nil {
			return queue.Verdict{Kind: queue.Requeue, Unused: true}
		}
		return run(ctx, c)
	})
}

const streamed = `"max_tokens":5,"stream":true`

// TestWaitPlain: a call that waits is answered as if it had not, and recorded with its cost.
func TestWaitPlain(t *testing.T) {
	r := newRig(t, single, nil, window(roomy, time.Hour))
	r.worker(nil)
	r.busy()
	a := r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "wait=60")
	if a.status != 200 || !strings.Contains(a.body, `"choices"`) || a.header.Get("X-Llmguard-Job-Id") == "" || a.header.Get("Preference-Applied") != "wait=60" || a.header.Get(guard.HeaderCost) == "" {
		t.Errorf("got status %d, %v, %s; want 200", a.status, a.header, a.body)
	}
	m := r.records(1)[0]
	if m["model"] != "gpt-4o" || m["pool"] != "main" || m["outcome"] != "succeeded" || m["job"] != a.header.Get("X-Llmguard-Job-Id") || m["cost_nano_usd"].(float64) <= 0 || m["waited"] == nil {
		t.Errorf("record %v, want its model, pool, job and cost", m)
	}
}

// TestWaitStream: newlines keep a waiting stream alive and commit its status; its cost is in a
// trailer.
func TestWaitStream(t *testing.T) {
	r := newRig(t, single, func(o *Options) { o.KeepAlive = 10 * time.Millisecond }, window(roomy, time.Hour))
	r.worker(nil)
	release := r.occupy()
	s := r.open(t.Context(), prompt("hi", streamed))
	s.expect("\n\n")
	release()
	a := s.rest()
	events := strings.TrimLeft(a.body, "\n")
	if a.status != 200 || !strings.HasPrefix(events, "data: ") || !strings.HasSuffix(events, "data: [DONE]\n\n") {
		t.Errorf("got status %d, %q; want 200 and events to [DONE]", a.status, a.body)
	}
	if got, want := a.header.Get("Content-Type"), "text/event-stream; charset=utf-8"; got != want {
		t.Errorf("got Content-Type %q, want %q", got, want)
	}
	if a.trailer.Get(guard.HeaderCost) == "" {
		t.Errorf("got trailer %v, want %s in it", a.trailer, guard.HeaderCost)
	}
}

// failingRig has a provider that refuses every call.
func failingRig(t *testing.T, keepAlive time.Duration) *rig {
	t.Helper()
	r := newRig(t, single, func(o *Options) { o.KeepAlive = keepAlive })
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Status: 400, Code: "bad_thing"}
	})
	r.worker(nil)
	return r
}

// TestWaitErrors: a failure keeps its status until the first newline was sent, and is an error
// event from then on.
func TestWaitErrors(t *testing.T) {
	r := failingRig(t, time.Hour)
	for _, body := range []string{prompt("hi", `"max_tokens":5`), prompt("hi", streamed)} {
		r.busy()
		r.chat(body).fails(t, 400, "bad_thing")
	}
	if list := r.records(2); list[0]["outcome"] != "failed" || list[0]["model"] != "gpt-4o" {
		t.Errorf("record %v, want a failed call of gpt-4o", list[0])
	}
	r = failingRig(t, 10*time.Millisecond)
	release := r.occupy()
	s := r.open(t.Context(), prompt("hi", streamed))
	s.expect("\n")
	release()
	a := s.rest()
	event := strings.TrimLeft(a.body, "\n")
	if a.status != 200 || !strings.HasPrefix(event, `data: {"error":`) || !strings.Contains(event, "bad_thing") || !strings.HasSuffix(event, "\n\n") {
		t.Errorf("got status %d, %q; want 200 and an error event with bad_thing", a.status, a.body)
	}
}

// TestWaitBroken: an answer that breaks off in the worker never looks complete.
func TestWaitBroken(t *testing.T) {
	r := newRig(t, single, nil)
	const begun = "data: {\"choices\":[]}\n\n"
	started(r, func(_ context.Context, c *queue.Claim) queue.Verdict {
		c.Output().Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(c.Output(), begun)
		return queue.Verdict{Kind: queue.Fail, Error: wire.BadGateway("The provider broke off", nil)}
	})
	r.busy()
	if a := r.chat(prompt("hi", streamed)); !strings.HasPrefix(a.body, begun+`data: {"error":{"message":"The provider broke off"`) {
		t.Errorf("stream: %d %q, want what was begun and an error event", a.status, a.body)
	}
	r.busy()
	r.chat(prompt("hi", `"max_tokens":5`)).fails(t, 502, "upstream_error")
	id := r.records(2)[1]["job"].(string)
	if a := r.call("GET", "/v1/jobs/"+id+"/result", ""); a.err == nil {
		t.Errorf("half an answer was handed out as a whole one: %d %q, want an error", a.status, a.body)
	}
}

// TestWaitAttempts: what a dead attempt left of a plain answer is void.
func TestWaitAttempts(t *testing.T) {
	r := newRig(t, single, nil)
	var n atomic.Int64
	started(r, func(_ context.Context, c *queue.Claim) queue.Verdict {
		c.Output().Header().Set("X-Attempt", string(rune('0'+n.Add(1))))
		if n.Load() == 1 {
			_, _ = io.WriteString(c.Output(), `{"half":`)
			return queue.Verdict{Kind: queue.Requeue, Wait: 50 * time.Millisecond}
		}
		_, _ = io.WriteString(c.Output(), `{"whole":1}`)
		return queue.Verdict{Kind: queue.Done, Status: 200}
	})
	r.busy()
	if a := r.chat(prompt("hi", `"max_tokens":5`)); a.status != 200 || a.body != `{"whole":1}` || a.header.Get("X-Attempt") != "2" {
		t.Errorf("got status %d, %q; want 200", a.status, a.body)
	}
}

// TestWaitPutBack: a call that is put back into the queue waits for the rest of its caller's
// patience.
func TestWaitPutBack(t *testing.T) {
	r := newRig(t, single, nil)
	started(r, func(context.Context, *queue.Claim) queue.Verdict {
		return queue.Verdict{Kind: queue.Requeue, Wait: time.Hour, Refused: true}
	})
	r.busy()
	r.chat(prompt("hi", `"max_tokens":5`), "X-Stainless-Timeout", "0.4").fails(t, 429, "rate_limit_exceeded")
}

// TestWaitPatience: the end of patience leads to 429 and a reserved place; once a stream's status
// was sent, to an error event and an expired job.
func TestWaitPatience(t *testing.T) {
	t.Parallel()
	r := newRig(t, single, func(o *Options) { o.KeepAlive = 50 * time.Millisecond })
	release := r.occupy()
	var a answer
	r.until("a place in the queue before the caller's patience ended", func() bool {
		a = r.chat(prompt("hi", `"max_tokens":5`), "X-Stainless-Timeout", "0.4")
		return a.header.Get(headerJob) != ""
	})
	if text := a.fails(t, 429, "rate_limit_exceeded"); a.header.Get("Retry-After") != "1" || !strings.Contains(text, "reserved for 90 s") {
		t.Errorf("got %s, headers %v; want Retry-After 1 and a place kept for 90 s", text, a.header)
	}
	var s answer
	r.until("a stream before the caller's patience ended", func() bool {
		s = r.chat(prompt("hi", streamed), "Prefer", "wait=1")
		return s.header.Get(headerJob) != "" && s.status == 200
	})
	if !strings.Contains(s.body, "\ndata: {\"error\":") {
		t.Errorf("got %q; want an error event", s.body)
	}
	for _, want := range []struct {
		job   string
		state queue.State
	}{{a.header.Get(headerJob), queue.Queued}, {s.header.Get(headerJob), queue.Expired}} {
		job, err := r.queue.Job(t.Context(), "acme", want.job)
		if err != nil || job.State != want.state {
			t.Errorf("job %+v, %v; want %s", job, err, want.state)
		}
	}
	release()
}

// TestWaitExpiredByUs: a caller whose job this process has expired without reading the reply is over the
// limit, like any other whose patience ends.
func TestWaitExpiredByUs(t *testing.T) {
	t.Parallel()
	r := newRig(t, single, func(o *Options) { o.KeepAlive = 50 * time.Millisecond })
	defer r.occupy()()
	for _, body := range []string{prompt("hi", `"max_tokens":5`), prompt("hi", streamed)} {
		r.onPut(func() {
			page, err := r.queue.List(t.Context(), "acme", queue.Filter{State: queue.Queued}, "", 1)
			if err != nil || len(page.Jobs) != 1 {
				t.Errorf("got %+v, %v; want the job that waits", page, err)
				return
			}
			if _, err := r.queue.Expire(t.Context(), "acme", page.Jobs[0].ID); err != nil {
				t.Error(err)
			}
		})
		a := r.chat(body, "Prefer", "wait=60")
		if a.status == 200 && strings.Contains(a.body, `"code":"rate_limit_exceeded"`) {
			continue // the status of the stream was sent before
		}
		if a.fails(t, 429, "rate_limit_exceeded"); a.header.Get("Retry-After") == "" {
			t.Errorf("got headers %v, want Retry-After", a.header)
		}
	}
}

// TestWaitTooLong: a wait that is expected to be too long is refused immediately: by what refused
// the call, by the queue ahead of it, or by the org.
func TestWaitTooLong(t *testing.T) {
	r := newRig(t, queue.Pool{RPM: 6}, nil)
	g, err := r.queue.Quota().Take(t.Context(), quota.Request{Pool: "main", ID: wire.NewCallID(), Org: "acme", User: "tester"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.queue.Quota().Give(context.Background(), g, false) }()
	for range 3 {
		if a := r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "respond-async"); a.status != 202 {
			t.Fatalf("got status %d, %s; want 202", a.status, a.body)
		}
	}
	for range 12 { // waiting callers, one per 10 s
		job := &queue.Job{ID: r.queue.NewID("main"), Pool: "main", Org: "acme", User: "alice", Class: queue.Interactive, Endpoint: wire.ChatCompletions}
		if err := r.queue.Put(t.Context(), job, []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
	a := r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "wait=60")
	text := a.fails(t, 429, "rate_limit_exceeded")
	if wait, _ := strconv.Atoi(a.header.Get("Retry-After")); wait < 100 || wait > 160 || a.header.Get("X-Should-Retry") != "false" || !strings.Contains(text, "(calls ahead: about 13)") {
		t.Errorf("got %s, headers %v; want 100 to 160 s for the 12 callers and a job's turn, and no retry", text, a.header)
	}
	if job, err := r.queue.Job(t.Context(), "acme", r.records(4)[3]["job"].(string)); err != nil || job.State != queue.Expired {
		t.Errorf("job %+v, %v; want an expired job", job, err)
	}

	r = newRig(t, single, nil)
	r.block(time.Hour)
	a = r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "wait=5")
	left, _ := strconv.Atoi(a.header.Get("Retry-After"))
	if a.fails(t, 429, "rate_limit_exceeded"); r.records(1)[0]["job"] != nil || a.header.Get("X-Should-Retry") != "false" || left < 3000 || left > 3600 {
		t.Errorf("a wait that is foreseen to be too long was begun, or told wrongly: %v; want no job, no retry and 3000 to 3600 s", a.header)
	}
	r.org.MaxWait = time.Minute
	if r.chat(prompt("hi", `"max_tokens":5`)).fails(t, 429, "rate_limit_exceeded"); r.records(2)[1]["job"] != nil {
		t.Error("a wait longer than the org's was begun")
	}
}

// TestWaitOrgBound: an org's max_wait ends the job; no reserved place lasts longer.
func TestWaitOrgBound(t *testing.T) {
	t.Parallel()
	r := newRig(t, single, nil)
	r.org.MaxWait = 2 * time.Second
	defer r.occupy()()
	a := r.chat(prompt("hi", `"max_tokens":5`))
	if text := a.fails(t, 429, "rate_limit_exceeded"); strings.Contains(text, "kept") {
		t.Errorf("got %s, want that no place is kept", text)
	}
	if job, err := r.queue.Job(t.Context(), "acme", r.records(1)[0]["job"].(string)); err != nil || job.State != queue.Expired {
		t.Errorf("job %+v, %v; want an expired job", job, err)
	}
}

// TestQueuedDearerModels: a call from the queue is charged for the model that answered, like a live
// call.
func TestQueuedDearerModels(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	r.worker(nil)
	mini := func(directives string) string {
		return strings.Replace(prompt("[fake: output=9"+directives+"]", `"max_tokens":50`), "gpt-4o", "gpt-4o-mini", 1)
	}
	body, asked := mini(" model=gpt-4o"), r.chat(mini(""))
	live, queued := r.chat(body), r.chat(body, "Prefer", "respond-async, wait=60")
	cost := func(a answer) float64 {
		n, err := strconv.ParseFloat(a.header.Get(guard.HeaderCost), 64)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	if cost(queued) != cost(live) || cost(queued) < 5*cost(asked) {
		t.Errorf("charged %v live, %v queued, %v for the model asked for", cost(live), cost(queued), cost(asked))
	}
	if queued.header.Get(headerJob) == "" {
		t.Error("the call was not queued")
	}
}

// TestAShortPatienceGetsAPlace: a caller whose patience ends before its call has its turn at Redis gets 429
// with its place, like one whose patience ends in the queue, and not 503.
func TestAShortPatienceGetsAPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{Concurrency: 1}, nil)
	defer r.occupy()()
	for range maxPuts {
		r.proxy.calls.puts <- struct{}{}
	}
	time.AfterFunc(1500*time.Millisecond, func() {
		for range maxPuts {
			redistest.Came(t, r.proxy.calls.puts)
		}
	})
	a := r.chat(prompt("hello", `"max_tokens":5`), "Prefer", "wait=1")
	if a.status != 429 || a.header.Get("Retry-After") == "" || a.header.Get(headerWaitingFor) == "" || r.jobs() != 1 {
		t.Errorf("got %d %v with %d jobs, want 429 with a place", a.status, a.header, r.jobs())
	}
}
