package guard

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// house makes a rig call a provider with this answer. llama-house shows all its output, house-70b may
// hide some; both cost 1, 0.1 and 10 USD per million.
func (r *rig) house(t *testing.T, v *vendor, change func(*providers.Provider)) {
	t.Helper()
	r.vendor(t, v, func(p *providers.Provider) {
		p.ReportedCost = "auto"
		if change != nil {
			change(p)
		}
	})
	r.prices(t, `
- {model: llama-house, max_output: 16384, prices: [{input: 1, cached_input: 0.1, output: 10, per_tool_call: 0.01}]}
- {model: house-70b, max_output: 16384, prices: [{input: 1, cached_input: 0.1, output: 10, per_tool_call: 0.01}]}
- {model: small, context: 8000, max_output: 4000, prices: [{input: 1, output: 10}]}
- {model: kimi-k2.6, max_output: 16384, prices: [{input: 0.95, cached_input: 0.16, output: 4}]}
- {model: claude-house, max_output: 16384, prices: [{input: 3, cached_input: 0.3, output: 15}]}
- {model: flux, max_output: 32768, prices: [{input: 0.3, output: 2.5}]}
- {model: speaker, max_output: 1000, prices: [{input: 1, cached_input: 0.5, audio_in: 40, cached_audio_in: 2, output: 10}]}
- {model: gpt-5-mini, max_output: 4000, context: 400000, prices: [{input: 0.25, output: 2, per_tool_call: 0.01}]}
- {model: gpt-image-2, prices: [{input: 5, output: 30}]}
- {model: gpt-5.4, max_output: 4000, multipliers: [{region: any, times: 1.1}], prices: [{input: 2.5, output: 15}]}
`)
}

// plainAnswer is a chat completion with a text and a usage.
func plainAnswer(text, usage string) string {
	return `{"id":"1","choices":[{"index":0,"message":{"role":"assistant","content":"` + text + `"},"finish_reason":"stop"}],"usage":` + usage + `}`
}

