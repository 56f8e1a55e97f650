package proxy

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// runRig is a rig whose key may give budgets to runs.
func runRig(t *testing.T, limits ...budget.Limit) *rig {
	t.Helper()
	r := newRig(t, queue.Pool{}, nil, limits...)
	r.org.Runs = settings.Runs{MaxDepth: 3, MaxOpen: 4, MaxAmount: settings.Quantity{N: 50e9, Money: true}, MaxLife: 100 * 60 * 60 * 1e9}
	return r
}

// run sends a request about runs with a key and returns the run.
func (r *rig) run(key, method, path, body string) guard.RunView {
	r.t.Helper()
	a := r.call(method, "/v1/keys/children"+path, body, "Authorization", "Bearer "+key)
	var v guard.RunView
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || a.status != 200 || v.Object != "run" {
		r.t.Fatalf("%s /v1/keys/children%s %s: got status %d, %s; want a run", method, path, body, a.status, a.body)
	}
	return v
}

// inRun sends a chat call with a key that holds 1,000 tokens of output of gpt-4o: $0.01 and its input.
func (r *rig) inRun(key string, header ...string) answer {
	r.t.Helper()
	return r.chat(prompt("hi", `"max_tokens":1000`), append([]string{"Authorization", "Bearer " + key}, header...)...)
}

// inRunNext is inRun once the calls before are settled, which is soon after their answers.
func (r *rig) inRunNext(key string, header ...string) answer {
	r.t.Helper()
	r.until("no call is open", func() bool {
		open, _, err := r.store.OpenHolds(r.t.Context(), "acme", 1)
		return err == nil && len(open) == 0
	})
	return r.inRun(key, header...)
}

// spentByRun returns what the ledger has for each run.
func (r *rig) spentByRun() map[string]pricing.Nano {
	out := map[string]pricing.Nano{}
	for _, e := range r.entries() {
		out[""] += e.Cost
		for _, id := range e.Run.IDs() {
			out[id] += e.Cost
		}
	}
	return out
}

// A key gives part of its budget to a child key. The child's calls end with run_budget_reached, a top-up lets them
// go on, and what it spent is what the ledger has for it.
func TestChildKey(t *testing.T) {
	r := runRig(t)
	child := r.run(r.key, "POST", "", `{"amount":"$0.02","expires_in":"2h","models":["gpt-4o"],"labels":{"run":"abc"}}`)
	if child.Amount != "0.020000000" || child.Remaining != child.Amount || *child.Name != "abc" ||
		!strings.HasPrefix(child.Key, "lg_run_") || child.Expires-child.Created != 7200 {
		t.Fatalf("got the child %+v", child)
	}
	n := 0
	for ; n < 1000; n++ {
		a := r.inRunNext(child.Key)
		if a.status == 402 {
			message := a.fails(t, 402, "run_budget_reached")
			for _, part := range []string{child.ID, `"abc"`, "amount $0.02", "spent $0.01", "/v1/keys/children/" + child.ID} {
				if !strings.Contains(message, part) {
					t.Errorf("got the message %q, want %q in it", message, part)
				}
			}
			if got := a.header.Get("X-Should-Retry"); got != "false" {
				t.Errorf("got X-Should-Retry %q, want false", got)
			}
			break
		}
		if a.status != 200 {
			t.Fatalf("call %d: got %d %s", n, a.status, a.body)
		}
	}
	if n == 0 || n == 1000 {
		t.Fatalf("got %d calls, want some and an end", n)
	}
	got := r.run(r.key, "GET", "/"+child.ID, "")
	redistest.Eventually(t, "the ledger has what the run spent", func() bool {
		return usd(int64(r.spentByRun()[child.ID])) == got.Spent
	})
	if got.Key != "" || *got.Last4 != child.Key[len(child.Key)-4:] {
		t.Errorf("the key is shown again: %+v", got)
	}

	r.call("POST", "/v1/keys/children/"+child.ID, `{"add_amount":1}`, "Authorization", "Bearer "+child.Key).
		fails(t, 404, "run_not_found") // not by itself
	for range 2 {
		a := r.call("POST", "/v1/keys/children/"+child.ID, `{"add_amount":"0.5"}`, "Idempotency-Key", "once")
		if a.status != 200 || !strings.Contains(a.body, `"amount":"0.520000000"`) {
			t.Fatalf("top-up: got %d %s", a.status, a.body)
		}
	}
	if a := r.inRunNext(child.Key); a.status != 200 {
		t.Fatalf("after a top-up: got %d %s", a.status, a.body)
	}
	if a := r.chat(`{"model":"gpt-4o-mini","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`, "Authorization", "Bearer "+child.Key); a.status != 404 {
		t.Errorf("another model: got %d %s, want 404", a.status, a.body)
	}
	if got := r.run(r.key, "DELETE", "/"+child.ID, ""); got.Status != "ended" || got.Ended == nil {
		t.Errorf("got %+v, want an ended run", got)
	}
	r.inRunNext(child.Key).fails(t, 402, "run_budget_reached")
	r.call("POST", "/v1/keys/children/"+child.ID, `{"add_amount":"1"}`).fails(t, 409, "run_ended")
	if a := r.inRunNext(r.key); a.status != 200 {
		t.Errorf("the parent: got %d %s", a.status, a.body)
	}
	r.inRunNext(keys.New(keys.Run)).fails(t, 401, "invalid_api_key")
}

