package guard

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// more returns what the rig's calls were charged above their price for a reason.
func (r *rig) more(pool string, why Reason) int64 {
	return int64(math.Round(1e9 * testutil.ToFloat64(r.guard.metrics.underpriced.WithLabelValues(pool, string(why)))))
}

// TestDearerAnswersAreCharged checks that the highest of three costs is charged: that of
// the requested model, of the model that answered, and the cost that the answer reports.
// The difference is counted, and logged once.
func TestDearerAnswersAreCharged(t *testing.T) {
	r := newRig(t, roomy()...)
	var log bytes.Buffer
	r.guard.log = slog.New(slog.NewTextHandler(&log, nil))
	f := func(model, cost string, change func(*providers.Provider), want pricing.Nano) {
		t.Helper()
		v := &vendor{status: 200, kind: "application/json", body: `{"model":"` + model + `","choices":[{"index":0,` +
			`"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12` + cost + `}}`}
		r.vendor(t, v, func(p *providers.Provider) {
			if p.ID = "gateway"; change != nil {
				change(p)
			}
		})
		r.prices(t, `[
			{model: cheap, provider: gateway, prices: [{input: 1, output: 2}], max_output: 1000},
			{model: dear, prices: [{input: 100, output: 200}], max_output: 1000},
			{model: cheap-2026, provider: other, prices: [{input: 100, output: 200}], max_output: 1000}]`)
		before := r.used()
		c, _, err := r.run(t.Context(), prompt("cheap", "hello there", `"max_tokens":10`))
		if err != nil || c.Result.Cost != want || c.Result.Estimated {
			t.Errorf("%s%s: charged %v, want %v (%v)", model, cost, c.Result.Cost, want, err)
		}
		r.charged(before, c)
	}
	const cheap, dear = 9*1000 + 3*2000, 9*100_000 + 3*200_000
	f("cheap", "", nil, cheap)
	f("never-heard-of", "", nil, cheap)
	f("cheap-2026", "", nil, cheap) // a version of the requested model
	if got := r.more("vendor", DearerModel) + r.more("vendor", ReportedCost); got != 0 || log.Len() > 0 {
		t.Errorf("%d are counted, the log says %s", got, &log)
	}
	f("dear", "", nil, dear)
	f("dear", "", nil, dear)
	f("cheap", `,"cost":0.000014`, nil, cheap)
	f("cheap", `,"cost":0.00294`, nil, 2_940_000)
	f("dear", `,"cost":0.00294`, nil, 2_940_000)
	f("cheap", `,"cost":0.00294`, func(p *providers.Provider) { p.ReportedCost = providers.IgnoreCost }, cheap)
	f("cheap", `,"cost":-1`, nil, cheap)
	f("cheap", `,"cost":1e12`, nil, cheap)
	f("cheap", `,"cost":"much"`, nil, cheap)
	f("cheap", `,"cost":0.001,"is_byok":true,"cost_details":{"upstream_inference_cost":0.002}`, nil, 3_000_000)
	if got, want := r.more("vendor", DearerModel), int64(3*(dear-cheap)); got != want {
		t.Errorf("dearer models: %d is counted, want %d", got, want)
	}
	if got, want := r.more("vendor", ReportedCost), int64(2_940_000-cheap+2_940_000-dear+3_000_000-cheap); got != want {
		t.Errorf("reported cost: %d is counted, want %d", got, want)
	}
	if n := strings.Count(log.String(), "cost more than its price"); n != 2 {
		t.Errorf("told %d times, want once for each reason: %s", n, &log)
	}
}

// dearer makes a rig's vendor give this answer. One model costs 1 and 2 USD per million,
// another a hundred times as much.
func (r *rig) dearer(t *testing.T, v *vendor, change func(*providers.Provider)) {
	t.Helper()
	r.vendor(t, v, change)
	r.prices(t, `[
		{model: cheap, prices: [{input: 1, output: 2}], max_output: 1000},
		{model: dear, prices: [{input: 100, output: 200}], max_output: 1000},
		{model: painter, prices: [{input: 1, output: 2, image_out: 2}], max_output: 1000},
		{model: dear-painter, prices: [{input: 100, output: 200, image_out: 200}], max_output: 1000}]`)
}

