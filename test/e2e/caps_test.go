package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// tenants is a configuration of n orgs with one user each (o0/u0, ...), under the deployment's
// spend caps.
func tenants(n int, caps string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nspend_caps: %s\nproviders:\n  - {id: openai, base_url: \"${provider}\", api_key: \"${provider_key}\"}\norgs:\n", caps)
	for i := range n {
		fmt.Fprintf(&b, "  - id: o%d\n    limits: [{name: w, amount: $100, window: 1h}]\n    users: [{id: u%d, keys: [{id: k, hash: \"${key:u%d}\"}]}]\n", i, i, i)
	}
	return b.String()
}

// TestDeploymentCap: under a spend cap worth exactly ten calls, many concurrent calls from
// twenty orgs over two proxies result in exactly ten calls at the provider.
func TestDeploymentCap(t *testing.T) {
	t.Parallel()
	price := costOfOne(t)
	const orgs = 20
	s := newStack(t, fakeprovider.Options{}, tenants(orgs, fmt.Sprintf("[{name: all, amount: %q, window: 1h}]", (10*price).String())))
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Fill: true, Delay: 300 * time.Millisecond}
	})
	proxies := []*process{s.proxy(), s.proxy()}
	s.worker()
	answers := s.come(proxies, fmt.Sprintf(`"max_tokens":%d`, callOutput), func(i int) string {
		return s.keys[fmt.Sprintf("u%d", i%orgs)]
	})
	tenPassed(t, answers)
	for _, a := range answers {
		if a.status == http.StatusTooManyRequests && strings.Contains(a.body, "$") {
			t.Errorf("a refusal shows amounts: %s", a.body)
		}
	}
	var sum pricing.Nano
	until(t, "ten calls are charged", func() bool {
		charged := 0
		sum = 0
		for i := range orgs {
			for _, e := range s.entries(fmt.Sprintf("o%d", i)) {
				sum += e.Cost
				charged++
			}
		}
		return charged == 10
	})
	if sum != 10*price {
		t.Errorf("ten calls were charged %v, want %v", sum, 10*price)
	}
	if totals := s.fake.Totals(); totals.Requests != 10 {
		t.Errorf("%d requests reached the provider, want 10", totals.Requests)
	}
	// Caps are charged after the org's limits.
	proxies[0].awaitValue(`llmguard_budget_cap_used{limit="all",metric="cost",provider=""}`, float64(sum)/1e9)
}

// TestCapWaits: a call that exceeds a cap waits in the queue, whatever its org, and runs once
// the cap has capacity.
func TestCapWaits(t *testing.T) {
	t.Parallel()
	const calls = 5
	s := newStack(t, fakeprovider.Options{}, tenants(3, "[{name: pace, metric: requests, amount: 2, window: 1s, exact: true}]"))
	p := s.proxy()
	s.worker()
	var wg sync.WaitGroup
	send := func() {
		for i := range calls {
			wg.Go(func() {
				a := post(p.URL+"/chat/completions", s.keys[fmt.Sprintf("u%d", i%3)], chat("gpt-4o", callText, `"max_tokens":5`), "Prefer", "wait=60")
				if a.status != http.StatusOK {
					t.Errorf("status %d: %s", a.status, a.body)
				}
			})
		}
		redistest.Wait(t, wg.Wait)
	}
	waited := func() bool {
		return strings.Contains(p.metrics(), `llmguard_budget_cap_refusals_total{limit="pace",mode="enforce",provider=""}`)
	}
	crowds := int64(0)
	until(t, "a call waited", func() bool { // on a busy machine each arrives at its own time
		send()
		crowds++
		return waited() || t.Failed()
	})
	if n := s.fake.Totals().Requests; n != crowds*calls {
		t.Errorf("%d requests reached the provider, want %d", n, crowds*calls)
	}
}