// streamAnswer is the same as a stream.
func streamAnswer(text, usage string) string {
	return events(`{"choices":[{"index":0,"delta":{"content":"`+text+`"},"finish_reason":null}]}`,
		`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, `{"choices":[],"usage":`+usage+`}`)
}

func counts(in, out int64) string {
	return fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, in, out, in+out)
}

// TestUsageIsChecked checks counts against what was sent and seen: those that contradict are charged by
// our own, within the hold, as an estimate, and are counted and logged; all others are believed.
func TestUsageIsChecked(t *testing.T) {
	r := newRig(t, roomy()...)
	open := *r.org
	open.AllowBuiltinTools = true
	text := strings.Repeat("paper boats drift ", 120) // 360 tokens
	long := strings.Repeat("paper boats drift ", 1300)
	const limit = `"max_tokens":5000`
	for _, x := range []struct {
		name, model, prompt, extra, text, usage string
		fault                                   UsageFault // "" if it is believed
		least, most                             int64      // nano-USD; most 0: the hold
	}{
		{"no output", "llama-house", "hi", limit, text, counts(9, 0), LowOutput, 9_000 + 3_300_000, 9_000 + 6_000_000},
		{"one token of output", "llama-house", "hi", limit, text, counts(9, 1), LowOutput, 9_000 + 3_300_000, 9_000 + 6_000_000},
		{"little output of a model that hides some", "house-70b", "hi", limit, text, counts(9, 1), LowOutput, 50_000_000, 0},
		{"a third of the output, public tokenizer", "gpt-5.4", "hi", limit, text, counts(9, 120), LowOutput, 360 * 15_000, 0},
		{"no input", "llama-house", long, limit, "hi", counts(0, 20), LowInput, 3_900_000, 3_900_000*16/10 + 300_000},
		{"a third of the input", "llama-house", long, limit, "hi", counts(1300, 20), LowInput, 3_900_000, 3_900_000*16/10 + 300_000},
		{"a billion of input", "llama-house", "hi", limit, "hi", counts(1_000_000_000, 1), HighInput, 50_000_000, 0},
		{"100,000 of input", "llama-house", "hi", `"max_tokens":10`, "hi", counts(100_000, 1), HighInput, 100_000, 0},
		{"more input than the context", "small", "hi", limit, "hi", counts(8_100, 1), HighInput, 8_100_000, 8_110_000},
		{"a billion of output", "house-70b", "hi", limit, "hi", counts(9, 1_000_000_000), HighOutput, 50_000_000, 0},
		{"more output than the text", "llama-house", "hi", `"max_tokens":100`, "hi", counts(9, 500), HighOutput, 1_000_000, 0},

		{"output beyond the limit without text", "llama-house", "hi", `"max_tokens":10`, "hi", `{"completion_tokens":300,"prompt_tokens":9,"note":"` + strings.Repeat("x", 1500) + `"}`, HighOutput, 100_000, 0},
		{"a billion searches", "llama-house", "hi", limit, "hi", `{"prompt_tokens":9,"completion_tokens":2,"server_tool_use":{"web_search_requests":1000000000}}`, HighCalls, 50_000_000, 0},

		{"a chat template", "llama-house", "hi", limit, "hi", counts(800, 2), "", 820_000, 820_000},
		{"a system prompt of the provider", "llama-house", "hi", limit, "hi", counts(6_000, 2), "", 6_020_000, 6_020_000},
		{"another tokenizer", "llama-house", long, limit, text, counts(2_400, 230), "", 4_700_000, 4_700_000},
		{"hidden reasoning", "house-70b", "hi", limit, "hi", counts(9, 4_000), "", 40_009_000, 40_009_000},
		{"reasoning beyond the limit", "house-70b", "hi", `"max_tokens":100`, "hi", counts(9, 4_000), "", 40_009_000, 40_009_000},
		{"text beyond the limit", "llama-house", "hi", `"max_tokens":100`, text, counts(9, 360), "", 3_609_000, 3_609_000},
		{"input of searches", "llama-house", "hi", `"web_search_options":{},` + limit, "hi", counts(60_000, 2), "", 70_020_000, 70_020_000},
		{"no text", "llama-house", "hi", limit, "", counts(9, 0), "", 9_000, 9_000},
		{"all of it cached", "llama-house", "hi", limit, "hi", `{"prompt_tokens":2000,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":2000}}`, "", 210_000, 210_000},
	} {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stream %t", x.name, stream), func(t *testing.T) {
				var log bytes.Buffer
				r.guard.log = slog.New(slog.NewTextHandler(&log, nil))
				r.guard.told.Clear()
				r.org = &open
				v, extra := &vendor{status: 200, kind: "application/json", body: plainAnswer(x.text, x.usage)}, x.extra
				if stream {
					v.kind, v.body, extra = "text/event-stream", streamAnswer(x.text, x.usage), x.extra+","+streamed
				}
				r.house(t, v, nil)
				counter := r.guard.metrics.faults.WithLabelValues(string(x.fault))
				faults, before := testutil.ToFloat64(counter), r.used()
				c, _, err := r.run(t.Context(), prompt(x.model, x.prompt, extra))
				res, most := c.Result, pricing.Nano(x.most)
				if most == 0 {
					most = c.Plan.Max.Cost
				}
				if stream && x.name == "text beyond the limit" { // it is cut
					return
				}
				if err != nil || res.Cost < pricing.Nano(x.least) || res.Cost > most || res.Estimated != (x.fault != "") {
					t.Errorf("%v: charged %v, estimated %t, %v; want %v to %v", err, res.Cost, res.Estimated, res.UsageFaults, pricing.Nano(x.least), most)
				}
				if x.fault == "" {
					if log.Len() > 0 || len(res.UsageFaults) > 0 {
						t.Errorf("%v, logged %s", res.UsageFaults, &log)
					}
				} else if !slices.Equal(res.UsageFaults, []UsageFault{x.fault}) || testutil.ToFloat64(counter) != faults+1 ||
					strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), string(x.fault)) {
					t.Errorf("%v, counted %v, logged %s", res.UsageFaults, testutil.ToFloat64(counter)-faults, &log)
				}
				if x.fault == HighInput && res.Usage.Input+res.Usage.Output > c.Plan.Max.Tokens {
					t.Errorf("%+v is counted, and %d tokens were held", res.Usage, c.Plan.Max.Tokens)
				}
				r.charged(before, c)
			})
		}
	}
}

