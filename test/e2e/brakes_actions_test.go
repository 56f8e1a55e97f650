package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// braking is a deployment with an org for each action, each with a brake that fires at the fourth call of a
// run. Their keys are those of users with the name of the action.
func braking(t *testing.T) (*stack, *inbox) {
	t.Helper()
	box, port := newInbox(t)
	text := fmt.Sprintf(`
webhooks: {allow_networks: [127.0.0.1/32], allow_http: [localhost]}
alerts: {url: "http://localhost:%s/chat"}
labels: [{name: run, from: [header X-Run]}]
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
`, port)
	for action, more := range map[string]string{
		"ask": "window: 1h}}", "slow": "window: 1h}}", "shadow": "window: 1h}}", "stop": "window: 10s}}, for: 10s",
	} {
		text += fmt.Sprintf(`
  - id: org-%[1]s
    limits: [{name: day, amount: $1000, window: 1d}]
    brakes: [{name: many, by: run, action: %[1]s, when: {calls: {more_than: 3, %[2]s}]
    users: [{id: %[1]s, keys: [{id: k-%[1]s, hash: "${key:%[1]s}"}]}]
`, action, more)
	}
	return newStack(t, fakeprovider.Options{}, text), box
}

// TestBrakeActions: a brake in shadow mode only reports, one that slows lowers the priority, one that asks
// refuses calls and keeps jobs until it is released, and one with a life ends on its own. Each is reported
// once. Other runs are not affected.
func TestBrakeActions(t *testing.T) {
	t.Parallel()
	s, box := braking(t)
	p := s.proxy()
	s.worker()
	call := func(action, run string, header ...string) answer {
		return post(p.URL+"/chat/completions", s.keys[action], chat("gpt-4o", "hi", small), append(header, "X-Run", run)...)
	}
	priority := func(a answer) string { return a.header.Get("X-Llmguard-Priority") }
	for _, action := range []string{"ask", "slow", "shadow"} {
		for range 3 {
			want(t, action+": an allowed call", call(action, "wild"), 200, "")
		}
	}

	for range 3 {
		a := call("shadow", "wild")
		want(t, "a call that only is reported", a, 200, "")
		if got := priority(a); got != "" {
			t.Errorf("shadow: the call has the priority %q, want none", got)
		}
	}

	until(t, "the calls are slow", func() bool { return priority(call("slow", "wild")) == "low" })
	for _, header := range [][]string{nil, {"Llmguard-Priority", "high"}} {
		a := call("slow", "wild", header...)
		want(t, "a slow call", a, 200, "")
		if got := priority(a); got != "low" {
			t.Errorf("slow: the call has the priority %q, want low", got)
		}
	}
	if got := priority(call("slow", "tame")); got != "" {
		t.Errorf("slow: a call of another run has the priority %q, want none", got)
	}

	want(t, "a call that needs approval", call("ask", "wild"), 403, "approval_required")
	accepted := call("ask", "wild", "Prefer", "respond-async")
	want(t, "a job that needs approval", accepted, http.StatusAccepted, "")
	var job struct{ ID string }
	if err := json.Unmarshal([]byte(accepted.body), &job); err != nil {
		t.Fatal(err)
	}
	want(t, "a call of another run", call("ask", "tame"), 200, "")
	if got := get(p.URL+"/jobs/"+job.ID, s.keys["ask"]); !strings.Contains(got.body, `"status":"queued"`) {
		t.Errorf("the job that needs approval: got %s, want queued", got.body)
	}
	s.llmguard("brakes", "release", "--org", "org-ask", "--brake", "many", "user=ask", "run=wild", "--reason", "approved")
	until(t, "runs the approved job", func() bool {
		return strings.Contains(get(p.URL+"/jobs/"+job.ID, s.keys["ask"]).body, `"status":"succeeded"`)
	})
	want(t, "an approved call", call("ask", "wild"), 200, "")

	until(t, "stops the run", func() bool { return call("stop", "wild").status == http.StatusForbidden })
	until(t, "lets it run again after 10 s", func() bool { return call("stop", "wild").status == http.StatusOK })

	posts := strings.Join(box.await(t, "/chat", 4), "\n")
	for action, says := range map[string]string{
		"shadow": "Its calls continue: the brake is in shadow mode.",
		"slow":   "Its calls have low priority until it is released: `llmguard brakes release --org org-slow --brake many user=slow run=wild`",
		"ask":    "Its calls need an approval until it is released: `llmguard brakes release --org org-ask",
		"stop":   "Its calls are stopped until 20",
	} {
		text := fmt.Sprintf("brake many of org org-%s fired for `user=%[1]s, run=wild`: 3 calls in ", action)
		if n := strings.Count(posts, text); n == 0 || n > 1 && action != "stop" || !strings.Contains(posts, says) {
			t.Errorf("%s: the chat was told %d times %q and %q, want once: %s", action, n, text, says, posts)
		}
		if action != "stop" { // it may have fired again
			fired := fmt.Sprintf(`llmguard_guard_brakes_fired_total{action=%q,brake="many",org="org-%s"}`, action, action)
			if got := p.value(fired); got != 1 {
				t.Errorf("%s is %v, want 1", fired, got)
			}
		}
	}
}

