package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// value returns a sample of the process's metrics, or -1 if it is absent.
func (p *process) value(sample string) float64 {
	p.t.Helper()
	for line := range strings.Lines(p.metrics()) {
		if text, ok := strings.CutPrefix(line, sample+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return n
		}
	}
	return -1
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 3000 {
		if is() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("never %s", what)
}

// exact waits until the org's ledger matches the provider's log and nothing is held.
func (s *stack) exact(calls int, limits ...budget.Limit) {
	s.t.Helper()
	want := bill(s.t, s.fake.Log())
	var sum pricing.Nano
	ids := map[string]bool{}
	until(s.t, fmt.Sprintf("the ledger has %d calls over %v", calls, want), func() bool {
		sum, ids = 0, map[string]bool{}
		for _, e := range s.entries("acme") {
			sum, ids[e.ID] = sum+e.Cost, true
		}
		return sum == want && len(ids) == calls
	})
	for _, e := range s.entries("acme") {
		if e.Estimated {
			s.t.Errorf("entry is estimated: %+v", e)
		}
	}
	store := budget.New(s.redis.DB(), budget.Options{})
	list, err := store.Peek(context.Background(), limits, ledger.Call{Org: "acme", User: "alice"})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, st := range list {
		if st.Held != 0 || st.Metric == budget.Cost && st.Used != int64(want) {
			s.t.Errorf("limit %s counts %d and holds %d, want %d", st.LimitID, st.Used, st.Held, want)
		}
	}
}

// TestRedisDiesAndProxyToo: Redis dies during calls, and the proxy is killed or stopped after
// they have ended. Once both are back, the ledger equals the provider's log to the nano-USD.
func TestRedisDiesAndProxyToo(t *testing.T) {
	t.Parallel()
	t.Run("killed", func(t *testing.T) { redisDiesAndProxyToo(t, (*process).kill) })
	t.Run("stopped", func(t *testing.T) { redisDiesAndProxyToo(t, (*process).terminate) })
}

func redisDiesAndProxyToo(t *testing.T, end func(*process)) {
	s := newStack(t, fakeprovider.Options{}, "store: {deadline: 10s, journal_dir: "+t.TempDir()+"}\n"+simple("[{name: w, subject: user, amount: $1000, window: 1h}]"))
	release := make(chan struct{})
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		redistest.Came(t, release)
		return fakeprovider.Behaviour{}
	})
	p := s.proxy()
	const calls = 24
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", fmt.Sprint("call ", i), fmt.Sprintf(`"max_tokens":%d,"stream":%v`, 20+i, i%2 == 0)))
			if a.err != nil || a.status != http.StatusOK {
				t.Errorf("status %d, %v: %s", a.status, a.err, a.body)
			}
		})
	}
	until(t, "all calls are at the provider", func() bool { return s.fake.Totals().InFlight == calls })
	s.redis.Kill()
	close(release)
	redistest.Wait(t, wg.Wait)
	until(t, "all are in the journal", func() bool { return p.value("llmguard_budget_journal_records") == calls })
	end(p)
	s.redis.Restart()
	p = s.proxy()
	s.exact(calls, budget.Limit{ID: "w", Subject: budget.User, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Window, Amount: 1e12, Window: time.Hour}})
	until(t, "the journal is empty", func() bool { return p.value("llmguard_budget_journal_records") == 0 })
	if n := p.value(`llmguard_budget_replayed_total{from="journal",result="new"}`); n != calls {
		t.Errorf("%v calls were news to the store", n)
	}
}

// outage is a deployment whose orgs have different settings for when Redis is unavailable.
func outage(t *testing.T, limits, pool string) *stack {
	return newStack(t, fakeprovider.Options{}, fmt.Sprintf(`
store: {deadline: 2s, journal_dir: %s, on_failure: deny, local_share: 20%%}
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}", pools: [%s]}
orgs:
  - {id: acme, on_store_failure: local, limits: %s, users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}]}
  - {id: open, on_store_failure: allow, limits: %s, users: [{id: otto, keys: [{id: k2, hash: "${key:otto}"}]}]}
  - {id: strict, limits: %s, users: [{id: stan, keys: [{id: k3, hash: "${key:stan}"}]}]}
`, t.TempDir(), pool, limits, limits, limits))
}