// as makes a whole call of an endpoint and settles it.
func (r *rig) as(ep wire.Endpoint, body string) (*Call, *httptest.ResponseRecorder) {
	r.t.Helper()
	req, err := wire.Scan(ep, []byte(body), wire.Limits{})
	if err != nil {
		r.t.Fatal(err)
	}
	plan, err := r.guard.Plans.Prepare(r.caller(), req)
	if err != nil {
		r.t.Fatal(err)
	}
	c, w := r.begin(plan), httptest.NewRecorder()
	_ = c.Forward(r.t.Context(), w, Forwarding{Header: http.Header{}})
	c.End(r.t.Context())
	r.settle()
	return c, w
}

// TestDearerModelsAreChargedEverywhere checks that the model that answered is compared with
// the priced one in every form of answer, with and without usage.
func TestDearerModelsAreChargedEverywhere(t *testing.T) {
	r := newRig(t, roomy()...)
	const usage = `"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"input_tokens":9,"output_tokens":3}`
	const used = 9*100_000 + 3*200_000
	chunk := func(more string) string {
		return `{"model":"dear","choices":[{"index":0,"delta":{"content":"hi"}` + more + `}]`
	}
	const completed = `{"type":"response.completed","response":{"id":"r","status":"completed","output":[]`
	for _, x := range []struct {
		name, ask, answer string
		ep                wire.Endpoint
		chatOnly          bool
		want              func(c *Call) pricing.Nano // nil: the cost of the usage
	}{
		{name: "stream", ask: streamed, answer: events(chunk(`,"finish_reason":"stop"`)+"}", `{"model":"dear","choices":[],`+usage+`}`)},
		{name: "stream, named before the usage", ask: streamed, answer: events(chunk(`,"finish_reason":"stop"`)+"}", `{"choices":[],`+usage+`}`)},
		{name: "stream without usage", ask: streamed, answer: events(chunk(`,"finish_reason":"stop"`) + "}"), want: estimated},
		{name: "stream that broke off", ask: streamed, answer: "data: " + chunk("") + "}\n\n", want: estimated},
		{name: "without usage", answer: `{"model":"dear","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}`, want: estimated},
		{name: "response", ep: wire.Responses, answer: `{"id":"r","model":"dear","output":[],` + usage + `}`},
		{
			name: "stream of a response", ep: wire.Responses, ask: `"stream":true`,
			answer: events(`{"type":"response.created","response":{"id":"r","model":"dear"}}`, completed+`,`+usage+`}}`),
		},
		{name: "translated", ep: wire.Responses, chatOnly: true, answer: `{"model":"dear","choices":[{"message":{"content":"hi"},"finish_reason":"stop"}],` + usage + `}`},
		{
			name: "translated stream", ep: wire.Responses, chatOnly: true, ask: `"stream":true`,
			answer: events(chunk(`,"finish_reason":"stop"`)+"}", `{"choices":[],`+usage+`}`),
		},
		{name: "embeddings", ep: wire.Embeddings, answer: `{"data":[{"embedding":[0.5]}],"model":"dear","usage":{"prompt_tokens":9,"total_tokens":9}}`, want: func(*Call) pricing.Nano { return 900_000 }},
		{name: "pictures", ep: wire.ImageGenerations, answer: `{"model":"dear-painter","data":[{"b64_json":"x"}],` + usage + `}`},
		{name: "pictures without usage", ep: wire.ImageGenerations, answer: `{"model":"dear-painter","data":[{"b64_json":"x"}]}`, want: held},
	} {
		t.Run(x.name, func(t *testing.T) {
			kind := "application/json"
			if strings.HasPrefix(x.answer, "data:") {
				kind = "text/event-stream"
			}
			r.dearer(t, &vendor{status: 200, kind: kind, body: x.answer}, func(p *providers.Provider) { p.ChatOnly = x.chatOnly })
			body := prompt("cheap", "hello there", strings.TrimSuffix(`"max_tokens":10,`+x.ask, ","))
			switch x.ep {
			case wire.Responses:
				body = `{"model":"cheap","input":"hello there","max_output_tokens":20` + strings.TrimSuffix(","+x.ask, ",") + `}`
			case wire.Embeddings:
				body = `{"model":"cheap","input":"hello there"}`
			case wire.ImageGenerations:
				body = `{"model":"painter","prompt":"hello there"}`
			default:
				x.ep = wire.ChatCompletions
			}
			before := r.used()
			c, _ := r.as(x.ep, body)
			want := pricing.Nano(used)
			if x.want != nil {
				want = x.want(c)
			}
			if c.Result.Cost != want || c.Result.Underpriced[DearerModel] <= 0 {
				t.Errorf("charged %v (%s, %v more), want %v", c.Result.Cost, c.Result.Outcome, c.Result.Underpriced, want)
			}
			r.charged(before, c)
		})
	}
}

