package guard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/tokenizer"
)

const opus = "claude-opus-4-8"

// learner is a guard in front of a provider with arbitrary input token counts.
type learner struct {
	*Guard
	t      *testing.T
	caller Caller
	store  *budget.Store
	fake   *fakeprovider.Server
	limit  int // of the output, default 200
}

func newLearner(t *testing.T) *learner {
	t.Helper()
	rdb := redistest.Start(t).Client()
	fake := fakeprovider.New(fakeprovider.Options{})
	if err := fake.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fake.Close() })
	base, err := url.Parse(fake.BaseURL())
	if err != nil {
		t.Fatal(err)
	}
	set, err := providers.NewSet([]*providers.Provider{
		{ID: "anthropic", BaseURL: base, Pools: []providers.Pool{{ID: "anthropic", Models: []string{"claude-*"}}}},
		{ID: "openai", BaseURL: base, Pools: []providers.Pool{{ID: "openai"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	catalogue, err := pricing.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	org := &Org{Org: settings.Org{ID: "acme"}, Limits: []budget.Limit{
		{ID: "cost", Subject: budget.Org, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Window, Amount: 1e12, Window: time.Hour}},
		{ID: "tokens", Subject: budget.Org, Metric: budget.Tokens, Shape: budget.Shape{Kind: budget.Window, Amount: 1e9, Window: time.Hour}},
	}}
	l := &learner{t: t, caller: Caller{Org: org, User: "ann", Key: "k"}, store: budget.New(redistest.DB(rdb), budget.Options{}), fake: fake}
	l.Guard = New(Options{
		Budget: l.store, Calibration: calibration.New(redistest.DB(rdb), calibration.Options{}), StoreDeadline: 5 * time.Second,
		Policy: &Policy{Catalogue: catalogue, Providers: set},
	})
	return l
}

// plan prepares a chat with the given number of words; rest is appended to the request.
func (l *learner) plan(model string, words int, rest string) *Plan {
	l.t.Helper()
	body := fmt.Sprintf(`{"model":%q,"max_tokens":%d,"messages":[{"role":"user","content":%q}]%s}`,
		model, cmp.Or(l.limit, 200), strings.TrimSpace(strings.Repeat("paper boats drift slowly ", words/4)), rest)
	r, err := wire.Scan(wire.ChatCompletions, []byte(body), wire.Limits{})
	if err != nil {
		l.t.Fatal(err)
	}
	p, err := l.Plans.Prepare(l.caller, r)
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

// call makes one call whose input is billed at the given per mille of the count, and
// returns it.
func (l *learner) call(p *Plan, permille int64, output int) *Call {
	l.t.Helper()
	return l.billed(p, fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d}`, (p.text.tokens*permille+999)/1000, output))
}

// billed makes a call that is answered with this usage.
func (l *learner) billed(p *Plan, usage string) *Call {
	l.t.Helper()
	ctx := l.t.Context()
	var counts struct {
		Output int64 `json:"completion_tokens"`
	}
	if err := json.Unmarshal([]byte(usage), &counts); err != nil {
		l.t.Fatal(err)
	}
	l.fake.ScriptModel(p.Target.Model, fakeprovider.Behaviour{RawUsage: usage, Output: counts.Output})
	c, err := l.admission.begin(ctx, p, &Attempt{ID: wire.NewCallID(), Number: 0})
	if err != nil {
		l.t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if err := c.Forward(ctx, w, Forwarding{}); err != nil {
		l.t.Fatalf("%v: %s", err, w.Body)
	}
	c.EndNow(ctx)
	if c.Result.Outcome != Completed {
		l.t.Fatalf("outcome %s", c.Result.Outcome)
	}
	return c
}

func (l *learner) sync() {
	l.t.Helper()
	if err := l.calibration.Sync(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// overrun returns what was charged beyond holds, and all that was charged.
func (l *learner) overrun() (over, cost pricing.Nano) {
	l.t.Helper()
	now := time.Now()
	rollups, err := l.store.Ledger.Rollups(context.WithoutCancel(l.t.Context()), "acme", now.Add(-24*time.Hour), now.Add(time.Minute))
	if err != nil {
		l.t.Fatal(err)
	}
	for _, r := range rollups {
		over += r.Overrun
		cost += r.Cost
	}
	return over, cost
}

// TestHoldsLearn uses a provider that bills more input than any prior expects.
func TestHoldsLearn(t *testing.T) {
	const ratio = 2400
	l := newLearner(t)
	first := l.call(l.plan(opus, 4000, ""), ratio, 200)
	if first.Result.Usage.Input <= first.Plan.Input {
		t.Fatalf("%d tokens billed fit in the %d held", first.Result.Usage.Input, first.Plan.Input)
	}
	over, cost := l.overrun()
	if want := first.Result.Cost - first.Plan.Max.Cost; over != want || want <= 0 || cost != first.Result.Cost {
		t.Errorf("overrun %s of %s, want %s of %s", over, cost, want, first.Result.Cost)
	}
	status, err := l.Status(t.Context(), l.caller)
	if err != nil || status[0].Used != int64(cost) || status[0].Held != 0 ||
		status[1].Used != first.Result.Usage.Input+first.Result.Usage.Output {
		t.Errorf("the limits count %+v, error %v; charged %s", status, err, cost)
	}
	for i := range 50 {
		l.call(l.plan(opus, 100+40*i, ""), ratio, 200)
		if i%10 == 9 {
			l.sync()
		}
	}
	before, _ := l.overrun()
	for _, words := range []int{40, 400, 4000, 40_000} {
		c := l.call(l.plan(opus, words, ""), ratio, 200)
		if c.Result.Usage.Input > c.Plan.Input || c.Result.Cost > c.Plan.Max.Cost {
			t.Errorf("%d words: %d tokens billed, %d held; %s charged, %s held", words, c.Result.Usage.Input, c.Plan.Input, c.Result.Cost, c.Plan.Max.Cost)
		}
		if share := float64(c.Plan.text.expected) / float64(c.Result.Usage.Input); share < 0.8 || share > 1.03 {
			t.Errorf("%d words: %d tokens expected of %d billed", words, c.Plan.text.expected, c.Result.Usage.Input)
		}
	}
	if after, _ := l.overrun(); after != before {
		t.Errorf("overruns went on: %s", after-before)
	}
}

func TestExpectedOutput(t *testing.T) {
	l := newLearner(t)
	c := l.call(l.plan(opus, 100, ""), 1500, 30)
	if want := c.Plan.text.expected + c.Plan.Output; c.Hold.Expected.Tokens != want {
		t.Errorf("without evidence %d tokens expected, want %d", c.Hold.Expected.Tokens, want)
	}
	for range 10 {
		l.call(l.plan(opus, 100, ""), 1500, 30)
	}
	l.sync()
	c = l.call(l.plan(opus, 100, ""), 1500, 30)
	if want := c.Plan.text.expected + 30; c.Hold.Expected.Tokens != want || c.Hold.Expected.Cost >= c.Plan.Max.Cost || c.Hold.Expected.Cost <= 0 {
		t.Errorf("%+v expected, want %d tokens; at most %+v", c.Hold.Expected, want, c.Plan.Max)
	}
	if c.Plan.Quota != c.Plan.Input+c.Plan.Output {
		t.Errorf("the quota counts %d tokens of %d and %d", c.Plan.Quota, c.Plan.Input, c.Plan.Output)
	}
}

// TestPureTextTeaches checks that requests whose bill has other parts are not learned from.
func TestPureTextTeaches(t *testing.T) {
	l := newLearner(t)
	tool := `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{}}}}]`
	for range 10 {
		l.call(l.plan(opus, 400, tool), 3000, 10)
		l.call(l.plan(opus, 400, `,"response_format":{"type":"json_object"}`), 3000, 10)
		l.billed(l.plan(opus, 400, ""), `{"prompt_tokens":1000,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":900}}`)
	}
	l.sync()
	rows, err := l.calibration.List(t.Context())
	if err != nil || len(rows) != 0 {
		t.Errorf("learned %+v, error %v", rows, err)
	}
}

