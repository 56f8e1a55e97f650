package proxy

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/redistest"
)

// holdingRuns is a runRig whose key may hold, too.
func holdingRuns(t *testing.T) *rig {
	t.Helper()
	r := runRig(t)
	scopes := []string{"holds", runScope, "calls", "usage"}
	r.proxy.SetDirectory(&auth.Directory{ByHash: map[string]auth.Principal{
		keys.Hash(keys.Pepper{}, r.key): {Org: r.org, User: "alice", Key: "k1", Scopes: scopes},
	}})
	return r
}

// A run is reported when a call is refused because of its amount, or because of the amount of a run it is inside of;
// not while open calls hold the rest, and not because of its limit on open calls.
func TestRunReachedIsReported(t *testing.T) {
	r := holdingRuns(t)
	expect := func(want ...string) {
		t.Helper()
		r.mu.Lock()
		defer r.mu.Unlock()
		if !slices.Equal(r.reached, want) {
			t.Errorf("got %q reported, want %q", r.reached, want)
		}
		r.reached = nil
	}
	parent := r.run(r.key, "POST", "", `{"amount":"0.02"}`)
	child := r.run(parent.Key, "POST", "", `{"amount":"0.015"}`)
	hold := func(key, cost string, status int) {
		t.Helper()
		a := r.call("POST", "/v1/holds", `{"cost_usd":"`+cost+`"}`, "Authorization", "Bearer "+key)
		if a.status != status {
			t.Fatalf("a hold of %s: got %d %s, want %d", cost, a.status, a.body, status)
		}
	}
	hold(child.Key, "0.01", 200)
	hold(child.Key, "0.01", 429)
	expect()
	hold(child.Key, "0.016", 402)
	expect(child.ID)
	hold(parent.Key, "0.021", 402)
	expect(parent.ID)
	hold(parent.Key, "0.01", 200)
	hold(child.Key, "0.001", 429) // of the parent
	expect()
}

// runReads counts how often runs are read.
type runReads struct{ n atomic.Int64 }

func (h *runReads) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *runReads) count(cmd redis.Cmder) {
	if args := cmd.Args(); cmd.Name() == "hgetall" && strings.Contains(fmt.Sprint(args[1]), "}:run:") {
		h.n.Add(1)
	}
}

func (h *runReads) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { h.count(cmd); return next(ctx, cmd) }
}

func (h *runReads) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			h.count(cmd)
		}
		return next(ctx, cmds)
	}
}

// A call reads each of its runs once, whether its key or a header names them.
func TestRunsAreReadOnce(t *testing.T) {
	r := runRig(t)
	root := r.run(r.key, "POST", "", `{"amount":3}`)
	child := r.run(root.Key, "POST", "", `{"amount":2}`)
	leaf := r.run(child.Key, "POST", "", `{"amount":1}`)
	named := "amount=0.5; run=abc"
	r.inRun(r.key, headerBudget, named)
	reads := &runReads{}
	r.rdb.AddHook(reads)
	for name, tc := range map[string]struct {
		key    string
		header []string
		want   int64
	}{
		"no run":                   {r.key, nil, 0},
		"the key of a run":         {root.Key, nil, 1},
		"the key of an inner run":  {leaf.Key, nil, 3},
		"a header":                 {r.key, []string{headerBudget, named}, 1},
		"a header with an id":      {r.key, []string{headerBudget, "run=" + root.ID}, 1},
		"an inner run in a header": {root.Key, []string{headerBudget, "run=" + child.ID}, 2},
		"one further inside":       {root.Key, []string{headerBudget, "run=" + leaf.ID}, 3},
		"from outside":             {r.key, []string{headerBudget, "run=" + leaf.ID}, 3},
	} {
		reads.n.Store(0)
		if a := r.inRun(tc.key, tc.header...); a.status != 200 {
			t.Errorf("%s: got %d %s", name, a.status, a.body)
		}
		if got := reads.n.Load(); got != tc.want {
			t.Errorf("%s: got runs read %d times, want %d", name, got, tc.want)
		}
	}
	redistest.Eventually(t, "the calls are charged to all runs that they were in", func() bool {
		s := r.spentByRun()
		return s[root.ID] == 6*s[leaf.ID]/3 && s[child.ID] == 4*s[leaf.ID]/3 && s[leaf.ID] > 0
	})
	r.run(r.key, "DELETE", "/"+child.ID, "")
	for _, key := range []string{r.key, root.Key} {
		r.inRun(key, headerBudget, "run="+leaf.ID).fails(t, 402, "run_budget_reached")
	}
}

// A hold is extended only if its runs can be read and are open, and ends without them.
func TestHoldOfARunThatIsNotRead(t *testing.T) {
	r := holdingRuns(t)
	run := r.run(r.key, "POST", "", `{"amount":1}`)
	as := []string{"Authorization", "Bearer " + run.Key}
	a := r.call("POST", "/v1/holds", `{"cost_usd":"0.3"}`, as...)
	id := regexp.MustCompile(`hold_[0-9a-z]+`).FindString(a.body)
	if a.status != 200 || id == "" {
		t.Fatalf("got %d %s, want a hold", a.status, a.body)
	}
	r.call("POST", "/v1/holds/"+id+"/extend", `{"cost_usd":"1.1"}`).fails(t, 402, "run_budget_reached")
	allow := func(rule string) {
		t.Helper()
		if err := r.rdb.Do(t.Context(), "acl", "setuser", "default", rule).Err(); err != nil {
			t.Fatal(err)
		}
	}
	allow("-hgetall")
	a = r.call("POST", "/v1/holds/"+id+"/extend", `{"cost_usd":"0.4"}`)
	shown := r.call("GET", "/v1/holds/"+id, "")
	allow("+hgetall")
	if a.status < 500 {
		t.Errorf("got %d %s, want an error", a.status, a.body)
	}
	if !strings.Contains(shown.body, `"held_cost_usd":"0.300000000"`) {
		t.Errorf("got the hold %s, want it as it was", shown.body)
	}
	r.run(r.key, "DELETE", "/"+run.ID, "")
	r.call("POST", "/v1/holds/"+id+"/extend", `{"cost_usd":"0.4"}`).fails(t, 402, "run_budget_reached")
	if a := r.call("POST", "/v1/holds/"+id+"/settle", `{"cost_usd":"0.25"}`); a.status != 200 {
		t.Fatalf("settle: got %d %s", a.status, a.body)
	}
	if got := r.run(r.key, "GET", "/"+run.ID, ""); got.Spent != "0.250000000" || got.Held != usd(0) {
		t.Errorf("got %+v, want what was settled", got)
	}
}