// An org that is spread after its runs began admits no more of their calls.
func TestRunsOfASpreadOrg(t *testing.T) {
	r := runRig(t)
	child := r.run(r.key, "POST", "", `{"amount":"1"}`)
	r.org.Spread = budget.Spread{Parts: 4, By: budget.User}
	r.inRun(child.Key).fails(t, 403, "runs_not_allowed")
}

// Runs are inside one another up to a depth; none gets more than is left of its parent.
func TestRunsInside(t *testing.T) {
	r := runRig(t)
	root := r.run(r.key, "POST", "", `{"amount":1}`)
	child := r.run(root.Key, "POST", "", `{"amount":"0.5","models":["gpt-4o*"]}`)
	leaf := r.run(child.Key, "POST", "", `{"amount":"0.02"}`)
	as := func(key string) []string { return []string{"Authorization", "Bearer " + key} }
	for name, tc := range map[string]struct {
		key, body, code string
		status          int
	}{
		"too deep":            {leaf.Key, `{"amount":"0.01"}`, "run_too_deep", 400},
		"above the parent":    {child.Key, `{"amount":"0.51"}`, "amount_too_large", 400},
		"above the maximum":   {r.key, `{"amount":51}`, "invalid_value", 400},
		"nothing":             {r.key, `{"amount":0}`, "invalid_value", 400},
		"no amount":           {r.key, `{}`, "invalid_value", 400},
		"other models":        {child.Key, `{"amount":"0.1","models":["gpt-5"]}`, "invalid_value", 400},
		"unknown label":       {r.key, `{"amount":1,"labels":{"color":"red"}}`, "invalid_label", 400},
		"unknown member":      {r.key, `{"amont":1}`, "unknown_parameter", 400},
		"a life beyond rules": {r.key, `{"amount":1,"expires_in":"900h"}`, "invalid_value", 400},
	} {
		t.Run(name, func(t *testing.T) {
			r.call("POST", "/v1/keys/children", tc.body, as(tc.key)...).fails(t, tc.status, tc.code)
		})
	}
	if a := r.inRunNext(leaf.Key); a.status != 200 {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	redistest.Eventually(t, "each run has the call", func() bool {
		s := r.spentByRun()
		return s[""] > 0 && s[root.ID] == s[""] && s[child.ID] == s[""] && s[leaf.ID] == s[""]
	})
	r.call("GET", "/v1/keys/children/"+root.ID, "", as(child.Key)...).fails(t, 404, "run_not_found")
	r.run(root.Key, "GET", "/"+leaf.ID, "")
	r.run(r.key, "DELETE", "/"+child.ID, "")
	r.inRunNext(leaf.Key).fails(t, 402, "run_budget_reached") // the run it is inside of has ended
	if a := r.inRunNext(root.Key); a.status != 200 {
		t.Errorf("the root: got %d %s", a.status, a.body)
	}
	for range 3 {
		r.run(r.key, "POST", "", `{"amount":1}`)
	}
	r.call("POST", "/v1/keys/children", `{"amount":1}`).fails(t, 400, "too_many_runs")
}

// The first call with a run in its header creates it; later ones use it.
func TestRunHeader(t *testing.T) {
	r := runRig(t)
	r.inRunNext(r.key, headerBudget, "run=abc").fails(t, 404, "run_not_found")
	if a := r.inRunNext(r.key, headerBudget, "amount=0.02; run=abc; expires=2h"); a.status != 200 {
		t.Fatalf("got %d %s", a.status, a.body)
	}
	if a := r.inRunNext(r.key, headerBudget, `run="abc"`); a.status != 200 {
		t.Fatalf("without an amount: got %d %s", a.status, a.body)
	}
	r.inRunNext(r.key, headerBudget, "amount=0.03; run=abc").fails(t, 409, "run_exists")
	for _, wrong := range []string{"", "amount=5", "run=a b", "amount=-1; run=a", "run=a; budget=3", "amount=0; run=a"} {
		if wrong == "" {
			wrong = " "
		}
		r.inRunNext(r.key, headerBudget, wrong).fails(t, 400, "invalid_budget")
	}
	for range 1000 {
		if a := r.inRunNext(r.key, headerBudget, "amount=0.02; run=abc"); a.status != 200 {
			a.fails(t, 402, "run_budget_reached")
			break
		}
	}
	var list struct{ Data []guard.RunView }
	a := r.call("GET", "/v1/keys/children", "")
	if err := json.Unmarshal([]byte(a.body), &list); err != nil || len(list.Data) != 1 || *list.Data[0].Name != "abc" {
		t.Fatalf("got %s", a.body)
	}
	r.run(r.key, "POST", "/"+list.Data[0].ID, `{"add_amount":"0.02"}`)
	if a := r.inRunNext(r.key, headerBudget, "amount=0.02; run=abc"); a.status != 200 {
		t.Errorf("after a top-up: got %d %s", a.status, a.body)
	}
	child := r.run(r.key, "POST", "", `{"amount":1}`)
	if a := r.inRunNext(r.key, headerBudget, "run="+child.ID); a.status != 200 {
		t.Errorf("a child by its id: got %d %s", a.status, a.body)
	}
	r.inRunNext(child.Key, headerBudget, "run="+list.Data[0].ID).fails(t, 404, "run_not_found") // of its parent's
}

// 50 runs of parallel calls, three of which never stop: no run spends above its amount, and the runs add up to the ledger.
func TestFleetOfRuns(t *testing.T) {
	r := runRig(t)
	r.org.Runs.MaxOpen = 100
	const fleet, wild = 50, 3
	runs := make([]guard.RunView, fleet)
	for i := range runs {
		runs[i] = r.run(r.key, "POST", "", `{"amount":"0.0115"}`)
	}
	var work sync.WaitGroup
	for i := range runs {
		calls := 2
		if i < wild {
			calls = 60
		}
		for range 2 {
			work.Go(func() {
				for range calls {
					if a := r.inRun(runs[i].Key); a.status != 200 && a.status != 402 && a.status != http.StatusTooManyRequests {
						t.Errorf("got %d %s", a.status, a.body)
						return
					}
				}
			})
		}
	}
	redistest.Wait(t, work.Wait)
	redistest.Eventually(t, "the runs add up to the ledger", func() bool {
		ledger, sum := r.spentByRun(), pricing.Nano(0)
		for i := range runs {
			got := r.run(r.key, "GET", "/"+runs[i].ID, "")
			if got.Spent != usd(int64(ledger[got.ID])) || ledger[got.ID] > 11_500_000 || got.Held != usd(0) {
				return false
			}
			sum += ledger[got.ID]
		}
		return sum > 0 && sum == ledger[""]
	})
	r.inRunNext(runs[0].Key).fails(t, 402, "run_budget_reached")
}

// The run of a job is charged when the job runs. If the run has ended or is used up by then, the job fails with
// run_budget_reached.
func TestRunOfJobs(t *testing.T) {
	r := runRig(t)
	child := r.run(r.key, "POST", "", `{"amount":"0.0115"}`)
	submit := func(header ...string) string {
		a := r.inRun(child.Key, append([]string{"Prefer", "respond-async"}, header...)...)
		var v jobView
		if err := json.Unmarshal([]byte(a.body), &v); err != nil || a.status != 202 {
			t.Fatalf("got %d %s", a.status, a.body)
		}
		return v.ID
	}
	ended := func(id string) (v jobView) {
		redistest.Eventually(t, "the job ends", func() bool {
			a := r.call("GET", "/v1/jobs/"+id, "")
			return json.Unmarshal([]byte(a.body), &v) == nil && v.Status.Terminal()
		})
		return v
	}
	jobs := []string{submit()}
	for range 9 {
		jobs = append(jobs, submit())
	}
	r.worker(nil)
	counts := map[queue.State]int{}
	for _, id := range jobs {
		v := ended(id)
		counts[v.Status]++
		if v.Status == queue.Failed && (v.Error == nil || v.Error.Code != "run_budget_reached") {
			t.Errorf("got the error %+v, want run_budget_reached", v.Error)
		}
	}
	if counts[queue.Succeeded] == 0 || counts[queue.Failed] == 0 || len(counts) != 2 {
		t.Errorf("got %v, want jobs that succeeded and jobs that failed", counts)
	}
	if spent := r.spentByRun(); spent[child.ID] != spent[""] || spent[""] > 11_500_000 {
		t.Errorf("got %v for the run and %v in the ledger", spent[child.ID], spent[""])
	}
}
