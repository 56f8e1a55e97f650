package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestGroupsAndPlans: the users of a group share its amount, also when they call two proxies in parallel; each
// member has an own amount; and a change of a plan applies to all who have it.
func TestGroupsAndPlans(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
defaults:
  plans: [{id: free, limits: [{name: plan, metric: requests, amount: 3, window: 1h}]}]
orgs:
  - id: acme
    over_limit: refuse
    groups:
      - id: research
        limits:
          - {name: team, metric: requests, amount: 10, window: 1h}
          - {name: each, subject: user, metric: requests, amount: 7, window: 1h}
    users:
      - {id: alice, group: research, keys: [{id: k1, hash: "${key:alice}"}]}
      - {id: bob, group: research, keys: [{id: k2, hash: "${key:bob}"}]}
      - {id: carol, plan: free, keys: [{id: k3, hash: "${key:carol}"}]}
      - {id: dave, plan: free, keys: [{id: k4, hash: "${key:dave}"}]}
`)
	one, two := s.proxy(), s.proxy()
	body := chat("gpt-4o-mini", "hi", small)
	call := func(url, who string) answer { return post(url+"/chat/completions", s.keys[who], body) }

	var mu sync.Mutex
	passed := map[string]int{}
	var all sync.WaitGroup
	for i := range 32 {
		who, url := []string{"alice", "bob"}[i%2], []string{one.URL, two.URL}[i/2%2]
		all.Go(func() {
			a := call(url, who)
			mu.Lock()
			defer mu.Unlock()
			if a.status == 200 {
				passed[who]++
			}
		})
	}
	redistest.Wait(t, all.Wait)
	if sum := passed["alice"] + passed["bob"]; sum != 10 || passed["alice"] > 7 || passed["bob"] > 7 {
		t.Errorf("%v calls of the group passed, want 10 together and at most 7 of each", passed)
	}
	a := call(one.URL, "alice")
	want(t, "a call of the group", a, 429, "rate_limit_exceeded")
	if got := a.header.Get("X-RateLimit-Resource"); got != "team" {
		t.Errorf("X-RateLimit-Resource is %q, want team", got)
	}
	for _, e := range s.settled("acme", 10) {
		if e.Labels != "group=research" {
			t.Errorf("a ledger entry has the labels %q, want group=research", e.Labels)
		}
	}
	for _, who := range []string{"carol", "dave"} {
		for range 3 {
			want(t, who, call(two.URL, who), 200, "")
		}
		want(t, "over the plan: "+who, call(two.URL, who), 429, "rate_limit_exceeded")
	}
	s.run("limits", "set", "plan", "--org", "all", "--plan", "free", "--amount", "5")
	for _, who := range []string{"carol", "dave"} {
		redistest.Eventually(t, "the plan of "+who, func() bool { return call(one.URL, who).status == 200 })
	}
	for args, wanted := range map[string]string{
		"usage --org acme --by group -o csv":                     "research,10,",
		"limits get team --org acme --user bob -o json":          `"used":10`,
		"limits explain --org acme --user alice -o json":         `"binds_first":true`,
		"limits explain --org acme --key k3 --model gpt-4o-mini": "plan free (named by the user)",
	} {
		if out := strings.ReplaceAll(s.run(strings.Fields(args)...), `": `, `":`); !strings.Contains(out, wanted) {
			t.Errorf("llmguard %s prints %s, want %s in it", args, out, wanted)
		}
	}
	s.run("limits", "reset", "team", "--org", "acme", "--group", "research", "--reason", "x")
	fewer := "alice" // Whoever passed less often has not used up the limit "each".
	if passed["bob"] < passed["alice"] {
		fewer = "bob"
	}
	want(t, "a call of the group after the reset", call(one.URL, fewer), 200, "")
}

// TestGroupsQueuedAndReloaded: limits of a group count queued calls and lines of batches, whose costs in the
// ledger add up to the group's usage; and a reload changes plans and moves users into groups.
func TestGroupsQueuedAndReloaded(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, fmt.Sprintf(`
files: {store: %q}
queue: {seal_keys: [{id: s1, secret: 0123456789abcdef0123456789abcdef}]}
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    groups:
      - id: research
        limits:
          - {name: team, metric: requests, amount: 2, window: 2s, exact: true}
          - {name: spent, amount: $100, window: 1h}
    plans: [{id: free, limits: [{name: hour, metric: requests, amount: 1, window: 1h}]}]
    users:
      - {id: alice, group: research, keys: [{id: k1, hash: "${key:alice}"}]}
      - {id: bob, group: research, keys: [{id: k2, hash: "${key:bob}"}]}
      - {id: carol, plan: free, keys: [{id: k3, hash: "${key:carol}"}]}
`, t.TempDir()))
	p := s.proxy()
	s.worker()
	body := chat("gpt-4o-mini", "hi", small)
	for i := range 6 {
		a := post(p.URL+"/chat/completions", s.keys[[]string{"alice", "bob"}[i%2]], body, "Prefer", "respond-async")
		want(t, "a job", a, 202, "")
	}
	line := `{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":` + body + "}\n"
	file := s.uploadText(p, fmt.Sprintf(line, 1)+fmt.Sprintf(line, 2))
	a := post(p.URL+"/batches", s.keys["alice"],
		fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, file))
	want(t, "a batch", a, 200, "")
	var b openai.Batch
	if err := json.Unmarshal([]byte(a.body), &b); err != nil {
		t.Fatal(err)
	}
	if b = s.awaitBatch(p, b.ID, func(b openai.Batch) bool { return terminal(b.Status) }); b.Status != "completed" {
		t.Fatalf("the batch is %s: %+v", b.Status, b.Errors)
	}
	carol := func() answer { return post(p.URL+"/chat/completions", s.keys["carol"], body, "Prefer", "wait=0") }
	want(t, "a call of carol", carol(), 200, "")
	want(t, "over carol's plan", carol(), 429, "rate_limit_exceeded")
	hash := s.rewrite(func(text string) string {
		return strings.Replace(strings.Replace(text, "amount: 1, window: 1h", "amount: 2, window: 1h", 1),
			"id: carol, plan", "id: carol, group: research, plan", 1)
	})
	p.hangUp()
	p.awaitValue("llmguard_config_hash", hash)
	redistest.Eventually(t, "capacity for carol in the group", func() bool { return carol().status == 200 })
	want(t, "over carol's changed plan", carol(), 429, "rate_limit_exceeded")

	calls, cost := map[string]int{}, int64(0)
	for _, e := range s.settled("acme", 10) {
		calls[e.User+" "+e.Labels.Get("group")]++
		if e.Labels.Get("group") != "" {
			cost += int64(e.Cost)
		}
	}
	wanted := map[string]int{"alice research": 5, "bob research": 3, "carol ": 1, "carol research": 1}
	if fmt.Sprint(calls) != fmt.Sprint(wanted) {
		t.Errorf("the ledger has %v calls by user and group, want %v", calls, wanted)
	}
	s.checkLabelSums("acme", "group")
	out := strings.ReplaceAll(s.run("limits", "get", "spent", "--org", "acme", "--group", "research", "-o", "json"), `": `, `":`)
	if used := fmt.Sprintf(`"used":%d,`, cost); !strings.Contains(out, used) {
		t.Errorf("the group's usage is %s, want %s as in the ledger", out, used)
	}
}
