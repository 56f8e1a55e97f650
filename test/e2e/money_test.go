package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/pricing"
)

// One call of the overspend test: 12 input tokens by the cookbook's formula
// ("The same prompt each time") and 50 output tokens of gpt-4o.
const (
	callText   = "The same prompt each time"
	callOutput = 50
)

// entries reads an org's ledger once every call has been settled.
func (s *stack) entries(org string) []budget.Entry {
	s.t.Helper()
	store := budget.New(s.redis.Client(), budget.Options{})
	var out []budget.Entry
	err := store.Entries(context.Background(), org, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), func(e budget.Entry) error {
		out = append(out, e)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// settled waits until the ledger holds n entries.
func (s *stack) settled(org string, n int) []budget.Entry {
	s.t.Helper()
	var out []budget.Entry
	for range 3000 {
		if out = s.entries(org); len(out) >= n {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if len(out) != n {
		s.t.Fatalf("the ledger has %d entries, want %d", len(out), n)
	}
	return out
}

// bill prices what the provider says it used, independently of the guard.
func bill(t *testing.T, records []fakeprovider.Record) pricing.Nano {
	t.Helper()
	catalogue, err := pricing.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	var sum pricing.Nano
	for _, r := range records {
		if r.Reported == "" {
			continue
		}
		price, err := catalogue.Lookup("openai", r.AnswerModel, r.At)
		if err != nil {
			t.Fatal(err)
		}
		u := pricing.Usage{
			Input: r.Usage.Prompt, CachedInput: r.Usage.Cached, CacheWrite: r.Usage.CacheWrite,
			Output: r.Usage.Completion, Reasoning: r.Usage.Reasoning, Requests: 1,
		}
		cost, err := price.Charge(u, pricing.Terms{ServiceTier: r.Tier, At: r.At})
		if err != nil {
			t.Fatal(err)
		}
		sum += cost
	}
	return sum
}

// TestOverspend: a budget worth exactly ten calls, 200 at once over two
// proxies. Exactly ten reach the provider and are charged.
func TestOverspend(t *testing.T) {
	for _, shape := range []string{"window", "bucket"} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/stream=%v", shape, stream), func(t *testing.T) { overspend(t, shape, stream) })
		}
	}
}

func overspend(t *testing.T, shape string, stream bool) {
	price := costOfOne(t)
	limit := fmt.Sprintf("[{name: w, subject: user, amount: %q, window: 1h}]", (10 * price).String())
	if shape == "bucket" {
		limit = fmt.Sprintf("[{name: b, subject: org, bucket: {capacity: %q}}]", (10 * price).String())
	}
	s := newStack(t, fakeprovider.Options{}, simple(limit))
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Fill: true, Delay: 300 * time.Millisecond}
	})
	proxies := []*process{s.proxy(), s.proxy()}
	s.worker()
	body := chat("gpt-4o", callText, fmt.Sprintf(`"max_tokens":%d,"stream":%v`, callOutput, stream))
	var wg sync.WaitGroup
	var mu sync.Mutex
	status := map[int]int{}
	for i := range 200 {
		wg.Go(func() {
			a := post(proxies[i%2].URL+"/chat/completions", s.keys["alice"], body, "Prefer", "wait=3")
			mu.Lock()
			defer mu.Unlock()
			if stream && a.status == http.StatusOK && strings.Contains(a.body, `"error"`) {
				a.status = 429
			}
			status[a.status]++
		})
	}
	wg.Wait()
	entries := s.settled("acme", 10)
	var sum pricing.Nano
	for _, e := range entries {
		sum += e.Cost
		if e.Estimated || e.Overrun != 0 {
			t.Errorf("entry %+v is estimated or overran", e)
		}
	}
	if totals := s.fake.Totals(); totals.Requests != 10 {
		t.Errorf("%d requests reached the provider, want 10", totals.Requests)
	}
	if sum != 10*price || sum != bill(t, s.fake.Log()) {
		t.Errorf("charged %v, the budget is %v, the provider billed %v", sum, 10*price, bill(t, s.fake.Log()))
	}
	// 503 says that Redis did not answer in time, on a machine as busy as this.
	if status[200] != 10 || status[200]+status[429]+status[503] != 200 {
		t.Errorf("statuses %v, want 10 x 200 and 190 refusals", status)
	}
}

func costOfOne(t *testing.T) pricing.Nano {
	t.Helper()
	catalogue, err := pricing.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	price, err := catalogue.Lookup("openai", "gpt-4o", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cost, err := price.Charge(pricing.Usage{Input: 12, Output: callOutput, Requests: 1}, pricing.Terms{At: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return cost
}

// TestExactBill: over mixed calls whose usage arrives, the ledger equals the
// provider's bill to the nano-dollar.
func TestExactBill(t *testing.T) {
	s := newStack(t, fakeprovider.Options{}, simple("[{name: w, subject: user, amount: $1000, window: 1h}]"))
	p := s.proxy()
	s.worker()
	const calls = 1000
	models := []string{"gpt-4o", "gpt-4o-mini", "gpt-4.1-nano", "gpt-5-mini", "o4-mini", "gpt-5.6-luna"}
	rng := rand.New(rand.NewPCG(1, 2))
	bodies := make([]string, calls)
	for i := range bodies {
		model := models[rng.IntN(len(models))]
		text := strings.Repeat("word and number 17, ", rng.IntN(60)) + fmt.Sprint(i)
		switch extra := fmt.Sprintf(`"max_completion_tokens":%d`, 50+rng.IntN(200)); rng.IntN(5) {
		case 0:
			bodies[i] = fmt.Sprintf(`{"model":"text-embedding-3-small","input":[%q,"and more"]}`, text)
		case 1:
			bodies[i] = chat(model, text, extra+`,"stream":true`)
		case 2:
			bodies[i] = chat(model, text, extra+`,"stream":true,"stream_options":{"include_usage":true}`)
		case 3:
			bodies[i] = chat(model, text, extra+`,"n":3`)
		default:
			bodies[i] = chat(model, text, extra)
		}
	}
	work := make(chan string)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for body := range work {
				path := "/chat/completions"
				if strings.Contains(body, "embedding") {
					path = "/embeddings"
				}
				if a := post(p.URL+path, s.keys["alice"], body); a.status != http.StatusOK || a.err != nil {
					t.Errorf("status %d, %v: %s", a.status, a.err, a.body)
				}
			}
		})
	}
	for _, b := range bodies {
		work <- b
	}
	close(work)
	wg.Wait()
	var sum pricing.Nano
	for _, e := range s.settled("acme", calls) {
		sum += e.Cost
		if e.Estimated || e.Overrun != 0 {
			t.Errorf("entry is estimated or overran its hold: %+v", e)
		}
	}
	if want := bill(t, s.fake.Log()); sum != want {
		t.Errorf("the ledger says %v, the provider's log %v", sum, want)
	}
}