// TestContradictionsAreNotLearned checks that a usage that is not believed does not change estimates.
func TestContradictionsAreNotLearned(t *testing.T) {
	l := newLearner(t)
	before := l.plan(opus, 400, "")
	for range 30 {
		l.billed(l.plan(opus, 400, ""), `{"prompt_tokens":150,"completion_tokens":3}`)
	}
	l.sync()
	after := l.plan(opus, 400, "")
	if after.Input != before.Input || l.Plans.Expected(after) != l.Plans.Expected(before) {
		t.Errorf("%d tokens are held, and %+v expected; want %d and %+v", after.Input, l.Plans.Expected(after), before.Input, l.Plans.Expected(before))
	}
}

// TestUsageOfStreams checks usage that is not at the end of a stream, and of streams that break.
func TestUsageOfStreams(t *testing.T) {
	r := newRig(t, roomy()...)
	word := `{"choices":[{"index":0,"delta":{"content":" boat"},"finish_reason":null}]}`
	open := func(data ...string) string { return strings.TrimSuffix(events(data...), "data: [DONE]\n\n") }
	var cumulative []string
	for i := range 20 {
		cumulative = append(cumulative, `{"choices":[{"index":0,"delta":{"content":" boat"},"finish_reason":null}],"usage":`+counts(9000, int64(i+1))+`}`)
	}
	var untold []string // 400 tokens
	for range 20 {
		untold = append(untold, `{"choices":[{"index":0,"delta":{"content":"`+strings.Repeat(" boat", 20)+`"},"finish_reason":null}],"usage":`+counts(9, 1)+`}`)
	}
	failed := event(`{"error":{"message":"x","type":"y","param":null,"code":null}}`)
	first := append([]string{`{"choices":[],"usage":` + counts(9, 1) + `}`}, slices.Repeat([]string{word}, 50)...)
	const last = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	done := `{"choices":[],"usage":` + counts(9, 100) + `}`
	second := pricing.Nano(fastest * 10_000 * 5) // of output, or the test is slow
	for _, x := range []struct {
		name, body  string
		least, most pricing.Nano
		estimated   bool
	}{
		{"counts in every chunk, broken", open(cumulative...), 9_200_000, 9_200_000 + second, true},
		{"counts of one in every chunk, broken", open(untold...), 9_000 + 400*10_000, 60_000_000, true},
		{"counts of one in every chunk, an error", open(untold...) + failed, 9_000 + 400*10_000, 60_000_000, true},
		{"text after the count, an error", open(first...) + failed, 9_000 + 50*10_000, 9_000 + 82*10_000 + second, true},
		{"an error with a count after the text", open(word, word) + event(`{"error":{"message":"x"},"usage":`+counts(9, 100)+`}`), 1_009_000, 1_009_000, false},
		{"a count in the first chunk, broken", open(first...), 9_000 + 50*10_000, 9_000 + 82*10_000 + second, true},
		{"a count in the first chunk, complete", events(append(slices.Clone(first), last)...), 9_000 + 50*10_000, 9_000 + 82*10_000, true},
		{"text after the count", events(word, done, word, word, last), 9_000 + 102*10_000, 9_000 + 106*10_000, true},
		{"zeros after the count", events(word, last, done, `{"choices":[],"usage":`+counts(0, 0)+`}`), 1_009_000, 1_009_000, false},
		{"less after the count", events(word, last, done, `{"choices":[],"usage":`+counts(9, 7)+`}`), 1_009_000, 1_009_000, false},
		{"null after the count", events(word, done, last, `{"choices":[],"usage":null}`), 1_009_000, 1_009_000, false},
		{"nonsense after the count", events(word, last, done, `{"choices":[],"usage":{"prompt_tokens":-4,"completion_tokens":5}}`), 1_009_000, 1_009_000, true},
	} {
		for _, model := range []string{"llama-house", "house-70b"} {
			t.Run(x.name+", "+model, func(t *testing.T) {
				r.house(t, &vendor{status: 200, kind: "text/event-stream", body: x.body}, nil)
				before := r.used()
				c, _, _ := r.run(t.Context(), prompt(model, "hi", `"max_tokens":5000,`+streamed))
				most := min(x.most, c.Plan.Max.Cost)
				if res := c.Result; res.Cost < x.least || res.Cost > most || res.Estimated != x.estimated {
					t.Errorf("%s: charged %v, estimated %t, %v; want %v to %v", res.Outcome, res.Cost, res.Estimated, res.UsageFaults, x.least, most)
				}
				r.charged(before, c)
			})
		}
	}
}

