package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// runOf is a run as the API shows it.
type runOf struct {
	ID, Key, Amount, Spent, Held, Status string
}

// child gives a part of a user's budget to a run.
func (s *stack) child(p *process, user, body string) (r runOf) {
	s.t.Helper()
	a := post(p.URL+"/keys/children", s.keys[user], body)
	want(s.t, "a run", a, 200, "")
	if err := json.Unmarshal([]byte(a.body), &r); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// runCall makes a call that holds $0.01 and the price of its input.
func runCall(p *process, key string) answer {
	return post(p.URL+"/chat/completions", key, chat("gpt-4o", "[fake: output=400]", `"max_tokens":1000`))
}

// exhaust makes calls through proxies in turn until one is refused because of the budget.
func exhaust(t *testing.T, key string, proxies ...*process) {
	t.Helper()
	redistest.Eventually(t, "the run reaches its budget", func() bool {
		a := runCall(proxies[0], key)
		proxies = append(proxies[1:], proxies[0])
		return a.status == 402 && strings.Contains(a.body, "run_budget_reached")
	})
}

// TestRunBudgetEvent: when a run reaches its budget, the org's server and its chat are notified, once for
// each amount, however many calls are refused and by whichever proxy.
func TestRunBudgetEvent(t *testing.T) {
	t.Parallel()
	box, port := newInbox(t)
	s := newStack(t, fakeprovider.Options{}, fmt.Sprintf(`
webhooks: {allow_networks: [127.0.0.1/32], allow_http: [localhost]}
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    alerts: {url: "http://localhost:%[1]s/chat"}
    webhooks: [{url: "http://localhost:%[1]s/org", secrets: [%[2]s], events: ["run.*"]}]
    users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}]
`, port, hookSecret))
	first, second := s.proxy(), s.proxy()
	s.worker()
	run := s.child(first, "alice", `{"amount": "$0.02", "labels": {"run": "nightly"}}`)
	exhaust(t, run.Key, first, second)
	for range 5 {
		want(t, "a further call", runCall(second, run.Key), 402, "run_budget_reached")
	}
	var event struct {
		Type string
		Data struct {
			ID, Org, User, Key, Name string
			Labels                   map[string]string
			Amount                   int64  `json:"amount_nano_usd"`
			Spent                    int64  `json:"spent_nano_usd"`
			Remaining                int64  `json:"remaining_nano_usd"`
			TopUp                    string `json:"top_up"`
		}
	}
	posted := box.await(t, "/org", 1)[0]
	err := json.Unmarshal([]byte(posted), &event)
	d := event.Data
	if err != nil || event.Type != "run.budget_reached" || d.ID != run.ID || d.Org != "acme" || d.User != "alice" ||
		d.Key != "k1" || d.Name != "nightly" || d.Labels["run"] != "nightly" || d.Amount != 20_000_000 || d.Spent <= 0 ||
		d.Spent+d.Remaining != d.Amount {
		t.Errorf("got the event %s, want the run with what it spent", posted)
	}
	text := box.await(t, "/chat", 1)[0]
	for _, part := range []string{"user alice of org acme", "`nightly` (" + run.ID + ")", "of $0.02 spent", d.TopUp} {
		if !strings.Contains(text, part) {
			t.Errorf("got the message %s, want %q in it", text, part)
		}
	}

	args := strings.Fields(strings.TrimPrefix(d.TopUp, "llmguard "))
	args[len(args)-1] = "$0.01"
	s.llmguard(args...)
	exhaust(t, run.Key, second, first)
	box.await(t, "/org", 2)
	first.terminate() // a process reports once more as it shuts down
	second.terminate()
	s.delivered()
	box.mu.Lock()
	defer box.mu.Unlock()
	if len(box.posts["/org"]) != 2 || len(box.posts["/chat"]) != 2 {
		t.Errorf("got %q, want one message for each amount", box.posts)
	}
}

// state reads a run.
func (s *stack) runState(p *process, user, id string) (r runOf) {
	s.t.Helper()
	a := get(p.URL+"/keys/children/"+id, s.keys[user])
	if err := json.Unmarshal([]byte(a.body), &r); err != nil || a.status != 200 {
		s.t.Fatalf("read a run: got %d %s", a.status, a.body)
	}
	return r
}

// TestRunBudgetAfterKill: a proxy that is killed while it holds money of a run does not change that the run spends
// at most its amount, and exactly what the ledger has for it.
func TestRunBudgetAfterKill(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, simple("[]")+"store: {deadline: 10s, hold_lease: 3s}\n")
	gate := s.gate(nil)
	first, second := s.proxy(), s.proxy()
	run := s.child(first, "alice", `{"amount": "$0.06"}`)
	const killed = 3
	for i := range killed {
		go post(first.URL+"/chat/completions", run.Key, chat("gpt-4o", fmt.Sprint(gated, i), `"max_tokens":1000`))
		gate.awaitHeld()
	}
	want(t, "a call of the other proxy", runCall(second, run.Key), 200, "")
	first.kill()
	expired := func() (n int) {
		for _, e := range s.entries("acme") {
			if e.Kind == "expire" && e.Run.ID() == run.ID {
				n++
			}
		}
		return n
	}
	redistest.Eventually(t, "the holds of the killed proxy expire", func() bool { return expired() == killed })
	exhaust(t, run.Key, second)
	redistest.Eventually(t, "the run has what the ledger has", func() bool {
		got, sum := s.runState(second, "alice", run.ID), int64(0)
		for _, e := range s.entries("acme") {
			if e.Run.ID() == run.ID {
				sum += int64(e.Cost)
			}
		}
		if spent := nanos(t, got.Spent); spent > 60_000_000 || sum > 60_000_000 {
			t.Fatalf("got %d nano-USD spent, %d in the ledger, want at most the amount", spent, sum)
		}
		return nanos(t, got.Held) == 0 && nanos(t, got.Spent) == sum
	})
	if n := expired(); n != killed {
		t.Errorf("got %d holds expired, want %d", n, killed)
	}
}

// TestRunCorrection: a correction of a call of a run gives the run money back, so that its next call succeeds.
func TestRunCorrection(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, simple("[]"))
	p := s.proxy()
	run := s.child(p, "alice", `{"amount": "$0.02"}`)
	exhaust(t, run.Key, p)
	redistest.Eventually(t, "the calls are in the ledger", func() bool {
		return nanos(t, s.runState(p, "alice", run.ID).Held) == 0 && len(s.entries("acme")) > 0
	})
	before, call := s.runState(p, "alice", run.ID), s.entries("acme")[0]
	args := []string{
		"usage", "adjust", "--org", "acme", "--call", call.ID, "--amount", "-" + call.Cost.String(), "--id", "refund-1",
		"--reason", "billed twice",
	}
	if out := s.llmguard(args...); !strings.Contains(out, "spent by the runs "+run.ID) {
		t.Errorf("got %q, want the run named", out)
	}
	s.llmguard(args...) // changes nothing
	after := s.runState(p, "alice", run.ID)
	if got, want := nanos(t, after.Spent), nanos(t, before.Spent)-int64(call.Cost); got != want {
		t.Errorf("got %d nano-USD spent, want %d", got, want)
	}
	want(t, "the next call", runCall(p, run.Key), 200, "")
	if out, err := s.try("runs", "end", run.ID, "--key", s.keys["alice"], "--url", p.URL, "--reason", "x"); err == nil ||
		!strings.Contains(out, "--reason needs --org") {
		t.Errorf("a reason without an org: got %v, %s; want it refused", err, out)
	}
}
