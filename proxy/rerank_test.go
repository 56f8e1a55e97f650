package proxy

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// TestRerank ranks documents in each form, live and as a job, and refuses what cannot be ranked.
func TestRerank(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	own, err := pricing.ParseEntries([]byte(`[{model: rerank-v9, prices: [{input: 0, output: 0, per_search_unit: 0.002}]},
		{model: ranker, prices: [{input: 0.05, output: 0}]}]`))
	if err != nil {
		t.Fatal(err)
	}
	p := *r.guard.Policy()
	if p.Catalogue, err = p.Catalogue.With(own); err != nil {
		t.Fatal(err)
	}
	r.guard.SetPolicy(&p)
	const rest = `"query":"red boats","documents":["green boats","red boats",{"text":"cars"}]`
	for _, x := range []struct{ path, body, contains, cost string }{
		{"/v1/rerank", `{"model":"rerank-v9","top_n":1,` + rest + `}`, `"results":[{"index":1,`, "0.002000000"},
		{"/v2/rerank", `{"model":"rerank-v9",` + rest + `}`, `"search_units":1`, "0.002000000"},
		{"/v1/rerank", `{"model":"ranker","top_k":2,` + rest + `}`, `"data":[{"index":1,`, "0.000000550"},
		{"/openai/deployments/ranker/rerank?api-version=1", `{` + rest + `}`, `"total_tokens":11`, "0.000000550"},
	} {
		a := r.call(http.MethodPost, x.path, x.body)
		if a.status != 200 || !strings.Contains(a.body, x.contains) || a.header.Get("X-Llmguard-Cost-Usd") != x.cost {
			t.Errorf("%s: status %d, %.300s, cost %q; want %s for %s", x.body, a.status, a.body, a.header.Get("X-Llmguard-Cost-Usd"), x.contains, x.cost)
		}
	}
	r.worker(nil)
	before := len(r.ledger(4))
	a := r.call(http.MethodPost, "/v1/rerank", `{"model":"rerank-v9",`+rest+`}`, "Prefer", "respond-async, wait=60")
	if e := r.ledger(before + 1)[before]; a.status != 200 || !strings.Contains(a.body, `"search_units":1`) || e.JobID == "" || e.Cost != 2_000_000 ||
		e.Usage.SearchUnits != 1 {
		t.Errorf("a job: status %d, %s, settled as %+v; want one search unit", a.status, a.body, e)
	}
	sent := r.fake.Totals().Requests
	many := `"documents":[` + strings.Repeat(`"a",`, 2048) + `"a"]`
	for body, code := range map[string]string{
		`"documents":["a"]`: "missing_required_parameter", `"query":"","documents":["a"]`: "missing_required_parameter",
		`"query":"a"`: "missing_required_parameter", `"query":"a","documents":[]`: "empty_array", `"query":"a","documents":"a"`: "invalid_type",
		`"query":"a","documents":[1]`: "invalid_type", `"query":["a"],"documents":["a"]`: "invalid_type", `"query":"a",` + many: "array_above_max_length",
		`"query":"a","documents":[{"image":"https://a.invalid/b"}]`: "unsupported_parameter", `"query":"a","documents":["a"],"top_n":0`: "integer_below_min_value",
		`"query":"a","documents":["a"],"embed":true`: "unknown_parameter",
	} {
		r.call(http.MethodPost, "/v1/rerank", `{"model":"ranker",`+body+`}`).fails(t, 400, code)
	}
	if n := r.fake.Totals().Requests; n > sent {
		t.Errorf("%d refused requests were sent", n-sent)
	}
	limit := requestLimit("rankings", budget.User, 1)
	limit.Endpoints = []string{"/v1/rerank"}
	r.limitRequests(limit)
	r.call(http.MethodPost, "/v1/rerank", `{"model":"ranker",`+rest+`}`)
	r.call(http.MethodPost, "/v2/rerank", `{"model":"ranker",`+rest+`}`).refusedBy(t, "at the alias", "rankings")
}
