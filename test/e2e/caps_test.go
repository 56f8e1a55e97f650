package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/pricing"
)

// tenants is a configuration of n orgs with a user each, o0/u0 and so on, under
// the deployment's spend caps.
func tenants(n int, caps string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nspend_caps: %s\nproviders:\n  - {id: openai, base_url: \"${provider}\", api_key: \"${provider_key}\"}\norgs:\n", caps)
	for i := range n {
		fmt.Fprintf(&b, "  - id: o%d\n    limits: [{name: w, amount: $100, window: 1h}]\n    users: [{id: u%d, keys: [{id: k, hash: \"${key:u%d}\"}]}]\n", i, i, i)
	}
	return b.String()
}

// TestDeploymentCap: a spend cap worth exactly ten calls, 200 at once from
// twenty orgs over two proxies. Exactly ten reach the provider.
func TestDeploymentCap(t *testing.T) {
	price := costOfOne(t)
	s := newStack(t, fakeprovider.Options{}, tenants(20, fmt.Sprintf("[{name: all, amount: %q, window: 1h}]", (10*price).String())))
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Fill: true, Delay: 300 * time.Millisecond}
	})
	proxies := []*process{s.proxy(), s.proxy()}
	s.worker()
	body := chat("gpt-4o", callText, fmt.Sprintf(`"max_tokens":%d`, callOutput))
	var wg sync.WaitGroup
	var mu sync.Mutex
	status := map[int]int{}
	for i := range 200 {
		wg.Go(func() {
			a := post(proxies[i%2].URL+"/chat/completions", s.keys[fmt.Sprintf("u%d", i%20)], body, "Prefer", "wait=3")
			mu.Lock()
			defer mu.Unlock()
			status[a.status]++
			if a.status == http.StatusTooManyRequests && strings.Contains(a.body, "$") {
				t.Errorf("a refusal tells amounts: %s", a.body)
			}
		})
	}
	wg.Wait()
	if totals := s.fake.Totals(); totals.Requests != 10 {
		t.Errorf("%d requests reached the provider, want 10", totals.Requests)
	}
	// 503 says that Redis did not answer in time, on a machine as busy as this.
	if status[200] != 10 || status[200]+status[429]+status[503] != 200 {
		t.Errorf("statuses %v, want 10 x 200 and 190 refusals", status)
	}
	var sum pricing.Nano
	entries := 0
	for range 3000 {
		sum, entries = 0, 0
		for i := range 20 {
			for _, e := range s.entries(fmt.Sprintf("o%d", i)) {
				sum, entries = sum+e.Cost, entries+1
			}
		}
		if entries == 10 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if entries != 10 || sum != 10*price {
		t.Errorf("%d calls were charged %v, want 10 and %v", entries, sum, 10*price)
	}
	want := fmt.Sprintf("llmguard_budget_cap_used{limit=\"all\",metric=\"cost\",provider=\"\"} %g\n", float64(sum))
	if m := proxies[0].metrics(); !strings.Contains(m, want) {
		t.Errorf("the metrics lack %s", want)
	}
}

// TestCapWaits: what does not fit a cap now waits in the queue, whichever org it
// is of, and runs when there is room.
func TestCapWaits(t *testing.T) {
	s := newStack(t, fakeprovider.Options{}, tenants(3, "[{name: pace, metric: requests, amount: 2, window: 2s, exact: true}]"))
	p := s.proxy()
	s.worker()
	var wg sync.WaitGroup
	for i := range 7 {
		wg.Go(func() {
			a := post(p.URL+"/chat/completions", s.keys[fmt.Sprintf("u%d", i%3)], chat("gpt-4o", callText, `"max_tokens":5`), "Prefer", "wait=60")
			if a.status != http.StatusOK {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		})
	}
	wg.Wait()
	if n := s.fake.Totals().Requests; n != 7 {
		t.Errorf("%d requests reached the provider", n)
	}
	if m := p.metrics(); !strings.Contains(m, `llmguard_budget_cap_refusals_total{limit="pace",mode="enforce",provider=""}`) {
		t.Error("nothing was refused, so nothing waited")
	}
}
