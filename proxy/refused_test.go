package proxy

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

// refusing is a way to have a call refused.
type refusing struct {
	name   string
	cause  budget.Cause
	status int
	pool   queue.Pool
	limits []budget.Limit
	// call prepares the rig and makes the call.
	call func(r *rig) answer
}

const five = `"max_tokens":5`

var oneCall = budget.Limit{
	ID: "calls", Subject: budget.User, Metric: budget.Requests,
	Shape: budget.Shape{Kind: budget.ExactWindow, Amount: 1, Window: time.Hour},
}

// refusals are ways to have a call refused, at least one for each kind of cause.
var refusals = []refusing{
	{name: "limit", cause: "limit:calls", status: 429, limits: []budget.Limit{oneCall}, call: func(r *rig) answer {
		r.org.OverLimit = "refuse"
		r.chat(prompt("hi", five))
		return r.chat(prompt("hi", five))
	}},
	{name: "limit, after a wait", cause: "limit:calls", status: 429, limits: []budget.Limit{oneCall}, call: func(r *rig) answer {
		r.holdOne()
		return r.chat(prompt("hi", five), "Prefer", "wait=1")
	}},
	{
		name: "limit, in a stream", cause: "limit:w", status: 402, limits: []budget.Limit{window(1_500_000, time.Hour)},
		call: func(r *rig) answer {
			r.org.Hold, r.org.GrowStep = "grow", 50
			return r.chat(prompt("[fake: output=900]", `"stream":true`))
		},
	},
	{
		name: "limit, of a hold", cause: "limit:w", status: 402, limits: []budget.Limit{window(1_000_000, time.Hour)},
		call: func(r *rig) answer {
			r.scopes("calls", holdScope)
			return r.call("POST", "/v1/holds", `{"cost_usd":"1"}`)
		},
	},
	{name: "spend cap", cause: "cap:everybody", status: 402, call: func(r *rig) answer {
		r.capped(1)
		return r.chat(prompt("hi", five))
	}},
	{name: "requests", cause: "requests:key", status: 429, call: func(r *rig) answer {
		r.limitRequests(requestLimit("key", budget.Key, 1))
		r.chat(prompt("hi", five))
		return r.chat(prompt("hi", five))
	}},
	{name: "brake", cause: "brake:wild", status: 403, call: func(r *rig) answer {
		rule := budget.BrakeRule{Calls: 1, Window: time.Hour}
		b, err := budget.NewBrake(budget.Brake{ID: "wild", Subject: budget.User, Action: budget.BrakeStop, Rule: rule})
		if err != nil {
			r.t.Fatal(err)
		}
		r.org.Brakes = []*budget.Brake{b}
		r.chat(prompt("hi", five))
		return r.chat(prompt("hi", five))
	}},
	{name: "stop", cause: "stop:all", status: 403, call: func(r *rig) answer {
		r.stopAll()
		return r.chat(prompt("hi", five))
	}},
	{
		name: "stop, of a call that waits", cause: "stop:all", status: 403, limits: []budget.Limit{oneCall},
		call: func(r *rig) answer {
			r.holdOne()
			done := make(chan answer, 1)
			go func() { done <- r.chat(prompt("hi", five)) }()
			r.counted("limit:calls", 0, 1)
			r.stopAll()
			r.proxy.ObeyStops()
			return redistest.Came(r.t, done)
		},
	},
	{name: "pool, for good", cause: "pool:main", status: 402, pool: queue.Pool{TPM: 100}, call: func(r *rig) answer {
		return r.chat(prompt("hi", `"max_tokens":1000`))
	}},
	{name: "pool, after a wait", cause: "pool:main", status: 429, pool: single, call: func(r *rig) answer {
		r.occupy()
		return r.chat(prompt("hi", five), "Prefer", "wait=1")
	}},
	{name: "queue", cause: "queue:jobs", status: 429, pool: queue.Pool{Concurrency: 1, MaxJobs: 1}, call: func(r *rig) answer {
		r.occupy()
		r.chat(prompt("hi", five), "Prefer", "respond-async")
		return r.chat(prompt("hi", five), "Prefer", "respond-async")
	}},
	{name: "memory", cause: "memory:store", status: 503, call: func(r *rig) answer {
		r.memory("1")
		a := r.chat(prompt("hi", five))
		r.memory("0")
		return a
	}},
	{name: "run", cause: "run:run", status: 402, call: func(r *rig) answer {
		r.scopes("calls", runScope)
		r.org.Runs.MaxDepth, r.org.Runs.MaxOpen, r.org.Runs.MaxLife = 1, 5, time.Hour
		run := r.run(r.key, "POST", "", `{"amount":"0.0001"}`)
		return r.chat(prompt("hi", `"max_tokens":1000`), "Authorization", "Bearer "+run.Key)
	}},
	{name: "run that has ended", cause: "run:ended", status: 402, call: func(r *rig) answer {
		r.scopes("calls", runScope)
		r.org.Runs.MaxDepth, r.org.Runs.MaxOpen, r.org.Runs.MaxLife = 1, 5, time.Hour
		run := r.run(r.key, "POST", "", `{"amount":"1"}`)
		r.run(r.key, "DELETE", "/"+run.ID, "")
		return r.chat(prompt("hi", five), "Authorization", "Bearer "+run.Key)
	}},
	{name: "provider's error", cause: "provider:openai", status: 500, call: func(r *rig) answer {
		return r.chat(prompt("[fake: status=500]", five))
	}},
	{name: "provider is busy", cause: "provider:openai", status: 429, call: func(r *rig) answer {
		r.org.OverLimit = "refuse"
		return r.chat(prompt("[fake: status=529]", five))
	}},
	{name: "provider is busy, after a wait", cause: "provider:openai", status: 429, call: func(r *rig) answer {
		r.worker(nil)
		return r.chat(prompt("[fake: status=529 retry-after=1]", five), "Prefer", "wait=3")
	}},
	{name: "provider's stream breaks off", cause: "provider:openai", status: 502, call: func(r *rig) answer {
		return r.chat(prompt("[fake: cut=eof output=20]", `"max_tokens":50,"stream":true`))
	}},
	{name: "provider is unreachable", cause: "provider:openai", status: 502, call: func(r *rig) answer {
		_ = r.fake.Close()
		return r.chat(prompt("hi", five))
	}},
	{name: "provider's error, of a job", cause: "provider:openai", status: 500, call: func(r *rig) answer {
		r.worker(nil)
		return r.chat(prompt("[fake: status=500]", five), "Prefer", "respond-async")
	}},
}