// estimated returns the cost of the counted tokens with the expensive model, and held that
// of the held tokens.
func estimated(c *Call) pricing.Nano {
	return pricing.Nano(c.Result.Usage.Input*100_000 + c.Result.Usage.Output*200_000)
}

func held(c *Call) pricing.Nano { return 100 * c.Plan.Max.Cost }

// TestCostInHeaders checks that a cost that a gateway reports in a header is charged like
// one in the body, and that the header is not forwarded to the caller.
func TestCostInHeaders(t *testing.T) {
	r := newRig(t, roomy()...)
	const choice = `{"model":"cheap","choices":[{"index":0,"message":{"content":"hi"},"delta":{"content":"hi"},"finish_reason":"stop"}]`
	const usage, cheap = `,"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12`, 9*1000 + 3*2000
	f := func(cost, kind, body string, change func(*providers.Provider), want pricing.Nano) {
		t.Helper()
		v := &vendor{status: 200, kind: kind, body: body, header: http.Header{"X-Litellm-Response-Cost": {cost}, "X-Litellm-Model-Id": {"ours"}}}
		r.dearer(t, v, change)
		before, more := r.used(), r.more("vendor", ReportedCost)
		c, w := r.as(wire.ChatCompletions, prompt("cheap", "hello there", `"max_tokens":10,`+map[bool]string{true: streamed, false: `"n":1`}[kind != "application/json"]))
		if c.Result.Cost != want {
			t.Errorf("%s: charged %v, want %v", cost, c.Result.Cost, want)
		}
		if got := r.more("vendor", ReportedCost) - more; want > c.Plan.Max.Cost && got <= 0 {
			t.Errorf("%s: %d is counted", cost, got)
		}
		for name := range w.Header() {
			if strings.Contains(name, "Litellm") {
				t.Errorf("%s is relayed", name)
			}
		}
		r.charged(before, c)
	}
	plain := "application/json"
	f("0.002", plain, choice+usage+"}}", nil, 2_000_000)
	f("2e-03", plain, choice+usage+`,"cost":0.001}}`, nil, 2_000_000)
	f("0.001", plain, choice+usage+`,"cost":0.002}}`, nil, 2_000_000)
	f("0.002", plain, choice+"}", nil, 2_000_000)
	f("0.002", plain, "{", nil, 2_000_000)
	f("0.002", "text/event-stream", events(choice+usage+"}}"), nil, 2_000_000)
	f("0.002", "text/event-stream", "data: "+choice, nil, 2_000_000)
	for _, none := range []string{"", "None", "-1", "0.000001", "1e12", "much"} {
		f(none, plain, choice+usage+"}}", nil, cheap)
	}
	f("0.002", plain, choice+usage+"}}", func(p *providers.Provider) { p.ReportedCost = providers.IgnoreCost }, cheap)
}

