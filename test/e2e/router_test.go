package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/pricing"
)

// router is a provider with vendor fields: if a request lists another model, that one answers,
// and of the output limits it knows only max_tokens. It reports the cost of each response.
type router struct {
	billed atomic.Int64 // nano-USD
	calls  atomic.Int64
}

// words is how many tokens it generates without a known limit.
const words = 3000

func (r *router) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, _ := io.ReadAll(q.Body)
	var asked struct {
		Model     string
		Models    []string
		MaxTokens int64 `json:"max_tokens"`
		Stream    bool
	}
	_ = json.Unmarshal(body, &asked)
	r.calls.Add(1)
	price := int64(2000) // per output token, at the prices below
	if len(asked.Models) > 0 {
		asked.Model, price = asked.Models[0], 400_000
	}
	n := asked.MaxTokens
	if n == 0 {
		n = words
	}
	if !asked.Stream {
		bill := 10*1000 + n*price
		r.billed.Add(bill)
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"model":%q,"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}],`+
			`"usage":{"prompt_tokens":10,"completion_tokens":%d,"total_tokens":%d,"cost":%d.%09d}}`, asked.Model, n, n+10, bill/1e9, bill%1e9)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for i := range n {
		if q.Context().Err() != nil {
			r.billed.Add(10*1000 + i*price)
			return
		}
		_, _ = fmt.Fprintf(w, "data: {\"model\":%q,\"choices\":[{\"index\":0,\"delta\":{\"content\":\" a\"}}]}\n\n", asked.Model)
		_ = http.NewResponseController(w).Flush()
	}
	r.billed.Add(10*1000 + n*price)
	_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
}

const routerConfig = `
prices:
  - {model: cheap, provider: router, max_output: 4000, prices: [{input: 1, output: 2}]}
providers:
  - {id: router, base_url: "ROUTER", reported_cost: charge, pools: [{id: router}]}
orgs:
  - id: acme
    limits: [{name: w, subject: user, amount: $0.001, window: 1h}]
    over_limit: refuse
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}", models: [cheap]}]}
`

// TestRouterBillsNoMoreThanIsCharged: whatever fields a caller sends to a provider with vendor
// fields, the provider bills no more than the ledger charges, and the total stays within the
// limit.
func TestRouterBillsNoMoreThanIsCharged(t *testing.T) {
	t.Parallel()
	r := &router{}
	server := httptest.NewServer(r)
	defer server.Close()
	s := newStack(t, fakeprovider.Options{}, strings.Replace(routerConfig, "ROUTER", server.URL+"/v1", 1))
	p := s.proxy()
	ask := func(extra string) answer {
		return post(p.URL+"/chat/completions", s.keys["alice"], chat("cheap", "hi", extra))
	}
	for _, field := range []string{
		`"models":["dear"]`, `"fallbacks":["dear"]`, `"plugins":[{"id":"web"}]`, `"route":"fallback"`, `"search_parameters":{}`,
		`"enable_search":true`, `"extra_body":{"models":["dear"]}`,
	} {
		if a := ask(`"max_tokens":20,` + field); a.status != http.StatusBadRequest || !strings.Contains(a.body, "allow_fields") {
			t.Errorf("%s: status %d: %s", field, a.status, a.body)
		}
	}
	if r.calls.Load() != 0 {
		t.Fatalf("%d refused calls reached the provider", r.calls.Load())
	}
	for _, limit := range []string{`"max_completion_tokens":20`, `"max_completion_tokens":20,"stream":true`, `"max_tokens":20,"stream":true`} {
		if a := ask(limit); a.status != http.StatusOK {
			t.Errorf("%s: status %d: %s", limit, a.status, a.body)
		}
	}
	var sum pricing.Nano
	for _, e := range s.settled("acme", 3) {
		if sum += e.Cost; e.Overrun != 0 {
			t.Errorf("overran: %+v", e)
		}
	}
	if billed := pricing.Nano(r.billed.Load()); sum < billed || sum > 1_000_000 {
		t.Errorf("%v is charged and %v billed, of a limit of $0.001", sum, billed)
	}
}

// TestAllowedFieldsAreChargedByTheAnswer: if an operator allows a field that makes another
// model answer, the charge is what that model cost.
func TestAllowedFieldsAreChargedByTheAnswer(t *testing.T) {
	t.Parallel()
	r := &router{}
	server := httptest.NewServer(r)
	defer server.Close()
	text := strings.Replace(routerConfig, "pools:", "allow_fields: [models], pools:", 1)
	s := newStack(t, fakeprovider.Options{}, strings.Replace(text, "ROUTER", server.URL+"/v1", 1))
	p := s.proxy()
	a := post(p.URL+"/chat/completions", s.keys["alice"], chat("cheap", "hi", `"max_tokens":20,"models":["dear"]`))
	if a.status != http.StatusOK {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	if list := s.settled("acme", 1); int64(list[0].Cost) != r.billed.Load() || list[0].Overrun == 0 {
		t.Errorf("the ledger says %+v, %d is billed", list[0], r.billed.Load())
	}
	if text := p.metrics(); !strings.Contains(text, `llmguard_guard_underpriced_usd_total{pool="router",reason="cost"} `) ||
		strings.Contains(text, `llmguard_guard_underpriced_usd_total{pool="router",reason="cost"} 0`+"\n") {
		t.Errorf("the difference is not counted")
	}
	if a := post(p.URL+"/chat/completions", s.keys["alice"], chat("cheap", "hi", `"max_tokens":20`)); a.status != http.StatusTooManyRequests {
		t.Errorf("beyond the limit: status %d: %s", a.status, a.body)
	}
}