// TestRefusalsByCause: a call that is refused counts once, under what refused it, and is recorded with the id that
// its caller got. Nothing counts as waited that was refused in the end.
func TestRefusalsByCause(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, c.pool, nil, c.limits...)
			a := c.call(r)
			r.counted(c.cause, 1, 0)
			id := cmp.Or(a.header.Get(guard.HeaderCall), a.header.Get("X-Request-Id"))
			got, err := r.store.Refusals.Call(t.Context(), "acme", id)
			if err != nil || got == nil {
				t.Fatalf("got %+v, %v for the call %s, which got %d %.300s; %+v", got, err, id, a.status, a.body, r.refusals())
			}
			if got.Cause != c.cause || got.Status != c.status || got.User != "alice" || got.Key != "k1" || got.Waited {
				t.Errorf("got %+v, want alice's call with status %d, refused by %s", got, c.status, c.cause)
			}
			if c.cause.Kind() == budget.CauseLimit && (got.Needed == 0 || got.Metric == "") {
				t.Errorf("got %+v, want what the call needed of the limit", got)
			}
			if list := r.refusals(); len(list) != 1 {
				t.Errorf("got counts %+v, want one", list)
			}
			if got.JobID != "" {
				byJob, err := r.store.Refusals.Call(t.Context(), "acme", got.JobID)
				if err != nil || byJob == nil || byJob.ID != id {
					t.Errorf("got %+v, %v for the job %s", byJob, err, got.JobID)
				}
			}
		})
	}
	for _, kind := range budget.CauseKinds() {
		if !slices.ContainsFunc(refusals, func(c refusing) bool { return c.cause.Kind() == kind }) {
			t.Errorf("no call is refused by a %s", kind)
		}
	}
}