// TestUsageIsFound charges usage wherever it is, by the prices of the models above.
func TestUsageIsFound(t *testing.T) {
	r := newRig(t, roomy()...)
	open := *r.org
	open.AllowBuiltinTools = true
	r.org = &open
	stream := streamAnswer("hi", counts(100, 20))
	searches := `{"type":"web_search_call","id":"a","status":"completed","action":{"type":"search","query":"x"}},
		{"type":"web_search_call","id":"b","status":"failed","action":{"type":"search"}},
		{"type":"web_search_call","id":"c","status":"completed","action":{"type":"open_page"}},
		{"type":"web_search_call","id":"d","status":"completed","action":{"type":"find_in_page"}},
		{"type":"web_search_call","id":"e","status":"completed"}`
	response := func(output, usage, more string) string {
		return `{"id":"r","status":"completed","output":[` + output + `],"usage":` + usage + more + `}`
	}
	const drawing = `"tools":[{"type":"image_generation","model":"gpt-image-2","quality":"high"}]`
	for _, x := range []struct {
		name, ask, kind, body string
		ep                    wire.Endpoint
		change                func(*providers.Provider)
		want                  pricing.Nano
		estimated             bool
	}{
		{
			name: "in the choice", ask: prompt("kimi-k2.6", "hi", streamed), kind: "text/event-stream", body: events(`{"choices":[{"index":0,"delta":{"content":"hi"}}]}`,
				`{"choices":[{"index":0,"delta":{},"finish_reason":"stop","usage":{"prompt_tokens":1336,"completion_tokens":31,"total_tokens":1367,"prompt_tokens_details":{"cached_tokens":1280}}}]}`),
			want: 56*950 + 1280*160 + 31*4000,
		},
		{
			name: "cached tokens at the top", ask: prompt("kimi-k2.6", "hi", ""), body: plainAnswer("hi", `{"prompt_tokens":2000,"completion_tokens":20,"total_tokens":2020,"cached_tokens":1792}`),
			want: 208*950 + 1792*160 + 20*4000,
		},
		{
			name: "cached tokens above the prompt", ask: prompt("claude-house", "hi", ""), body: plainAnswer("hi", `{"prompt_tokens":14,"completion_tokens":20,"total_tokens":34,"cache_read_input_tokens":6081}`),
			want: 14*3000 + 6081*300 + 20*15_000,
		},
		{
			name: "fractions and a cost", ask: prompt("flux", "hi", `"max_tokens":32768`), body: plainAnswer("hi", `{"prompt_tokens":57.0,"completion_tokens":14417.92,"total_tokens":14474.92,"cost":0.0387}`),
			want: 38_700_000, estimated: true,
		},
		{
			name: "fractions and a cost above the hold", ask: prompt("flux", "hi", `"max_tokens":32768`), body: plainAnswer("hi", `{"prompt_tokens":57.0,"completion_tokens":14417.92,"cost":5}`),
			want: 57*300 + 14418*2500, estimated: true,
		},
		{name: "text", ask: prompt("llama-house", "hi", ""), body: plainAnswer("hi", `{"prompt_tokens":"100","completion_tokens":"20"}`), want: 300_000},
		{name: "a cost in a currency that is not known", ask: prompt("llama-house", "hi", ""), body: plainAnswer("hi", `{"prompt_tokens":100,"completion_tokens":20,"cost":0.01}`), want: 300_000},
		{
			name: "a cost in USD by setting", ask: prompt("llama-house", "hi", ""), body: plainAnswer("hi", `{"prompt_tokens":100,"completion_tokens":20,"cost":0.01}`),
			change: func(p *providers.Provider) { p.ReportedCost = providers.ChargeCost }, want: 10_000_000,
		},
		{name: "a cost in USD by its name", ask: prompt("llama-house", "hi", ""), body: plainAnswer("hi", `{"prompt_tokens":100,"completion_tokens":20,"cost_in_usd_ticks":100000000}`), want: 10_000_000},
		{name: "a stream labelled as text", ask: prompt("house-70b", "hi", streamed), kind: "text/plain", body: stream, want: 300_000},
		{name: "a stream labelled as bytes", ask: prompt("house-70b", "hi", streamed), kind: "application/octet-stream", body: "\n\n" + stream, want: 300_000},
		{name: "a stream labelled as JSON", ask: prompt("house-70b", "hi", streamed), kind: "application/json", body: ": queued\n\n" + stream, want: 300_000},
		{name: "a stream where none was requested", ask: prompt("house-70b", "hi", ""), kind: "text/event-stream", body: stream, want: 300_000},
		{name: "the same, labelled as JSON", ask: prompt("house-70b", "hi", ""), body: stream, want: 300_000},
		{name: "a plain answer where a stream was requested", ask: prompt("house-70b", "hi", streamed), body: plainAnswer("hi", counts(100, 20)), want: 300_000},
		{
			name: "searches in the details", ask: prompt("llama-house", "hi", `"web_search_options":{}`), body: plainAnswer("hi", `{"prompt_tokens":100,"completion_tokens":20,"prompt_tokens_details":{"web_search_requests":3}}`),
			want: 300_000 + 3*10_000_000,
		},
		{
			name: "searches that were made", ep: wire.Responses, ask: `{"model":"gpt-5-mini","input":"hi","tools":[{"type":"web_search"}]}`,
			body: response(searches, `{"input_tokens":1000,"output_tokens":100}`, ""), want: 250_000 + 200_000 + 2*10_000_000,
		},
		{
			name: "pictures of the image tool", ep: wire.Responses, ask: `{"model":"gpt-5-mini","input":"hi",` + drawing + `}`,
			body: response("", `{"input_tokens":1820,"output_tokens":210}`, `,"tool_usage":{"image_gen":{"input_tokens":50,"output_tokens":7024,"output_tokens_details":{"image_tokens":7024}}}`),
			want: 455_000 + 420_000 + 50*5000 + 7024*30_000,
		},
		{
			name: "a billion tokens of pictures", ep: wire.Responses, ask: `{"model":"gpt-5-mini","input":"hi","max_output_tokens":300,"max_tool_calls":1,` + drawing + `}`,
			body: response("", `{"input_tokens":1820,"output_tokens":210}`, `,"tool_usage":{"image_gen":{"input_tokens":50,"output_tokens":1000000000}}`), estimated: true,
		},
		{
			name: "the same in a stream", ep: wire.Responses, ask: `{"model":"gpt-5-mini","stream":true,"input":"hi",` + drawing + `}`, kind: "text/event-stream",
			body: `data: {"type":"response.completed","response":` + response("", `{"input_tokens":1820,"output_tokens":210}`, `,"tool_usage":{"image_gen":{"input_tokens":50,"output_tokens":7024,"output_tokens_details":{"image_tokens":7024}}}`) + "}\n\n",
			want: 455_000 + 420_000 + 50*5000 + 7024*30_000,
		},
		{
			name: "cached audio", ask: prompt("speaker", "hi", `"modalities":["text"]`), body: plainAnswer("hi", `{"prompt_tokens":1000,"completion_tokens":20,"prompt_tokens_details":{"cached_tokens":800,"audio_tokens":900,"cached_tokens_details":{"audio_tokens":750,"text_tokens":50}}}`),
			want: 50*1000 + 50*500 + 150*40_000 + 750*2000 + 20*10_000,
		},
		{name: "a region of the provider", ask: prompt("gpt-5.4", "hi", ""), body: plainAnswer("hi", counts(1000, 100)), change: func(p *providers.Provider) { p.Region = "eu" }, want: 4_400_000},
		{name: "no region", ask: prompt("gpt-5.4", "hi", ""), body: plainAnswer("hi", counts(1000, 100)), want: 4_000_000},
		{name: "a region in the answer", ask: prompt("gpt-5.4", "hi", ""), body: plainAnswer("hi", `{"prompt_tokens":1000,"completion_tokens":100,"inference_geo":"us"}`), want: 4_400_000},
		{
			name: "the world in the answer", ask: prompt("gpt-5.4", "hi", ""), body: plainAnswer("hi", `{"prompt_tokens":1000,"completion_tokens":100,"inference_geo":"global"}`),
			change: func(p *providers.Provider) { p.Region = "eu" }, want: 4_000_000,
		},
	} {
		t.Run(x.name, func(t *testing.T) {
			v := &vendor{status: 200, kind: x.kind, body: x.body}
			if x.kind == "" {
				v.kind = "application/json"
			}
			if x.ep == "" {
				x.ep = wire.ChatCompletions
			}
			r.house(t, v, x.change)
			before := r.used()
			c, _ := r.as(x.ep, x.ask)
			if x.want == 0 && c.Result.Cost > c.Plan.Max.Cost/2 && c.Result.Cost <= c.Plan.Max.Cost {
				x.want = c.Result.Cost // nearly all that is held
			}
			if res := c.Result; res.Cost != x.want || res.Estimated != x.estimated || res.Outcome != Completed {
				t.Errorf("%s: charged %v, estimated %t, %+v, fault %q; want %v", res.Outcome, res.Cost, res.Estimated, res.Usage, res.Fault, x.want)
			}
			r.charged(before, c)
		})
	}
}