// TestWithoutRedis: while Redis is unavailable, an org with "local" gets its share of each
// limit and no more, one with "allow" is let through, and others are refused. Everything is
// charged once Redis is back, although the proxy was killed meanwhile.
func TestWithoutRedis(t *testing.T) {
	t.Parallel()
	price := costOfOne(t)
	// 20% of it is worth five calls.
	s := outage(t, fmt.Sprintf("[{name: w, subject: user, amount: %q, window: 1h}, {name: r, metric: requests, amount: 1000, window: 1h}]", (25*price).String()), "{id: openai}")
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Fill: true} })
	p := s.proxy()
	s.redis.Kill()
	body := chat("gpt-4o", callText, fmt.Sprintf(`"max_tokens":%d`, callOutput))
	status := func(user string, calls int) map[int]int {
		var mu sync.Mutex
		var wg sync.WaitGroup
		out := map[int]int{}
		for range calls {
			wg.Go(func() {
				a := post(p.URL+"/chat/completions", s.keys[user], body)
				mu.Lock()
				defer mu.Unlock()
				out[a.status]++
				without, limits := a.header.Get("X-Llmguard-Without-Store"), a.header.Get("X-Llmguard-Limits")+a.header.Get("X-Ratelimit-Limit-Tokens")
				if a.status == http.StatusOK && (without == "" || limits != "" || a.header.Get("X-Llmguard-Cost-Usd") == "") {
					t.Errorf("headers tell what nobody knows: %v", a.header)
				}
				if a.status == http.StatusTooManyRequests && !strings.Contains(a.body, "The store is unavailable") {
					t.Errorf("refused with %s", a.body)
				}
			})
		}
		redistest.Wait(t, wg.Wait)
		return out
	}
	if got := status("alice", 30); got[http.StatusOK] != 5 || got[http.StatusTooManyRequests] != 25 {
		t.Errorf("local: %v, want 5 answers", got)
	}
	if got := status("otto", 30); got[http.StatusOK] != 30 {
		t.Errorf("allow: %v", got)
	}
	if got := status("stan", 30); got[http.StatusServiceUnavailable] != 30 {
		t.Errorf("deny: %v", got)
	}
	if n := s.fake.Totals().Requests; n != 35 {
		t.Errorf("%d calls reached the provider", n)
	}
	if a := get(p.Admin+"/readyz", ""); a.status != http.StatusOK || !strings.Contains(a.body, "acme, open") {
		t.Errorf("readyz %d: %s", a.status, a.body)
	}
	// There are also records that release lost holds.
	until(t, "all are in the journal", func() bool { return p.value("llmguard_budget_journal_records") >= 35 })
	if a, r := p.value(`llmguard_guard_without_store_total{mode="local",outcome="admitted"}`), p.value(`llmguard_guard_without_store_total{mode="allow",outcome="admitted"}`); a != 5 || r != 30 {
		t.Errorf("counted %v and %v", a, r)
	}
	for _, mode := range []string{"deny", "local", "allow"} {
		if n := p.value(`llmguard_guard_store_away_orgs{mode="` + mode + `"}`); n != 1 {
			t.Errorf("the store is away for %v orgs with %s", n, mode)
		}
	}
	p.kill()
	s.redis.Restart()
	p = s.proxy()
	until(t, "the journal is empty", func() bool { return p.value("llmguard_budget_journal_records") == 0 })
	limit := budget.Limit{ID: "w", Subject: budget.User, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Window, Amount: int64(25 * price), Window: time.Hour}}
	store := budget.New(s.redis.DB(), budget.Options{})
	for org, calls := range map[string]pricing.Nano{"acme": 5, "open": 30, "strict": 0} {
		var sum pricing.Nano
		for _, e := range s.entries(org) {
			if sum += e.Cost; e.Estimated {
				t.Errorf("estimated: %+v", e)
			}
		}
		user := map[string]string{"acme": "alice", "open": "otto", "strict": "stan"}[org]
		list, err := store.Peek(context.Background(), []budget.Limit{limit}, ledger.Call{Org: org, User: user})
		if err != nil || sum != calls*price || list[0].Used != int64(sum) {
			t.Errorf("%s is charged %v, its limit counts %+v, want %d calls of %v: %v", org, sum, list, calls, price, err)
		}
	}
	// The limits show the debt: 30 of 25 calls.
	if a := post(p.URL+"/chat/completions", s.keys["otto"], body, "Prefer", "wait=0"); a.status != http.StatusTooManyRequests {
		t.Errorf("status %d with the budget passed", a.status)
	}
}

// TestWithoutRedisKilled: calls that a proxy admitted without Redis are charged in full, once,
// if the proxy is killed during them.
func TestWithoutRedisKilled(t *testing.T) {
	t.Parallel()
	s := outage(t, "[{name: w, subject: user, amount: $1000, window: 1h}]", "{id: openai, rpm: 50}")
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Delay: time.Minute} })
	p := s.proxy()
	s.redis.Signal(syscall.SIGSTOP) // it accepts connections and never answers
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			_ = post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", callText, fmt.Sprintf(`"max_tokens":%d`, callOutput)))
		})
	}
	until(t, "its share of the provider's 50 calls is at the provider", func() bool { return s.fake.Totals().InFlight == 10 })
	until(t, "they are in the journal", func() bool { return p.value("llmguard_budget_journal_records") >= 10 })
	p.kill()
	redistest.Wait(t, wg.Wait)
	s.redis.Restart()
	p = s.proxy()
	until(t, "the journal is empty", func() bool { return p.value("llmguard_budget_journal_records") == 0 })
	var sum pricing.Nano
	ids := map[string]bool{}
	for _, e := range s.entries("acme") {
		sum += e.Cost
		ids[e.ID] = true
		if !e.Estimated {
			t.Errorf("not estimated: %+v", e)
		}
	}
	if len(ids) != 10 || sum < 10*costOfOne(t) {
		t.Errorf("%d calls are charged %v", len(ids), sum)
	}
}