// TestMistakesAreNoRefusals: what is wrong with a request, or its key, does not count.
func TestMistakesAreNoRefusals(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil, oneCall)
	r.chat(`{"model":"gpt-4o"}`).fails(t, 400, "missing_required_parameter")
	r.chat(strings.Replace(prompt("hi", five), "gpt-4o", "none", 1)).fails(t, 400, "model_not_priced")
	r.chat(prompt("hi", five), "Authorization", "Bearer x").fails(t, 401, "invalid_api_key")
	r.chat(prompt("[fake: status=400]", five))
	r.records(4)
	r.until("the provider's mistake holds nothing", func() bool { return r.held() == 0 })
	r.holdOne()
	r.org.OverLimit = "refuse"
	r.chat(prompt("hi", five)).fails(t, 429, "rate_limit_exceeded")
	r.counted("limit:calls", 1, 0)
	if list := r.refusals(); len(list) != 1 {
		t.Errorf("got %+v, want the last call only", list)
	}
}

// TestWaitsAreCountedOnce: a call that waits and then runs counts as waited, and is recorded so.
func TestWaitsAreCountedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, single, nil)
	r.worker(nil)
	release := r.occupy()
	done := make(chan answer, 1)
	go func() { done <- r.chat(prompt("hi", five)) }()
	r.counted("pool:main", 0, 1)
	release()
	a := redistest.Came(t, done)
	if a.status != http.StatusOK {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	got, err := r.store.Refusals.Call(t.Context(), "acme", a.header.Get(headerJob))
	if err != nil || got == nil || !got.Waited || got.Status != 0 || got.Cause != "pool:main" || got.JobID == "" {
		t.Errorf("got %+v, %v; want a call that waited", got, err)
	}
	r.counted("pool:main", 0, 1)
}

// holdOne has a call of alice hold what one call needs, so that another waits for its end.
func (r *rig) holdOne() {
	r.t.Helper()
	one := budget.Amounts{Cost: 1}
	call := ledger.Call{ID: wire.NewCallID(), Attempt: 1, Org: "acme", User: "alice", Key: "k1", Model: "gpt-4o"}
	if _, err := r.store.Hold(r.t.Context(), budget.Terms{Limits: r.org.Limits, Max: one, Expected: one, Call: call}); err != nil {
		r.t.Fatal(err)
	}
}

// scopes gives alice's key scopes.
func (r *rig) scopes(scopes ...string) {
	r.proxy.SetDirectory(&auth.Directory{ByHash: map[string]auth.Principal{
		keys.Hash(keys.Pepper{}, r.key): {Org: r.org, User: "alice", Key: "k1", Scopes: scopes},
	}})
}

func (r *rig) stopAll() {
	p := *r.guard.Policy()
	p.Stopped = true
	r.guard.SetPolicy(&p)
}

// TestReturnedCallIsCountedOnce: a call that left its reserved place, came back and failed in the end counts under the
// cause of its wait, whenever it waited first and whatever made its job wait last.
func TestReturnedCallIsCountedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, single, nil)
	release := r.occupy()
	body := prompt("[fake: status=500]", five)
	key := quota.Key("main", "job:"+r.sentAway(body))
	r.counted("pool:main", 1, 0)
	first := fmt.Sprint(time.Now().Add(-3*time.Hour).UnixMicro(), " pool:main")
	if err := r.rdb.HSet(t.Context(), key, "wait", first, "limit", "limit:other").Err(); err != nil {
		t.Fatal(err)
	}
	done := make(chan answer, 1)
	go func() { done <- r.chat(body, retryHeader, "1") }()
	r.counted("pool:main", 1, 1)
	r.worker(nil)
	release()
	if a := redistest.Came(t, done); a.status != 500 {
		t.Errorf("got %d %s, want the provider's error", a.status, a.body)
	}
	r.counted("provider:openai", 1, 0)
	r.counted("pool:main", 1, 0)
	if list := r.refusals(); len(list) != 2 {
		t.Errorf("got %+v, want two causes", list)
	}
}
