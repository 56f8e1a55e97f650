package guard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/providers/anthropic"
)

// claudeRig is a rig whose provider is Anthropic's.
func claudeRig(t *testing.T, limits ...budget.Limit) *rig {
	t.Helper()
	r := newRig(t, limits...)
	r.moveToClaude(providers.Pool{ID: "claude"})
	return r
}

// moveToClaude makes Anthropic's API of the fake provider the only one.
func (r *rig) moveToClaude(pool providers.Pool) {
	t := r.t
	t.Helper()
	base, err := url.Parse(r.fake.BaseURL())
	if err != nil {
		t.Fatal(err)
	}
	set, err := providers.NewSet([]*providers.Provider{{
		ID: "anthropic", Dialect: anthropic.Dialect{}, BaseURL: base, APIKey: "sk-own", Pools: []providers.Pool{pool},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	p := *r.guard.Policy()
	p.Providers = set
	r.guard.SetPolicy(&p)
}

// messages plans a request of the Messages API.
func (r *rig) messages(body string) (*Plan, error) {
	r.t.Helper()
	req, err := wire.Scan(wire.Messages, []byte(body), wire.Limits{})
	if err != nil {
		r.t.Fatalf("%s: %v", body, err)
	}
	return r.guard.Plans.Prepare(r.caller(), req)
}

// claudeBetas are the headers of an agent that uses all betas.
var claudeBetas = http.Header{"Anthropic-Version": {"2023-06-01"}, "Anthropic-Beta": {
	"context-management-2025-06-27,compact-2026-01-12,fast-mode-2026-02-01,server-side-fallback-2026-06-01,advisor-tool-2026-03-01",
}}

// message makes a call of the Messages API and settles it.
func (r *rig) message(body string) (*Call, *httptest.ResponseRecorder) {
	r.t.Helper()
	p, err := r.messages(body)
	if err != nil {
		r.t.Fatalf("%s: %v", body, err)
	}
	c, w := r.begin(p), httptest.NewRecorder()
	if err := c.Forward(r.t.Context(), w, Forwarding{Header: claudeBetas}); err != nil {
		r.t.Fatalf("%s: %v", body, err)
	}
	c.End(r.t.Context())
	r.settle()
	return c, w
}

// claudePrices are nano-USD per token: input, cache read, write for 5 minutes, write for an hour, output.
var claudePrices = map[string][5]int64{
	"claude-opus-5":    {5000, 500, 6250, 10_000, 25_000},
	"claude-sonnet-5":  {2000, 200, 2500, 4000, 10_000},
	"claude-haiku-4-5": {1000, 100, 1250, 2000, 5000},
}

// claudeSearch is the price of a web search in nano-USD.
const claudeSearch = 10_000_000

// claudeBill returns what the provider bills for its last call, by an arithmetic of its own.
func claudeBill(t *testing.T, rec *fakeprovider.Record) (sum int64) {
	t.Helper()
	for _, c := range rec.Charges() {
		rates, ok := claudePrices[c.Model]
		if !ok {
			t.Fatalf("no price of %q", c.Model)
		}
		plain := c.Prompt - c.Cached - c.CacheWrite - c.CacheWrite1h
		cost := plain*rates[0] + c.Cached*rates[1] + c.CacheWrite*rates[2] + c.CacheWrite1h*rates[3] + c.Completion*rates[4]
		if rec.Speed == "fast" && c.Model == "claude-opus-5" {
			cost *= 2
		}
		if rec.Geo == "us" && c.Model != "claude-haiku-4-5" { // only newer models cost more there
			cost = cost * 11 / 10
		}
		sum += cost + c.Searches*claudeSearch
	}
	return sum
}

// randomMessage returns a request and how the provider answers it.
func randomMessage(dice *rand.Rand, i int) (body string, b fakeprovider.Behaviour) {
	pick := func(list ...string) string { return list[dice.IntN(len(list))] }
	model, members := pick("claude-opus-5", "claude-sonnet-5", "claude-haiku-4-5"), ""
	if dice.IntN(2) == 0 {
		members += `,"stream":true`
	}
	mark := pick("", `,"cache_control":{"type":"ephemeral"}`, `,"cache_control":{"type":"ephemeral","ttl":"1h"}`,
		`,"cache_control":{"type":"ephemeral","ttl":"5m"}`)
	system := fmt.Sprintf(`,"system":[{"type":"text","text":%q%s}]`, strings.Repeat(fmt.Sprint("rule ", i/3, " "), 20+dice.IntN(900)), mark)
	members += pick("", system, system)
	members += pick("", "", `,"cache_control":{"type":"ephemeral"}`)
	if model == "claude-opus-5" {
		members += pick("", "", `,"speed":"fast"`)
	}
	members += pick("", "", `,"inference_geo":"us"`)
	members += pick("", `,"thinking":{"type":"adaptive"}`, `,"thinking":{"type":"adaptive","display":"omitted"}`)
	switch dice.IntN(6) {
	case 0:
		members += `,"tools":[{"name":"look","description":"looks","input_schema":{"type":"object","properties":{"a":{"type":"string"}}}}]`
	case 1:
		members += `,"tools":[{"type":"web_search_20250305","name":"web_search","max_uses":3}]`
	case 2:
		members += `,"tools":[{"type":"advisor_20260301","name":"advisor","model":"claude-opus-5","max_uses":2,"max_tokens":2048}]`
		b.Iterations = []string{"advisor_message:claude-opus-5"}
	case 3:
		members += `,"fallbacks":[{"model":"claude-sonnet-5"}]`
		b.Iterations = []string{"fallback_message:claude-sonnet-5"}
	case 4:
		members += `,"context_management":{"edits":[{"type":"compact_20260112"}]}`
		b.Iterations = []string{"compaction"}
	}
	body = fmt.Sprintf(`{"model":%q,"max_tokens":%d,"messages":[{"role":"user","content":"question %d"}]%s}`,
		model, 1200+dice.IntN(2000), i, members)
	return body, b
}

// TestMessagesAreBilledExactly makes random calls of Messages: each costs to the nano-dollar what the provider bills,
// and no more than was held.
func TestMessagesAreBilledExactly(t *testing.T) {
	r := claudeRig(t, roomy()...)
	r.org.AllowBuiltinTools = true
	r.org.Hold = "max"
	dice := rand.New(rand.NewPCG(38, 1))
	for i := range 1000 {
		body, b := randomMessage(dice, i)
		r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return b })
		c, w := r.message(body)
		log := r.fake.Log()
		rec := &log[len(log)-1]
		if rec.Status != 200 {
			t.Fatalf("the provider refused call %d: %s\n%s", i, w.Body, body)
		}
		want := claudeBill(t, rec)
		if got := int64(c.Result.Cost); got != want || c.Result.Estimated || c.Result.Outcome != Completed {
			t.Fatalf("call %d costs %d (%s, %v), and the provider bills %d\n%.300s\n%+v\n%s", i, got, c.Result.Outcome,
				c.Result.UsageFaults, want, body, c.Result, rec.Reported)
		}
		if held := int64(c.Plan.Max.Cost); held < want {
			t.Fatalf("call %d costs %d, and %d were held\n%.400s\n%s", i, want, held, body, rec.Reported)
		}
	}
}

// TestHiddenOutputGrows: the hold of an agent's stream grows while its thinking is hidden, and the stream is cut
// off when the limit has no room for more.
func TestHiddenOutputGrows(t *testing.T) {
	const most = 40_000_000 // nano-USD: the first 800 tokens of output, and a few hundred more
	window := budget.Shape{Kind: budget.Window, Amount: most, Window: time.Hour}
	r := claudeRig(t, budget.Limit{ID: "window", Subject: budget.User, Metric: budget.Cost, Shape: window})
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Stall: time.Minute, After: 1}
	})
	p, err := r.messages(`{"model":"claude-opus-5","max_tokens":128000,"stream":true,"thinking":{"type":"adaptive","display":"omitted"},` +
		`"messages":[{"role":"user","content":"think"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if first, all := int64(p.First.Cost), int64(p.Max.Cost); first < 20_000_000 || first > 21_000_000 || all < 3_200_000_000 {
		t.Errorf("%d of %d are held at first, want 800 tokens of output of 128,000", first, all)
	}
	c, w := r.begin(p), httptest.NewRecorder()
	if err := c.Forward(t.Context(), w, Forwarding{Header: claudeBetas}); err != nil {
		t.Fatal(err)
	}
	c.End(t.Context())
	r.settle()
	held := int64(c.Hold.Max.Cost)
	if c.Result.Outcome != Cut || held <= int64(p.First.Cost) || held > most || int64(c.Result.Cost) > held || c.Result.Cost <= 0 {
		t.Errorf("%s: %v of %d held", c.Result.Outcome, c.Result.Cost, held)
	}
	if text := w.Body.String(); !strings.HasPrefix(text, "event: message_start") || !strings.Contains(text, "event: error\n") {
		t.Errorf("got %s", text)
	}
	if err := r.fake.Quiet(t.Context()); err != nil {
		t.Fatal(err)
	}
	if log := r.fake.Log(); log[len(log)-1].Outcome != fakeprovider.ClientGone {
		t.Errorf("the provider ended with %s", log[len(log)-1].Outcome)
	}
}

// TestMessagesAreIdentified: the identifier of an org's user has the org's prefix, as on other endpoints, and all
// else passes unchanged.
func TestMessagesAreIdentified(t *testing.T) {
	r := claudeRig(t, roomy()...)
	p := *r.guard.Policy()
	p.Providers.Get("anthropic").IdentifierKey = []byte("key")
	body := `{"model":"claude-opus-5","max_tokens":5,"messages":[{"role":"user","content":"x"}],"metadata":{"user_id":"u-1"}}`
	_, _ = r.message(body)
	log := r.fake.Log()
	sent := string(log[len(log)-1].Body)
	head, tail, ok := strings.Cut(sent, `"metadata":{"user_id":"`)
	if want, _, _ := strings.Cut(body, `"metadata"`); !ok || head != want || !strings.HasSuffix(tail, `-u-1"}}`) || len(tail) < 20 {
		t.Errorf("sent %s", sent)
	}
}

// TestMessagesPass: what is sent is what the caller wrote, also members and headers that nobody knows yet, and the
// answer is the provider's. The credential is the account's.
func TestMessagesPass(t *testing.T) {
	r := claudeRig(t, roomy()...)
	body := ` {"model": "claude-opus-5", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]} `
	p, err := r.messages(body)
	if err != nil {
		t.Fatal(err)
	}
	c, w := r.begin(p), httptest.NewRecorder()
	header := http.Header{
		"Anthropic-Version": {"2026-10-21"}, "Anthropic-Beta": {"a,b"}, "X-Claude-Code-Session-Id": {"s1"},
		"X-Api-Key": {"lg_live_x"}, "Authorization": {"Bearer lg_live_x"}, "Anthropic-Workspace-Id": {"w"}, "Cookie": {"c"},
	}
	if err := c.Forward(t.Context(), w, Forwarding{Header: header, Query: "beta=true&x=%61"}); err != nil {
		t.Fatal(err)
	}
	c.End(t.Context())
	log := r.fake.Log()
	rec := log[len(log)-1]
	if string(rec.Body) != body || rec.Query != "beta=true&x=a" || rec.Path != "/v1/messages" {
		t.Errorf("sent %q to %s?%s", rec.Body, rec.Path, rec.Query)
	}
	for name, want := range map[string]string{
		"Anthropic-Version": "2026-10-21", "Anthropic-Beta": "a,b", "X-Claude-Code-Session-Id": "s1", "X-Api-Key": "sk-own",
		"Authorization": "", "Anthropic-Workspace-Id": "", "Cookie": "",
	} {
		if got := rec.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if id := w.Header().Get("Request-Id"); id == "" || w.Header().Get("Anthropic-Organization-Id") != "" {
		t.Errorf("headers %v", w.Header())
	}
}

// TestUnknownMembersOfMessages: they pass, so that agents work, and their hold is that of hidden output; a strict
// provider refuses them.
func TestUnknownMembersOfMessages(t *testing.T) {
	r := claudeRig(t)
	body := `{"model":"claude-opus-4-8","max_tokens":5,"messages":[{"role":"user","content":"x"}],"new_in_2027":{"a":1}}`
	p, err := r.messages(body)
	if err != nil || !p.hidesOutput() {
		t.Errorf("%v", err)
	}
	r.guard.Policy().Providers.Get("anthropic").Strict = true
	var refused *wire.Error
	if _, err := r.messages(body); !errors.As(err, &refused) || refused.Param != "new_in_2027" {
		t.Errorf("a strict provider: %v", err)
	}
}

// TestStrictBetas: a strict provider refuses an unknown beta on every endpoint, but not if its dialect does not forward
// betas.
func TestStrictBetas(t *testing.T) {
	r := newRig(t)
	refused := func(model string) bool {
		t.Helper()
		for _, p := range r.guard.Policy().Providers.All() {
			p.Strict = true
		}
		req, err := wire.Scan(wire.ChatCompletions, []byte(prompt(model, "hi", `"max_tokens":5`)), wire.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		req.Betas = []string{"free-lunch-2027-01-01"}
		_, err = r.guard.Plans.Prepare(r.caller(), req)
		var e *wire.Error
		if err != nil && (!errors.As(err, &e) || e.Param != "anthropic-beta") {
			t.Fatal(err)
		}
		return err != nil
	}
	if refused("gpt-4o") {
		t.Error("OpenAI's dialect, which sends no betas, refuses one")
	}
	r.moveToClaude(providers.Pool{ID: "claude"})
	if !refused("claude-opus-4-8") {
		t.Error("Anthropic's dialect accepts an unknown beta")
	}
}

// TestPassesAreBounded: what no member bounds is refused, and models that the key may not use cannot be named.
func TestPassesAreBounded(t *testing.T) {
	r := claudeRig(t)
	r.org.AllowBuiltinTools, r.org.Models = true, []string{"claude-opus-5", "claude-haiku-4-5"}
	most := func(more string) (int64, error) {
		p, err := r.messages(`{"model":"claude-opus-5","max_tokens":1000,"messages":[{"role":"user","content":"x"}]` + more + `}`)
		if err != nil {
			return 0, err
		}
		return int64(p.Max.Cost), nil
	}
	plain, err := most("")
	if err != nil {
		t.Fatal(err)
	}
	for more, least := range map[string]int64{ // nano-USD above the plain call
		`,"fallbacks":[{"model":"claude-haiku-4-5"}]`:                                                                    1000 * 5000,
		`,"fallbacks":[{"model":"claude-opus-5"},{"model":"claude-haiku-4-5"}]`:                                          1000 * 25_000,
		`,"tools":[{"type":"advisor_20260301","name":"advisor","model":"claude-opus-5","max_uses":3,"max_tokens":2000}]`: 3 * 2000 * 25_000,
		`,"context_management":{"edits":[{"type":"compact_20260112"}]}`:                                                  128_000 * 25_000,
		`,"speed":"fast"`: plain,
		`,"tools":[{"type":"web_search_20250305","name":"w","max_uses":7}]`: 7 * claudeSearch,
	} {
		if got, err := most(more); err != nil || got < plain+least || got > plain+3*least+60_000_000 {
			t.Errorf("%s: %d above %d, %v; want at least %d", more, got-plain, plain, err, least)
		}
	}
	for more, code := range map[string]string{
		`,"fallbacks":"default"`:                     "request_not_priced",
		`,"fallbacks":[{"model":"claude-opus-4-8"}]`: "model_not_found",
		`,"tools":[{"type":"advisor_20260301","name":"a","model":"claude-opus-5","max_tokens":2000}]`: "builtin_tool_refused",
		`,"tools":[{"type":"advisor_20260301","name":"a","model":"claude-opus-5","max_uses":2}]`:      "builtin_tool_refused",
	} {
		var refused *wire.Error
		if _, err := most(more); !errors.As(err, &refused) || refused.Code != code || refused.Status != 400 {
			t.Errorf("%s: %v, want %s", more, err, code)
		}
	}
	r.org.AllowBuiltinTools = false
	for _, more := range []string{
		`,"tools":[{"type":"web_search_20250305","name":"w","max_uses":7}]`, `,"mcp_servers":[{"type":"url","url":"https://x","name":"x"}]`,
		`,"container":"c1"`, `,"tools":[{"type":"code_execution_20250825","name":"c"}]`,
	} {
		var refused *wire.Error
		if _, err := most(more); !errors.As(err, &refused) || refused.Code != "builtin_tool_refused" {
			t.Errorf("%s: %v", more, err)
		}
	}
	if got, err := most(`,"tools":[{"name":"mine","input_schema":{}},{"type":"bash_20250124","name":"bash"}]`); err != nil || got < plain {
		t.Errorf("the caller's own tools: %v", err)
	}
}

// TestTranslatedToMessages: callers of other APIs reach Claude models, and their calls cost what Anthropic bills.
func TestTranslatedToMessages(t *testing.T) {
	r := claudeRig(t, roomy()...)
	dice := rand.New(rand.NewPCG(38, 2))
	for i := range 60 {
		stream, ep := dice.IntN(2) == 0, wire.ChatCompletions
		body := fmt.Sprintf(`{"model":"claude-sonnet-5","stream":%t,"max_tokens":900,"messages":[{"role":"system","content":"Be brief."},`+
			`{"role":"user","content":"question %d"}],"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}]}`,
			stream, i)
		if dice.IntN(2) == 0 {
			ep = wire.Responses
			body = fmt.Sprintf(`{"model":"claude-sonnet-5","stream":%t,"max_output_tokens":900,"input":"question %d","store":false,`+
				`"reasoning":{"effort":"high"}}`, stream, i)
		}
		req, err := wire.Scan(ep, []byte(body), wire.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.guard.Plans.Prepare(r.caller(), req)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		c, w := r.begin(p), httptest.NewRecorder()
		err = c.Forward(t.Context(), w, Forwarding{Header: http.Header{}})
		c.End(t.Context())
		r.settle()
		log := r.fake.Log()
		rec := &log[len(log)-1]
		if err != nil || rec.Path != "/v1/messages" || rec.Status != 200 {
			t.Fatalf("%s: %v, %s\n%s", body, err, w.Body, rec.Body)
		}
		want := claudeBill(t, rec)
		if got := int64(c.Result.Cost); got != want || c.Result.Estimated || int64(p.Max.Cost) < want {
			t.Errorf("%s: costs %d (%v), held %d, and the provider bills %d", body, got, c.Result.UsageFaults, p.Max.Cost, want)
		}
		if stream {
			continue
		}
		if a, ok := wire.ParseUsage(ep, w.Body.Bytes()); !ok || a.Usage.Output != rec.Usage.Completion || a.Usage.Input != rec.Usage.Prompt {
			t.Errorf("the caller reads %+v of %s", a.Usage, w.Body)
		}
	}
}

// TestTranslatedFromMessages: callers of Messages reach other models, and their calls cost what OpenAI bills.
func TestTranslatedFromMessages(t *testing.T) {
	r := newRig(t, roomy()...)
	for _, stream := range []bool{true, false} {
		body := fmt.Sprintf(`{"model":"gpt-4o","stream":%t,"max_tokens":300,"system":"Be brief.","messages":[{"role":"user","content":"hi"}]}`, stream)
		c, w := r.message(body)
		log := r.fake.Log()
		rec := &log[len(log)-1]
		want := rec.Usage.Prompt*2500 + rec.Usage.Completion*10_000 // $2.50 and $10 a million tokens
		if got := int64(c.Result.Cost); rec.Path != "/v1/chat/completions" || got != want || c.Result.Estimated {
			t.Errorf("stream %t: %s costs %d, want %d", stream, rec.Path, got, want)
		}
		text := w.Body.String()
		if stream && !strings.HasSuffix(text, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n") {
			t.Errorf("got %s", text)
		}
		if a, ok := wire.ParseUsage(wire.Messages, w.Body.Bytes()); !stream && (!ok || a.Usage.Input != rec.Usage.Prompt || a.Usage.Output != rec.Usage.Completion) {
			t.Errorf("got %s", text)
		}
	}
}

// TestCutMessages: a stream that breaks off costs its input as its first event counts it, the output that was seen,
// and what may have been generated unseen; never less than the provider bills, nor more than was held.
func TestCutMessages(t *testing.T) {
	r := claudeRig(t, roomy()...)
	mark := fmt.Sprintf(`,"system":[{"type":"text","text":%q,"cache_control":{"type":"ephemeral","ttl":"1h"}}]`, strings.Repeat("rule ", 3000))
	for _, think := range []string{"", `,"thinking":{"type":"adaptive","display":"omitted"}`} {
		for _, cut := range []fakeprovider.Cut{fakeprovider.CutReset, fakeprovider.CutEOF, fakeprovider.CutError} {
			r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
				// Tokens come at a rate that is possible; hidden ones take their time, too.
				return fakeprovider.Behaviour{Cut: cut, After: 20, Gap: 2 * time.Millisecond, Stall: time.Duration(len(think)) * 20 * time.Millisecond}
			})
			c, w := r.message(`{"model":"claude-opus-5","max_tokens":4000,"stream":true,"messages":[{"role":"user","content":"go on"}]` + mark + think + `}`)
			log := r.fake.Log()
			rec := &log[len(log)-1]
			least, got := claudeBill(t, rec), int64(c.Result.Cost)
			if got < least || got > int64(c.Hold.Max.Cost) || !c.Result.Estimated {
				t.Errorf("%s%s costs %d, and the provider bills %d; %d are held", cut, think, got, least, c.Hold.Max.Cost)
			}
			if u := c.Result.Usage; u.Input != rec.Usage.Prompt || u.CacheWrite1h != rec.Usage.CacheWrite1h || u.CachedInput != rec.Usage.Cached {
				t.Errorf("%s%s: %+v, and the provider counts %+v", cut, think, u, rec.Usage)
			}
			if text := w.Body.String(); !strings.Contains(text, "event: error\n") || strings.Contains(text, "message_stop") {
				t.Errorf("%s%s: got %.300s", cut, think, text[max(0, len(text)-300):])
			}
		}
	}
}

// TestMessagesOfACallerWhoLeft: the provider of a stream is cancelled when its caller leaves, although it thinks unseen,
// and the call costs no less than it bills.
func TestMessagesOfACallerWhoLeft(t *testing.T) {
	r := claudeRig(t, roomy()...)
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Stall: time.Minute, After: 10, Gap: 2 * time.Millisecond}
	})
	p, err := r.messages(`{"model":"claude-opus-5","max_tokens":4000,"stream":true,"thinking":{"type":"disabled"},"messages":[{"role":"user","content":"go on"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	c, w := r.begin(p), &leaving{ResponseRecorder: httptest.NewRecorder(), leave: leave}
	if err := c.Forward(ctx, w, Forwarding{Header: claudeBetas}); !errors.Is(err, ErrGone) {
		t.Errorf("got %v", err)
	}
	c.End(t.Context())
	r.settle()
	if err := r.fake.Quiet(t.Context()); err != nil {
		t.Fatal(err)
	}
	log := r.fake.Log()
	rec := &log[len(log)-1]
	if rec.Outcome != fakeprovider.ClientGone || c.Result.Outcome != ClientGone {
		t.Errorf("the provider ended with %s, the call with %s", rec.Outcome, c.Result.Outcome)
	}
	if least, got := claudeBill(t, rec), int64(c.Result.Cost); got < least || got > int64(c.Hold.Max.Cost) {
		t.Errorf("costs %d, and the provider bills %d; %d are held", got, least, c.Hold.Max.Cost)
	}
}

// leaving is a caller who leaves at the first text.
type leaving struct {
	*httptest.ResponseRecorder
	leave context.CancelFunc
}

func (l *leaving) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "text_delta") {
		l.leave()
	}
	return l.ResponseRecorder.Write(p)
}

// claudeAnswer makes a call that Anthropic answers with this usage and model.
func (r *rig) claudeAnswer(model, more, usage, answered string) *Call {
	r.t.Helper()
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{RawUsage: usage, Model: answered, Text: "hi"}
	})
	c, _ := r.message(fmt.Sprintf(`{"model":%q,"max_tokens":1000,"messages":[{"role":"user","content":"x"}]%s}`, model, more))
	return c
}

// TestToldPasses: entries without a model are of the one that answered, fast mode is charged if it is asked for and not
// denied, and what no model can count is not believed.
func TestToldPasses(t *testing.T) {
	r := claudeRig(t, roomy()...)
	entry := func(more string) string {
		return `{"input_tokens":1000,"output_tokens":900,"iterations":[{"type":"message","input_tokens":1000,"output_tokens":900}` + more + `]}`
	}
	const opus = 1000*5000 + 900*25_000
	c := r.claudeAnswer("claude-haiku-4-5", "", entry(""), "claude-opus-5")
	if got := int64(c.Result.Cost); got != opus || c.Result.Underpriced[DearerModel] <= 0 {
		t.Errorf("a dearer model that answered: %d, %v", got, c.Result.Underpriced)
	}
	c = r.claudeAnswer("claude-opus-5", `,"speed":"fast"`, `{"input_tokens":1000,"output_tokens":900,"service_tier":"standard"}`, "")
	if got := int64(c.Result.Cost); got != 2*opus {
		t.Errorf("fast mode that is not denied: %d, want %d", got, 2*opus)
	}
	c = r.claudeAnswer("claude-opus-5", "", entry(`,{"type":"advisor_message","input_tokens":1000000000,"output_tokens":1000000000}`), "")
	if got := c.Result.Cost; got > c.Hold.Max.Cost || !c.Result.Estimated || len(c.Result.UsageFaults) == 0 {
		t.Errorf("more than any model can read: %v of %v held, %v", got, c.Hold.Max.Cost, c.Result.UsageFaults)
	}
	c = r.claudeAnswer("claude-opus-5", "", entry(strings.Repeat(`,{"type":"compaction","input_tokens":1,"output_tokens":1}`, 300)), "")
	if !c.Result.Estimated {
		t.Errorf("300 entries: %+v", c.Result)
	}
}

// TestMembersOfOtherAPIs: members of other APIs do not pass a translation.
func TestMembersOfOtherAPIs(t *testing.T) {
	r := newRig(t)
	for _, member := range []string{`"models":["openai/o1-pro"]`, `"plugins":[{"id":"web"}]`, `"max_new_tokens":100000`, `"n":9`} {
		p, err := r.messages(`{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"x"}],` + member + `}`)
		if name, _, _ := strings.Cut(member, ":"); err != nil || strings.Contains(string(p.sent.Rewrite(p.edits...).Bytes()), name) {
			t.Errorf("%s: %v", member, err)
		}
	}
}

// TestEstimatesCountCacheWrites: a call whose usage is not known costs what the provider bills if it wrote all of the
// input to the cache for the time that the request asks for.
func TestEstimatesCountCacheWrites(t *testing.T) {
	r := claudeRig(t, roomy()...)
	rates := claudePrices["claude-sonnet-5"]
	for mark, rate := range map[string]int64{
		"": rates[0], `,"cache_control":{"type":"ephemeral"}`: rates[2], `,"cache_control":{"type":"ephemeral","ttl":"1h"}`: rates[3],
	} {
		for _, cut := range []fakeprovider.Cut{fakeprovider.CutHeaders, fakeprovider.CutReset} {
			for _, stream := range []string{"", `,"stream":true`} {
				r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
					return fakeprovider.Behaviour{Cut: cut, Early: true}
				})
				p, err := r.messages(`{"model":"claude-sonnet-5","max_tokens":9000,"messages":[{"role":"user","content":"x"}]` + mark + stream + `}`)
				if err != nil {
					t.Fatal(err)
				}
				c := r.begin(p)
				_ = c.Forward(t.Context(), httptest.NewRecorder(), Forwarding{Header: claudeBetas})
				c.End(t.Context())
				want := p.Input*rate + c.Result.Usage.Output*rates[4]
				if got := int64(c.Result.Cost); got != want || c.Result.Usage.Output == p.Output || !c.Result.Estimated {
					t.Errorf("%s%s, %s: got %d nano-USD (%s, %+v), want %d", mark, stream, cut, got, c.Result.Outcome, c.Result.Usage, want)
				}
			}
		}
	}
}

// TestCutPasses: a stream that breaks off costs what its other passes may have cost, too.
func TestCutPasses(t *testing.T) {
	r := claudeRig(t, roomy()...)
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Cut: fakeprovider.CutReset, After: 3}
	})
	c, _ := r.message(`{"model":"claude-opus-4-8","max_tokens":100,"stream":true,"messages":[{"role":"user","content":"x"}],` +
		`"context_management":{"edits":[{"type":"compact_20260112"}]}}`)
	if least := int64(128_000 * 25_000); int64(c.Result.Cost) < least || c.Result.Cost > c.Hold.Max.Cost || c.cancels(t.Context()) {
		t.Errorf("costs %v of %v held; a compaction may cost %d", c.Result.Cost, c.Hold.Max.Cost, least)
	}
}
