package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// spend uses up n of alice's limits.
func (r *rig) spend(n int64) {
	r.t.Helper()
	store := budget.New(redistest.DB(r.rdb), budget.Options{})
	most := budget.Amounts{Cost: pricing.Nano(n)}
	call := ledger.Call{ID: wire.NewCallID(), Attempt: 1, Org: "acme", User: "alice", Key: "k1", Model: "gpt-4o"}
	h, err := store.Hold(r.t.Context(), budget.Terms{Limits: r.org.Limits, Call: call, Max: most, Expected: most})
	if err == nil {
		_, err = store.Settle(r.t.Context(), h, budget.Settlement{Actual: most})
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// jobAt reads a job.
func (r *rig) jobAt(id string) (v jobView) {
	r.t.Helper()
	if err := json.Unmarshal([]byte(r.call(http.MethodGet, "/v1/jobs/"+id, "").body), &v); err != nil {
		r.t.Fatal(err)
	}
	return v
}

// TestETAIsTheLaterOfQuotaAndBudget: a job reports which of the two it waits for, and until when.
func TestETAIsTheLaterOfQuotaAndBudget(t *testing.T) {
	r := newRig(t, queue.Pool{RPM: 600}, nil, window(40_000_000, time.Hour))
	if j, _ := r.submitted(); j.WaitingFor != "worker" || j.ETA == nil || *j.ETA > 1 {
		t.Errorf("within its limits: got %s, %v; want the next worker", j.WaitingFor, j.ETA)
	}
	r.spend(39_999_000)
	j, a := r.submitted()
	if j.WaitingFor != "limit:w" || j.ETA == nil || *j.ETA < 3_590 || *j.ETA > 3_600 {
		t.Errorf("over its limit: got %s, %v; want the limit's hour", j.WaitingFor, j.ETA)
	}
	for name, want := range map[string]string{
		headerAhead: "1", headerWaitingFor: "limit:w", "X-Ratelimit-Remaining-Requests": "0",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("the 202 has %s %q, want %q", name, got, want)
		}
	}
	if !strings.HasPrefix(a.header.Get("X-Llmguard-Limits"), "w;metric=cost;") {
		t.Errorf("the 202 has the limits %q", a.header.Get("X-Llmguard-Limits"))
	}
	next, _ := r.events("/v1/jobs/"+j.ID+"/events", "")
	if e, ok := next(); !ok || !strings.Contains(e.data, `"waiting_for":"limit:w"`) {
		t.Errorf("its events say %s, want what it waits for", e.data)
	}
	r.block(2 * time.Hour)
	r.until("over its limit, it waits for the provider, which is closed for longer", func() bool {
		j = r.jobAt(j.ID)
		return j.WaitingFor == "pool:main" && *j.ETA >= 7_100
	})
}

// TestETAOfHeldMoney: open calls return held money when they end, so the ETA is how long calls take, not
// the window of their limit.
func TestETAOfHeldMoney(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(40_000_000, time.Hour))
	most := budget.Amounts{Cost: 39_999_000}
	call := ledger.Call{ID: wire.NewCallID(), Attempt: 1, Org: "acme", User: "alice", Key: "k1", Model: "gpt-4o"}
	if _, err := budget.New(redistest.DB(r.rdb), budget.Options{}).Hold(t.Context(), budget.Terms{Limits: r.org.Limits, Call: call, Max: most, Expected: most}); err != nil {
		t.Fatal(err)
	}
	if j, _ := r.submitted(); j.WaitingFor != "limit:w" || j.ETA == nil || *j.ETA > 6 {
		t.Errorf("got %s, %v; want the limit, for as long as a call takes", j.WaitingFor, j.ETA)
	}
}

// TestWaitingStreamReportsItsPlace: the place is in the headers while they can be sent, and in
// comments for clients that are known to skip them.
func TestWaitingStreamReportsItsPlace(t *testing.T) {
	r := newRig(t, single, func(o *Options) { o.KeepAlive = 10 * time.Millisecond })
	r.worker(nil)
	for i, header := range [][2]string{{"X-Stainless-Lang", "python"}, {"Prefer", "progress"}} {
		release := r.occupy()
		eta, comment := []string{`^$`, `^\d+s$`}[i], []string{"unknown", `\d+`}[i] // known once a call has ended
		s := r.open(t.Context(), prompt("hi", streamed), header[0], header[1])
		got := s.resp.Header
		known := regexp.MustCompile(eta).MatchString(got.Get(headerETA))
		if got.Get(headerAhead) != "0" || !known || got.Get(headerWaitingFor) != "pool:main" {
			t.Errorf("headers of the stream: %v", got)
		}
		line, err := bufio.NewReader(s.resp.Body).ReadString('\n')
		if want := "^: waiting position=1 eta=" + comment + " for=pool:main\n$"; !regexp.MustCompile(want).MatchString(line) {
			t.Errorf("got %q (%v), want %s", line, err, want)
		}
		release()
		a := s.rest()
		r.until("the call's time is known", func() bool { return r.rdb.HGet(t.Context(), "lg:{main}:fair", "took").Val() != "" })
		if a.status != 200 || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
			t.Errorf("%v: got status %d, %q", header, a.status, a.body)
		}
	}
}

// TestEndOfPatienceReportsThePlace: the 429 of a call that waited reports its place.
func TestEndOfPatienceReportsThePlace(t *testing.T) {
	r := newRig(t, single, nil)
	defer r.occupy()()
	a := r.chat(prompt("hi", `"max_tokens":5`), "Prefer", "wait=1")
	a.fails(t, 429, "rate_limit_exceeded")
	if a.header.Get(headerAhead) != "0" || a.header.Get(headerWaitingFor) != "pool:main" || a.header.Get("Retry-After") == "" {
		t.Errorf("got %v, want its place and when to come back", a.header)
	}
}

// TestEveryRefusalSaysWhenToRetry: no 429 or 503 is sent without retry advice, whichever component
// wrote it.
func TestEveryRefusalSaysWhenToRetry(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	for _, status := range []int{429, 503} {
		for _, advice := range []string{"", "Retry-After", "X-Should-Retry"} {
			w := httptest.NewRecorder()
			x := r.proxy.newExchange(w, httptest.NewRequest(http.MethodGet, "/", nil))
			if advice != "" {
				x.Header().Set(advice, "false")
			}
			x.WriteHeader(status)
			h := w.Header()
			if n := len(h["Retry-After"]) + len(h["X-Should-Retry"]); n != 1 || advice == "" && h.Get("Retry-After") != "1" {
				t.Errorf("%d after %q: got %v", status, advice, h)
			}
		}
	}
}

// TestSlowWorkerSendsOnTheFirstHold: a machine that needs longer to prepare a job than a grant of
// quota lives still sends it, once, with the money that was held for it.
func TestSlowWorkerSendsOnTheFirstHold(t *testing.T) {
	r := newRig(t, queue.Pool{RPM: 600}, nil, window(roomy, time.Hour))
	run := queue.NewRunner(r.queue, r.guard, wire.Limits{}, slog.New(slog.DiscardHandler), nil)
	r.worker(func(ctx context.Context, c *queue.Claim) queue.Verdict {
		time.Sleep(600 * time.Millisecond) // while the token tables load
		return run(ctx, c)
	})
	j, _ := r.submitted()
	r.until("the job has ended", func() bool { return r.jobAt(j.ID).Status.Terminal() })
	if j = r.jobAt(j.ID); j.Status != queue.Succeeded || j.Attempts != 1 {
		t.Errorf("the job %s after %d attempts", j.Status, j.Attempts)
	}
}
