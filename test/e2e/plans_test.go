package e2e

import (
	"strings"
	"sync"
	"testing"

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
	all.Wait()
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
	want(t, "a call of the group after the reset", call(one.URL, "alice"), 200, "")
}
