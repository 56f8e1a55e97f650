package guard

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// more is what the rig's calls were charged above their price for a reason.
func (r *rig) more(pool string, why Reason) int64 {
	return int64(testutil.ToFloat64(r.guard.metrics.underpriced.WithLabelValues(pool, string(why))))
}

// TestDearerAnswersAreCharged: of the model asked for, the model that answered and the
// cost the answer tells, the greatest is charged; what that is more is counted and
// told once.
func TestDearerAnswersAreCharged(t *testing.T) {
	r := newRig(t, roomy()...)
	var log bytes.Buffer
	r.guard.log = slog.New(slog.NewTextHandler(&log, nil))
	own, err := pricing.ParseEntries([]byte(`[
		{model: cheap, provider: gateway, prices: [{input: 1, output: 2}], max_output: 1000},
		{model: dear, prices: [{input: 100, output: 200}], max_output: 1000},
		{model: cheap-2026, provider: other, prices: [{input: 100, output: 200}], max_output: 1000}]`))
	if err != nil {
		t.Fatal(err)
	}
	f := func(model, cost string, change func(*providers.Provider), want pricing.Nano) {
		t.Helper()
		v := &vendor{status: 200, kind: "application/json", body: `{"model":"` + model + `","choices":[{"index":0,` +
			`"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12` + cost + `}}`}
		r.vendor(t, v, func(p *providers.Provider) {
			if p.ID = "gateway"; change != nil {
				change(p)
			}
		})
		policy := *r.guard.Policy()
		if policy.Catalogue, err = pricing.New("", own); err != nil {
			t.Fatal(err)
		}
		r.guard.SetPolicy(&policy)
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
	f("cheap-2026", "", nil, cheap) // a version of what was asked for
	if got := r.more("vendor", DearerModel) + r.more("vendor", ReportedCost); got != 0 || log.Len() > 0 {
		t.Errorf("%d are counted, the log says %s", got, &log)
	}
	f("dear", "", nil, dear)
	f("dear", "", nil, dear)
	f("cheap", `,"cost":0.000014`, nil, cheap)
	f("cheap", `,"cost":0.00294`, nil, 2_940_000)
	f("dear", `,"cost":0.00294`, nil, 2_940_000)
	f("cheap", `,"cost":0.00294`, func(p *providers.Provider) { p.IgnoreCost = true }, cheap)
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

// TestStreamIsCutAtItsOutputLimit: a provider that does not keep to the output limit
// is cancelled, and what came is charged, also above the hold.
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
			if want := pricing.Nano(c.Input*x.inUsd + int64(x.most+1)*x.usd); c.Result.Cost != want || want <= c.Max.Cost || !c.Result.Estimated {
				t.Errorf("charged %v, want %v (held %v)", c.Result.Cost, want, c.Max.Cost)
			}
			c.End(t.Context())
			r.settle()
			r.charged(before, c)
			if got, want := r.more("main", OverLimit), int64(c.Result.Cost-c.Max.Cost); got != want {
				t.Errorf("%d is counted, want %d", got, want)
			}
		})
	}
}

// TestSeenIsChargedAboveTheHold: whoever leaves a stream that went on beyond its
// output limit pays for all that came, and so does a whole answer without usage.
func TestSeenIsChargedAboveTheHold(t *testing.T) {
	r := newRig(t, roomy()...)
	r.raw("application/json", `{"choices":[{"index":0,"message":{"content":"`+strings.Repeat(word, 500)+`"},"finish_reason":"length"}]}`)
	c, _, err := r.run(t.Context(), prompt("gpt-4o", "hi", `"max_tokens":5`))
	if err != nil || c.Result.Outcome != NoUsage || c.Result.Usage.Output != 500 || c.Result.Cost != pricing.Nano(c.Input*in+500*out) {
		t.Errorf("a whole answer: %v, %+v", err, c.Result)
	}
	c, _, err = r.run(t.Context(), prompt("o4-mini", "hi", `"max_completion_tokens":5`)) // whose output does not all show
	if err != nil || c.Result.Outcome != NoUsage || c.Result.Usage.Output != 500 || c.Result.Cost != pricing.Nano(c.Input*1100+500*4400) {
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
	if got := c.Result; got.Usage.Output != 501 || got.Cost != pricing.Nano(c.Input*in+501*out) {
		t.Errorf("a stream that was left: %+v", got)
	}
}
