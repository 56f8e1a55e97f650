package guard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// TestRerank: a reranking is held by the most search units or tokens that it can be billed, and charged
// by those of the answer, as far as they agree with what was sent.
func TestRerank(t *testing.T) {
	r := newRig(t, roomy()...)
	documents := func(n, words int) string {
		one := `"` + strings.TrimSpace(strings.Repeat("boat ", words)) + `"`
		return `"documents":[` + strings.TrimSuffix(strings.Repeat(one+",", n), ",") + `]`
	}
	units := func(n string) string {
		return `{"id":"a","results":[{"index":0,"relevance_score":0.9}],"meta":{"billed_units":{"search_units":` + n + `}}}`
	}
	tokens := func(n int) string {
		return fmt.Sprintf(`{"object":"list","data":[{"index":0,"relevance_score":0.9}],"usage":{"total_tokens":%d}}`, n)
	}
	const usd = 1_000_000_000
	for _, x := range []struct {
		name, model, request, answer string
		fault                        UsageFault
		estimated                    bool
		held                         int64 // units, or tokens
		want                         pricing.Nano
	}{
		{"a unit", "units", documents(100, 10), units("1"), "", false, 1, 0.002 * usd},
		{"two units", "units", documents(101, 10), units("2"), "", false, 2, 0.004 * usd},
		{"long documents", "units", documents(100, 700), units("2"), "", false, 3, 0.004 * usd},
		{"cut documents", "units", `"max_tokens_per_doc":400,` + documents(100, 700), units("1"), "", false, 1, 0.002 * usd},
		{"beside a long query", "units", `"query":"` + strings.Repeat("boat ", 490) + `",` + documents(100, 100), units("10"), "", false, 16, 0.02 * usd},
		{"objects", "units", `"documents":[{"text":"boat","title":"x"}]`, units("1"), "", false, 1, 0.002 * usd},
		{"OpenRouter", "units", documents(2, 10), `{"results":[{"index":0}],"usage":{"search_units":1,"total_tokens":150}}`, "", false, 1, 0.002 * usd},
		{"fewer units than documents", "units", documents(150, 10), units("1"), LowInput, true, 2, 0.004 * usd},
		{"a million units", "units", documents(2, 10), units("1000000"), HighInput, true, 1, 0.002 * usd},
		{"no number", "units", documents(2, 10), units(`"many"`), "", true, 1, 0.002 * usd},
		{"no usage", "units", documents(101, 10), `{"results":[{"index":0}]}`, "", true, 2, 0.004 * usd},
		{"only tokens", "units", documents(2, 10), tokens(30), LowInput, true, 1, 0.002 * usd},
		{"tokens", "tokens", documents(10, 20), tokens(230), "", false, 10*(3+20) + 10*pairTokens, 230 * 50},
		{"with a template", "tokens", documents(10, 20), tokens(900), "", false, 10*(3+20) + 10*pairTokens, 900 * 50},
		{"a long query", "tokens", `"query":"` + strings.Repeat("boat ", 100) + `",` + documents(10, 1), tokens(1010), "", false, 10*101 + 10*pairTokens, 1010 * 50},
		{"hardly any tokens", "tokens", documents(10, 20), tokens(1), LowInput, true, 10*(3+20) + 10*pairTokens, -1},
		{"read in part", "tokens", `"truncate_prompt_tokens":64,` + documents(10, 200), tokens(640), "", false, 10*(3+200) + 10*pairTokens, 640 * 50},
		{"no tokens", "tokens", documents(10, 20), `{"results":[{"index":0}]}`, "", true, 10*(3+20) + 10*pairTokens, -1},
		{"free", "free", documents(10, 20), `{"results":[{"index":0,"relevance_score":1}]}`, "", true, 10*(3+20) + 10*pairTokens, 0},
	} {
		r.vendor(t, &vendor{status: 200, kind: "application/json", body: x.answer}, nil)
		r.prices(t, `[{model: units, prices: [{input: 0, output: 0, per_search_unit: 0.002}]},
			{model: tokens, prices: [{input: 0.05, output: 0}]}, {model: free, prices: [{input: 0, output: 0}]}]`)
		if !strings.Contains(x.request, "query") {
			x.request += `,"query":"a red boat"`
		}
		req, err := wire.Scan(wire.Rerank, []byte(`{"model":"`+x.model+`",`+x.request+`}`), wire.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.guard.Plans.Prepare(r.caller(), req)
		if err != nil {
			t.Fatal(err)
		}
		if x.model == "units" && p.units.most != x.held || x.model != "units" && (p.Input < x.held || p.Input > 2*x.held) {
			t.Errorf("%s: held %+v, %d tokens, want %d", x.name, p.units, p.Input, x.held)
		}
		if least := pricing.Nano(p.units.least) * (0.002 * usd); x.model == "units" && p.Least() != least {
			t.Errorf("%s: costs at least %v, want %v", x.name, p.Least(), least)
		}
		before, c := r.used(), r.begin(p)
		err = c.Forward(t.Context(), httptest.NewRecorder(), Forwarding{Header: http.Header{}})
		c.End(t.Context())
		r.settle()
		res := c.Result
		if x.want < 0 {
			x.want = p.Max.Cost
		}
		faults := slices.DeleteFunc([]UsageFault{x.fault}, func(f UsageFault) bool { return f == "" })
		if err != nil || res.Cost != x.want || res.Estimated != x.estimated || !slices.Equal(res.UsageFaults, faults) {
			t.Errorf("%s: charged %v, estimated %t, %v, %v; want %v of %v held", x.name, res.Cost, res.Estimated, res.UsageFaults, err, x.want, p.Max.Cost)
		}
		r.charged(before, c)
	}
	r.org.BatchMode = ByProvider
	for ep, want := range map[wire.Endpoint]bool{wire.Embeddings: true, wire.Rerank: false} {
		if _, byProvider, err := r.guard.Plans.BatchTarget(r.caller(), ep, "tokens"); byProvider != want || err != nil {
			t.Errorf("lines of %s go to the provider's Batch API: %t, %v", ep, byProvider, err)
		}
	}
}