// TestOpenAIStaysExact checks that a wrong bill does not change holds that are counted
// exactly.
func TestOpenAIStaysExact(t *testing.T) {
	l := newLearner(t)
	want := l.plan("gpt-4o", 400, "").Input
	for range 20 {
		l.call(l.plan("gpt-4o", 400, ""), 2000, 10)
	}
	l.sync()
	if p := l.plan("gpt-4o", 400, ""); p.Input != want || p.text.expected != want || p.text.tokens != want {
		t.Errorf("%d tokens held, %d expected, %d counted; %d before", p.Input, p.text.expected, p.text.tokens, want)
	}
}

// TestGeminiCountsDigits checks that the factor applies to the digit-adjusted count.
func TestGeminiCountsDigits(t *testing.T) {
	count := func(model, text string) int64 {
		r, err := wire.Scan(wire.ChatCompletions, []byte(`{"model":"`+model+`","max_tokens":9,"messages":[{"role":"user","content":"`+text+`"}]}`), wire.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		p := &Plan{Request: r, sent: r, Caller: Caller{Org: &Org{}}, Target: providers.Target{Model: model}, Price: &pricing.Price{}}
		e := &estimator{plan: p, counts: tokenizer.NewCache()}
		if _, err := e.input(); err != nil {
			t.Fatal(err)
		}
		return p.text.tokens
	}
	if a, b := count("gemini-2.5-pro", "123456789012"), count("some-model", "123456789012"); a != b+8 {
		t.Errorf("%d tokens and %d", a, b)
	}
}