// TestHoldsCoverTheirTerms checks that a hold covers pictures of the image tool and the price of the
// provider's region.
func TestHoldsCoverTheirTerms(t *testing.T) {
	r := newRig(t, roomy()...)
	open := *r.org
	open.AllowBuiltinTools = true
	r.org = &open
	r.house(t, &vendor{}, func(p *providers.Provider) { p.Region = "eu" })
	p := r.plan(prompt("gpt-5.4", "hi", `"max_tokens":100`))
	if want := pricing.Nano((p.Input*2500 + 100*15_000) * 11 / 10); p.Max.Cost != want {
		t.Errorf("held %v in a region, want %v", p.Max.Cost, want)
	}
	req, err := wire.Scan(wire.Responses, []byte(`{"model":"gpt-5-mini","input":"hi","max_output_tokens":100,"max_tool_calls":2,
		"tools":[{"type":"image_generation","model":"gpt-image-2","partial_images":3}]}`), wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	p, err = r.guard.Plans.Prepare(r.caller(), req)
	if want := pricing.Nano(2 * (8192 + 300) * 30_000); err != nil || p.Max.Cost < want {
		t.Errorf("%v: held %v for two pictures, want %v and more", err, p.Max.Cost, want)
	}
	req, err = wire.Scan(wire.Responses, []byte(`{"model":"gpt-5-mini","input":"hi","tools":[{"type":"image_generation","model":"unheard-of"}]}`), wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = r.guard.Plans.Prepare(r.caller(), req); err == nil || !strings.Contains(err.Error(), "unheard-of") {
		t.Errorf("a tool without a price: %v", err)
	}
}

// noticed is a caller that reports the first bytes.
type noticed struct {
	*httptest.ResponseRecorder
	first chan struct{}
}

func (n *noticed) Write(p []byte) (int, error) {
	select {
	case <-n.first:
	default:
		close(n.first)
	}
	return n.ResponseRecorder.Write(p)
}

// TestMislabelledStreamsAreNotHeldBack checks that the first event of a stream that is labelled as text
// is relayed before the second is sent.
func TestMislabelledStreamsAreNotHeldBack(t *testing.T) {
	r := newRig(t, roomy()...)
	w := &noticed{httptest.NewRecorder(), make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
		out.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(out, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n")
		out.(http.Flusher).Flush()
		select {
		case <-w.first:
			fmt.Fprint(out, events(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`, `{"choices":[],"usage":`+counts(9, 1)+`}`))
		case <-time.After(20 * time.Second):
		}
	}))
	defer server.Close()
	r.moveTo(server.URL)
	c := r.begin(r.plan(prompt("gpt-4o", "hi", streamed)))
	err := c.Forward(t.Context(), w, Forwarding{Header: http.Header{}})
	c.End(t.Context())
	if err != nil || c.Result.Outcome != Completed || c.Result.Cost != 9*in+1*out {
		t.Errorf("%v, %s at %v", err, c.Result.Outcome, c.Result.Cost)
	}
}