// TestStreamIsCutAtItsOutputLimit checks that a provider that exceeds the output limit is
// cancelled, and that what arrived is charged, even above the hold.
func TestStreamIsCutAtItsOutputLimit(t *testing.T) {
	for _, x := range []struct {
		model      string
		most       int // words before the cut
		inUsd, usd int64
		shows      bool
	}{
		{"gpt-4o", 20 + 16, in, out, true},
		{"o4-mini", 3 * (20 + 16) / 2, 1100, 4400, false},
	} {
		t.Run(x.model, func(t *testing.T) {
			r := newRig(t, roomy()...)
			before := r.used()
			p := r.teach()
			c := r.begin(r.plan(prompt(x.model, "hi", streamed+`,"max_completion_tokens":20`)))
			w, err := p.listen(t.Context(), c, 1000)
			p.hungUp(t)
			if err != nil || w.got != x.most || c.Result.Outcome != Cut || c.Result.Usage.Output != int64(x.most)+1 {
				t.Errorf("%v: %d words, %+v", err, w.got, c.Result)
			}
			if e := inStream(t, w.Body.String()); e.Code != "upstream_error" || !strings.Contains(e.Message, "limit of 20 tokens") {
				t.Errorf("told %+v", e)
			}
			if want := pricing.Nano(c.Plan.Input*x.inUsd + int64(x.most+1)*x.usd); c.Result.Cost != want || want <= c.Plan.Max.Cost || !c.Result.Estimated {
				t.Errorf("charged %v, want %v (held %v)", c.Result.Cost, want, c.Plan.Max.Cost)
			}
			c.End(t.Context())
			r.settle()
			r.charged(before, c)
			if got, want := r.more("main", OverLimit), int64(c.Result.Cost-c.Plan.Max.Cost); got != want {
				t.Errorf("%d is counted, want %d", got, want)
			}
		})
	}
}

// TestSeenIsChargedAboveTheHold checks that a caller who leaves a stream that exceeded its
// output limit pays for all that arrived, and that a whole answer without usage is charged
// likewise.
func TestSeenIsChargedAboveTheHold(t *testing.T) {
	r := newRig(t, roomy()...)
	r.raw("application/json", `{"choices":[{"index":0,"message":{"content":"`+strings.Repeat(word, 500)+`"},"finish_reason":"length"}]}`)
	c, _, err := r.run(t.Context(), prompt("gpt-4o", "hi", `"max_tokens":5`))
	if err != nil || c.Result.Outcome != NoUsage || c.Result.Usage.Output != 500 || c.Result.Cost != pricing.Nano(c.Plan.Input*in+500*out) {
		t.Errorf("a whole answer: %v, %+v", err, c.Result)
	}
	// part of its output is hidden
	c, _, err = r.run(t.Context(), prompt("o4-mini", "hi", `"max_completion_tokens":5`))
	if err != nil || c.Result.Outcome != NoUsage || c.Result.Usage.Output != 500 || c.Result.Cost != pricing.Nano(c.Plan.Input*1100+500*4400) {
		t.Errorf("a whole answer of a reasoning model: %v, %+v", err, c.Result)
	}
	r.raw("text/event-stream", delta(word)+delta(strings.Repeat(word, 500)))
	c = r.begin(r.plan(prompt("gpt-4o", "hi", streamed+`,"max_tokens":5`)))
	ctx, leave := context.WithCancel(t.Context())
	w := &quitter{ResponseWriter: httptest.NewRecorder(), events: 1, leave: leave}
	if err := c.Forward(ctx, w, Forwarding{}); !errors.Is(err, ErrGone) {
		t.Errorf("got %v, want %v", err, ErrGone)
	}
	c.End(ctx)
	if got := c.Result; got.Usage.Output != 501 || got.Cost != pricing.Nano(c.Plan.Input*in+501*out) {
		t.Errorf("a stream that was left: %+v", got)
	}
}

// TestDearerBatchedAnswers checks the same for a line that the provider's Batch API
// answered.
func TestDearerBatchedAnswers(t *testing.T) {
	r := newRig(t, roomy()...)
	r.dearer(t, &vendor{}, nil)
	end := func(model string) pricing.Nano {
		t.Helper()
		b, err := r.guard.Batches.Hold(t.Context(), r.plan(prompt("cheap", "hello there", `"max_tokens":10`)), wire.NewCallID(), 1, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		body := `{"model":"` + model + `","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`
		err = r.guard.Batches.End(t.Context(), r.caller(), []BatchedEnd{{Batched: b, Status: http.StatusOK, Body: []byte(body)}})
		if err != nil {
			t.Fatal(err)
		}
		list := r.entries()
		return list[len(list)-1].Cost
	}
	if cheap, dear := end("cheap"), end("dear"); cheap <= 0 || dear != 100*cheap {
		t.Errorf("charged %v, then %v for the dearer model", cheap, dear)
	}
}
