package e2e

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// A call of the overspend test: 12 input tokens ("The same prompt each time", by the cookbook's
// formula) and 50 output tokens of gpt-4o.
const (
	callText   = "The same prompt each time"
	callOutput = 50
)

// entries returns an org's ledger once every call has been settled.
func (s *stack) entries(org string) []ledger.Entry {
	s.t.Helper()
	store := budget.New(s.redis.DB(), budget.Options{})
	var out []ledger.Entry
	err := store.Ledger.Entries(context.Background(), org, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), func(e ledger.Entry) error {
		out = append(out, e)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// settled waits until the ledger has n entries.
func (s *stack) settled(org string, n int) []ledger.Entry {
	s.t.Helper()
	var out []ledger.Entry
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

// bill prices the usage that the provider reports, independently of the guard.
func bill(t *testing.T, records []fakeprovider.Record) pricing.Nano {
	t.Helper()
	return billOf(t, "openai", records)
}

// billOf is bill at the prices of a provider.
func billOf(t *testing.T, provider string, records []fakeprovider.Record) pricing.Nano {
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
		price, err := catalogue.Lookup(provider, cmp.Or(r.AnswerModel, r.Model), r.At)
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

// crowd is the number of concurrent callers for a budget worth ten calls.
var crowd = either(60, 200)

// crowdedOrgs are the shapes of a budget, each for plain calls and for streams.
var crowdedOrgs = map[string]struct {
	limit  string // with a placeholder for the amount
	stream bool
}{
	"window":        {limit: "[{name: w, subject: user, amount: %q, window: 1h}]"},
	"window-stream": {limit: "[{name: w, subject: user, amount: %q, window: 1h}]", stream: true},
	"bucket":        {limit: "[{name: b, subject: org, bucket: {capacity: %q}}]"},
	"bucket-stream": {limit: "[{name: b, subject: org, bucket: {capacity: %q}}]", stream: true},
}

// TestOverspend: under a budget worth exactly ten calls, of many concurrent calls over two
// proxies exactly ten reach the provider and are charged.
func TestOverspend(t *testing.T) {
	t.Parallel()
	price := costOfOne(t)
	config := `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
`
	for org, c := range crowdedOrgs {
		limit := fmt.Sprintf(c.limit, (10 * price).String())
		config += fmt.Sprintf("  - {id: %s, limits: %s, users: [{id: u, keys: [{id: k, hash: \"${key:%s}\"}]}]}\n", org, limit, org)
	}
	s := newStack(t, fakeprovider.Options{}, config)
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Fill: true, Delay: 300 * time.Millisecond}
	})
	proxies := []*process{s.proxy(), s.proxy()}
	s.worker()
	for org, c := range crowdedOrgs {
		t.Run(org, func(t *testing.T) {
			before := s.fake.Totals().Requests
			extra := fmt.Sprintf(`"max_tokens":%d,"stream":%v`, callOutput, c.stream)
			answers := s.come(proxies, extra, func(int) string { return s.keys[org] })
			tenPassed(t, answers)
			s.chargedTen(t, org, price)
			if n := s.fake.Totals().Requests - before; n != 10 {
				t.Errorf("%d requests reached the provider, want 10", n)
			}
		})
	}
	if got, want := bill(t, s.fake.Log()), pricing.Nano(10*len(crowdedOrgs))*price; got != want {
		t.Errorf("the provider bills %v, the budgets were %v", got, want)
	}
}

// come sends the crowd's calls concurrently, alternating between the proxies. Each caller is
// willing to wait for ten seconds.
func (s *stack) come(proxies []*process, extra string, key func(i int) string) []answer {
	answers := make([]answer, crowd)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			url := proxies[i%len(proxies)].URL + "/chat/completions"
			answers[i] = post(url, key(i), chat("gpt-4o", callText, extra), "Prefer", "wait=10")
		})
	}
	redistest.Wait(s.t, wg.Wait)
	return answers
}

// tenPassed checks that at most ten callers were served and the others were refused, streams by
// an error event. Fewer than ten are served if a caller gives up before its call runs; the call
// is made nevertheless. 503 is the refusal when Redis does not answer in time.
func tenPassed(t *testing.T, answers []answer) {
	t.Helper()
	status := map[int]int{}
	for _, a := range answers {
		if a.status == http.StatusOK && strings.Contains(a.body, `"error"`) {
			a.status = http.StatusTooManyRequests
		}
		status[a.status]++
	}
	if status[200] > 10 || status[200]+status[402]+status[429]+status[503] != len(answers) {
		t.Errorf("statuses %v, want at most 10 x 200, and refusals", status)
	}
}

// chargedTen checks that the org's ledger has ten calls at this price.
func (s *stack) chargedTen(t *testing.T, org string, price pricing.Nano) {
	t.Helper()
	var sum pricing.Nano
	for _, e := range s.settled(org, 10) {
		sum += e.Cost
		if e.Estimated || e.Overrun != 0 {
			t.Errorf("entry %+v is estimated or overran", e)
		}
	}
	if sum != 10*price {
		t.Errorf("charged %v, the budget is %v", sum, 10*price)
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

// TestExactBill: for a mix of calls that report usage, the ledger equals the provider's bill to
// the nano-USD.
func TestExactBill(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, simple("[{name: w, subject: user, amount: $1000, window: 1h}]"))
	p := s.proxy()
	calls := either(250, 5000)
	models := []string{"gpt-4o", "gpt-4o-mini", "gpt-4.1-nano", "gpt-5-mini", "o4-mini", "gpt-5.6-luna"}
	rng := rand.New(rand.NewPCG(1, 2))
	bodies := make([]string, calls)
	for i := range bodies {
		model := models[rng.IntN(len(models))]
		text := strings.Repeat("word and number 17, ", rng.IntN(60)) + fmt.Sprint(i)
		switch extra := fmt.Sprintf(`"max_completion_tokens":%d`, 50+rng.IntN(200)); rng.IntN(6) {
		case 0:
			bodies[i] = fmt.Sprintf(`{"model":"text-embedding-3-small","input":[%q,"and more"]}`, text)
		case 1:
			bodies[i] = chat(model, text, extra+`,"stream":true`)
		case 5:
			bodies[i] = fmt.Sprintf(`{"model":"text-embedding-3-small","query":"number 17","documents":[%q,{"text":"and more"}]}`, text)
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
				switch {
				case strings.Contains(body, `"documents"`):
					path = "/rerank"
				case strings.Contains(body, "embedding"):
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
	redistest.Wait(t, wg.Wait)
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