// TestBrakesOfRunBudgets: of 50 runs with budgets, each with two runs inside it that send most of its calls,
// a brake stops exactly the three that make too many, with all runs inside them. A simulation stops the same.
func TestBrakesOfRunBudgets(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
brakes:
  - {name: endless, by: run-budget, when: {calls: {more_than: 9, window: 1h}}}
orgs:
  - id: acme
    limits: [{name: day, amount: $1000, window: 1d}]
    users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}]
`)
	p := s.proxy()
	child := func(key, amount string) (id, secret string) {
		a := post(p.URL+"/keys/children", key, fmt.Sprintf(`{"amount":%q,"expires_in":"1h"}`, amount))
		var run struct{ ID, Key string }
		if err := json.Unmarshal([]byte(a.body), &run); err != nil || run.Key == "" {
			t.Fatalf("create a run: got %d %s", a.status, a.body)
		}
		return run.ID, run.Key
	}
	call := func(key, text string) answer {
		return post(p.URL+"/chat/completions", key, chat("gpt-4o", text, small))
	}
	stopped := map[string]string{} // the key of a run inside it, by run
	for n := range runs {
		id, own := child(s.keys["alice"], "$1")
		_, first := child(own, "$0.1")
		_, second := child(own, "$0.1")
		keys := []string{own, first, second}
		if n != 7 && n != 19 && n != 33 {
			for i := range 6 {
				want(t, "a call of a tame run", call(keys[i%3], fmt.Sprint(i)), 200, "")
			}
			continue
		}
		for i := range 9 {
			want(t, "an allowed call of a wild run", call(keys[i%3], fmt.Sprint(i)), 200, "")
		}
		for i := range 6 {
			want(t, "a call too many", call(keys[i%3], fmt.Sprint(i)), 403, "brake_stopped")
		}
		stopped[id] = first
	}
	list := s.llmguard("brakes", "list", "--org", "acme")
	for id := range stopped {
		if !strings.Contains(list, "run-budget="+id) {
			t.Errorf("%s is not in the list: %s", id, list)
		}
	}
	if n := strings.Count(list, "run-budget="); n != len(stopped) {
		t.Errorf("%d runs are stopped, want %d: %s", n, len(stopped), list)
	}
	p.terminate()
	log := s.access(p)
	p = s.proxy()
	for _, f := range s.replay(s.export(), log).Firings() {
		id := strings.TrimPrefix(f.Subject, "run-budget=")
		key := stopped[id]
		if key == "" {
			t.Errorf("the simulation fires for %s, which was not stopped", f.Subject)
			continue
		}
		delete(stopped, id)
		want(t, "a stopped run after a restart", call(key, "again"), 403, "brake_stopped")
		s.llmguard("brakes", "release", "--org", "acme", "--brake", "endless", "run-budget="+id, "--reason", "a false alarm")
		until(t, "the released run goes on", func() bool { return call(key, "again").status == http.StatusOK })
	}
	if len(stopped) > 0 {
		t.Errorf("the simulation does not fire for %v", stopped)
	}
}
