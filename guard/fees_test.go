package guard

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// add adds prices to the current ones.
func (r *rig) add(yaml string) {
	r.t.Helper()
	own, err := pricing.ParseEntries([]byte(yaml))
	if err != nil {
		r.t.Fatal(err)
	}
	p := *r.guard.Policy()
	if p.Catalogue, err = p.Catalogue.With(own); err != nil {
		r.t.Fatal(err)
	}
	r.guard.SetPolicy(&p)
}

// serve makes a whole call of an endpoint and returns it.
func (r *rig) serve(ep wire.Endpoint, body string) *Call {
	r.t.Helper()
	req, err := wire.Scan(ep, []byte(body), wire.Limits{})
	if err != nil {
		r.t.Fatal(err)
	}
	p, err := r.guard.Plans.Prepare(r.caller(), req)
	if err != nil {
		r.t.Fatal(err)
	}
	c := r.begin(p)
	if err := c.Forward(r.t.Context(), httptest.NewRecorder(), Forwarding{Header: http.Header{}}); err != nil {
		r.t.Fatal(err)
	}
	c.End(r.t.Context())
	r.settle()
	return c
}

// TestModerationsWithAPrice checks that a moderation costs its model's price, and is free
// only if there is none.
func TestModerationsWithAPrice(t *testing.T) {
	r := newRig(t, roomy()...)
	const body = `{"model":"judge","input":["hello there",{"type":"text","text":"hello there"}]}`
	if c := r.serve(wire.Moderations, body); c.Result.Cost != 0 || c.Plan.Max.Cost != 0 || c.Result.Outcome != Completed {
		t.Errorf("without a price: held %d, charged %d, %s", c.Plan.Max.Cost, c.Result.Cost, c.Result.Outcome)
	}
	r.add(`[{model: judge, provider: openai, prices: [{input: 1000, output: 0, per_request: 0.5}]}]`)
	before := r.used()
	c := r.serve(wire.Moderations, body)
	const least = 500_000_000 + 4*1_000_000 // four tokens of text
	if c.Plan.Max.Cost < least || c.Result.Cost < least || c.Result.Cost > c.Plan.Max.Cost || !c.Result.Estimated {
		t.Errorf("held %d, charged %d, estimated %v; want %d and more", c.Plan.Max.Cost, c.Result.Cost, c.Result.Estimated, least)
	}
	r.charged(before, c)
	c = r.serve(wire.Moderations, `{"model":"judge","input":[{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}]}`)
	if c.Result.Cost < least+50*1_000_000 {
		t.Errorf("an image: charged %d, want more than that of a text", c.Result.Cost)
	}
}

// TestSearchFees checks that a model that searches before every answer costs the fee of a
// search with every request, whether its price lists the fee per request or per tool call.
func TestSearchFees(t *testing.T) {
	r := newRig(t, roomy()...)
	r.add(`
- {model: gpt-4o-search-preview-house, provider: openai, max_output: 100, prices: [{input: 0, output: 0, per_tool_call: 0.025}]}
- {model: sonar-house, provider: openai, max_output: 100, prices: [{input: 0, output: 0, per_request: 0.006, per_tool_call: 0.008}]}
- {model: plain-house, provider: openai, max_output: 100, prices: [{input: 0, output: 0, per_tool_call: 0.01}]}
`)
	open := *r.org
	open.AllowBuiltinTools = true
	for name, x := range map[string]struct {
		org          *Org
		model, extra string
		held, cost   pricing.Nano
	}{
		"a search model":              {r.org, "gpt-4o-search-preview-house", "", 25_000_000, 25_000_000},
		"its options":                 {&open, "gpt-4o-search-preview-house", `"web_search_options":{}`, 25_000_000, 25_000_000},
		"a fee per request":           {r.org, "sonar-house", "", 6_000_000, 6_000_000},
		"a larger context":            {&open, "sonar-house", `"web_search_options":{"search_context_size":"high"}`, 14_000_000, 14_000_000},
		"a search by another":         {&open, "plain-house", `"web_search_options":{}`, 10_000_000, 10_000_000},
		"no search":                   {r.org, "plain-house", "", 0, 0},
		"tools without a bound":       {&open, "plain-house", `"tools":[{"type":"web_search"}]`, 80_000_000, 0},
		"tools with a bound":          {&open, "plain-house", `"tools":[{"type":"web_search"}],"max_tool_calls":2`, 20_000_000, 0},
		"searches that the usage has": {r.org, "plain-house", "", 0, 30_000_000},
	} {
		r.org = x.org
		text := "hi"
		if x.held < x.cost {
			text = `[fake: raw-usage={"prompt_tokens":100,"completion_tokens":100,"total_tokens":200,"server_tool_use":{"web_search_requests":3}}]`
		}
		c := r.serve(wire.ChatCompletions, prompt(x.model, text, x.extra))
		if c.Plan.Max.Cost != x.held || c.Result.Cost != x.cost {
			t.Errorf("%s: held %d, charged %d, want %d and %d", name, c.Plan.Max.Cost, c.Result.Cost, x.held, x.cost)
		}
	}
}
