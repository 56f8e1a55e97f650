package guard

import (
	"errors"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
)

func TestPrepareTokens(t *testing.T) {
	r := newRig(t)
	f := func(body string, input, output int64) {
		t.Helper()
		p := r.plan(body)
		if p.Input != input || p.Output != output || p.Max.Tokens != input+output {
			t.Errorf("%s: %d in, %d out, %d held; want %d in, %d out", body, p.Input, p.Output, p.Max.Tokens, input, output)
		}
	}
	// Three tokens a message, three to begin the answer, one each for role and text.
	f(prompt("gpt-4o", "hi", `"max_tokens":10`), 8, 10)
	f(prompt("gpt-4o", "hi", `"max_completion_tokens":10,"n":3`), 8, 30)
	f(prompt("gpt-4o", "hi", `"max_tokens":10,"n":2,"best_of":5`), 8, 50)
	f(prompt("gpt-4o", "hi", ""), 8, 16384) // the model's own maximum
	f(`{"model":"gpt-4o","max_tokens":1,"messages":[{"role":"user","name":"bob","content":"hi"}]}`, 10, 1)
	f(`{"model":"gpt-4o","max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"hi"},{"type":"text","text":"hi"}]}]}`, 9, 1)
	f(`{"model":"gpt-4o","max_tokens":1,"messages":[{"role":"user","content":"\u0068\u0069"}]}`, 8, 1)
	f(prompt("gpt-4o", "hi", `"max_tokens":10,"prediction":{"type":"content","content":"abc"}`), 8, 10+int64(len(`{"type":"content","content":"abc"}`)))
	f(`{"model":"text-embedding-3-small","input":"hi"}`, 1, 0)
	f(`{"model":"text-embedding-3-small","input":["hi","hi hi"]}`, 3, 0)
	f(`{"model":"text-embedding-3-small","input":[[1,2,3],[4]]}`, 4, 0)
	// One low-detail image is 85 tokens on this model, whatever its size.
	f(`{"model":"gpt-4o","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png","detail":"low"}}]}]}`, 7+85, 1)
}

// TestPrepareCounts checks that whatever costs tokens at the provider raises the estimate.
func TestPrepareCounts(t *testing.T) {
	r := newRig(t)
	least := r.plan(prompt("gpt-4o", "hi", `"max_tokens":1`)).Input
	for _, extra := range []string{
		`"tools":[{"type":"function","function":{"name":"f","description":"does it","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}]`,
		`"functions":[{"name":"f","parameters":{}}]`,
		`"response_format":{"type":"json_schema","json_schema":{"name":"s","schema":{"type":"object"}}}`,
	} {
		if p := r.plan(prompt("gpt-4o", "hi", `"max_tokens":1,`+extra)); p.Input < least+15 {
			t.Errorf("%s counts %d tokens", extra, p.Input-least)
		}
	}
	dear := r.plan(`{"model":"gpt-4o","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]}`)
	if dear.Input < 700 {
		t.Errorf("an image of unknown size counts %d tokens", dear.Input)
	}
	// A 1x1 GIF, whose size is read from the data URL.
	tiny := r.plan(`{"model":"gpt-4o","max_tokens":1,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"}}]}]}`)
	if tiny.Input != 7+85+170 {
		t.Errorf("a tiny image counts %d tokens", tiny.Input)
	}
}

// TestPrepareCost checks that the hold covers the most expensive way a call may be billed.
func TestPrepareCost(t *testing.T) {
	r := newRig(t)
	f := func(body string, nano int64) {
		t.Helper()
		if p := r.plan(body); int64(p.Max.Cost) != nano {
			t.Errorf("%s is held at %v, want %d nano-USD", body, p.Max.Cost, nano)
		}
	}
	// gpt-4o: $2.50 and $10 a million tokens; priority is more expensive.
	f(prompt("gpt-4o", "hi", `"max_tokens":10`), 8*2500+10*10_000)
	f(prompt("smart", "hi", `"max_tokens":10`), 8*2500+10*10_000)
	f(prompt("gpt-4o", "hi", `"max_tokens":10,"service_tier":"priority"`), 8*6250+10*25_000)
	f(prompt("gpt-4o", "hi", `"max_tokens":10,"service_tier":"flex"`), 8*2500+10*10_000)
}

// TestProjectTier checks that a call without a tier is held at the tier of the provider's
// account, and charged at it if the answer names none either.
func TestProjectTier(t *testing.T) {
	r := newRig(t, roomy()...)
	provider := r.guard.Policy().Providers.All()[0]
	f := func(account, asked, answered string, held, charged int64) {
		t.Helper()
		provider.ServiceTier = account
		extra := `"max_completion_tokens":40`
		if asked != "" {
			extra += `,"service_tier":"` + asked + `"`
		}
		c, _, err := r.run(t.Context(), prompt("gpt-5", "[fake: output=40 cached=-1 tier="+answered+"]", extra))
		if err != nil {
			t.Fatal(err)
		}
		// gpt-5: $1.25 and $10 a million tokens, in thousandths of a nano-USD.
		full := c.Plan.Input*1250 + 40*10_000
		bill := c.Result.Usage.Input*1250 + 40*10_000
		if want := full * held / 1000; int64(c.Plan.Max.Cost) != want {
			t.Errorf("%q in a %s account is held at %d, want %d", asked, account, c.Plan.Max.Cost, want)
		}
		if want := bill * charged / 1000; int64(c.Result.Cost) != want {
			t.Errorf("%q in a %s account, answered %q, costs %d, want %d", asked, account, answered, c.Result.Cost, want)
		}
	}
	const flex, whole, priority = 500, 1000, 2500
	f("", "", "auto", whole, whole)
	f("default", "auto", "auto", whole, whole)
	f("priority", "", "auto", priority, priority)
	f("priority", "auto", "auto", priority, priority)
	f("priority", "", "default", priority, whole)
	f("priority", "default", "default", whole, whole)
	f("flex", "", "auto", whole, flex) // the default tier may still serve it
	f("flex", "", "default", whole, whole)
}

// TestPrepareSpeech checks that recordings and spoken answers are held at their own rates.
func TestPrepareSpeech(t *testing.T) {
	r := newRig(t)
	text := r.plan(prompt("talker", "hi", `"max_tokens":100`))
	spoken := r.plan(prompt("talker", "hi", `"max_tokens":100,"modalities":["text","audio"],"audio":{"voice":"alloy","format":"mp3"}`))
	if spoken.Max.Cost <= text.Max.Cost || spoken.usage(100).AudioOut != 100 {
		t.Errorf("a spoken answer is held at %v, a written one at %v", spoken.Max.Cost, text.Max.Cost)
	}
	loud := r.plan(prompt("talker", "hi", `"max_tokens":100,"modalities":["TEXT","AUDIO"]`))
	if loud.Max.Cost != spoken.Max.Cost {
		t.Errorf("AUDIO is held at %v, audio at %v", loud.Max.Cost, spoken.Max.Cost)
	}
	heard := r.plan(`{"model":"talker","max_tokens":100,"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"format":"wav","data":"` + strings.Repeat("A", 400) + `"}}]}]}`)
	if heard.usage(0).AudioIn < 200 || int64(heard.Max.Cost) < 200*40_000+100*2_000 {
		t.Errorf("a recording is held at %v for %d tokens", heard.Max.Cost, heard.usage(0).AudioIn)
	}
	if !spoken.hidesOutput() {
		t.Error("a spoken answer cannot be billed by its text")
	}
}

func TestPrepareRefuses(t *testing.T) {
	r := newRig(t)
	r.org.Models = []string{"gpt-*", "smart", "o*", "whatever", "text-*"}
	f := func(body string, status int, code string) {
		t.Helper()
		_, err := r.prepare(body)
		var e *wire.Error
		if !errors.As(err, &e) || e.Status != status || e.Code != code {
			t.Errorf("%s: got %v, want %d %s", body, err, status, code)
		}
	}
	f(prompt("claude-sonnet-4-5", "hi", ""), 404, "model_not_found") // not the org's
	f(prompt("whatever", "hi", ""), 400, "model_not_priced")
	f(prompt("gpt-4o", "hi", `"tools":[{"type":"web_search"}]`), 400, "builtin_tool_refused")
	f(prompt("gpt-4o", "hi", `"web_search_options":{}`), 400, "builtin_tool_refused")
	f(`{"model":"gpt-4o","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"file-1"}}]}]}`, 404, "file_not_found")
	f(`{"model":"gpt-4o","messages":[{"role":"assistant","audio":{"id":"audio_1"}}]}`, 404, "audio_not_found")
	r.org.AllowBuiltinTools = true
	r.plan(prompt("gpt-4o", "hi", `"tools":[{"type":"web_search"}]`))
	r.org.Providers = []string{"other"}
	f(prompt("gpt-4o", "hi", ""), 404, "model_not_found")
	r.org.Providers, r.org.Models = nil, nil
	req, err := wire.Scan(wire.ChatCompletions, []byte(prompt("gpt-4o", "hi", "")), wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	c := r.caller()
	c.Models = []string{"gpt-4o-mini"}
	if _, err := r.guard.Plans.Prepare(c, req); err == nil {
		t.Error("a key used a model that is not its own")
	}
}

// TestPrepareEdits checks that the provider gets the caller's bytes except for the
// necessary edits.
func TestPrepareEdits(t *testing.T) {
	r := newRig(t)
	f := func(limit int64, body, want string) {
		t.Helper()
		r.org.DefaultOutputLimit = limit
		p := r.plan(body)
		if got := string(p.Request.Rewrite(p.edits...).Bytes()); got != want {
			t.Errorf("sent %s\nwant %s", got, want)
		}
	}
	plain, stream := prompt("gpt-4o", "hi", ""), prompt("gpt-4o", "hi", `"stream":true`)
	f(0, plain, plain)
	f(0, stream, strings.TrimSuffix(stream, "}")+`,"stream_options":{"include_usage":true}}`)
	asked := prompt("gpt-4o", "hi", `"stream":true,"stream_options":{"include_usage":true}`)
	f(0, asked, asked)
	f(100, plain, strings.TrimSuffix(plain, "}")+`,"max_tokens":100}`)
	f(100, prompt("gpt-4o", "hi", `"max_tokens":5`), prompt("gpt-4o", "hi", `"max_tokens":5`))
	thinker := prompt("o4-mini", "hi", "")
	f(100, thinker, strings.TrimSuffix(thinker, "}")+`,"max_completion_tokens":100}`)
	f(20_000, plain, plain) // more than the model's maximum, which would be refused
	f(0, prompt("smart", "hi", ""), plain)
	r.org.DefaultOutputLimit = 100
	if p := r.plan(plain); p.Output != 100 || p.Quota != 108 {
		t.Errorf("%d tokens of output are held, %d of the quota", p.Output, p.Quota)
	}
	r.org.DefaultOutputLimit = 20_000
	if p := r.plan(plain); p.Output != 16384 || p.Quota != 8+unlimitedQuota {
		t.Errorf("%d tokens of output are held, %d of the quota", p.Output, p.Quota)
	}
}

// TestPrepareLimits checks which limits apply to a call.
func TestPrepareLimits(t *testing.T) {
	r := newRig(t)
	limit := func(l budget.Limit) budget.Limit {
		l.Metric, l.Shape = budget.Requests, budget.Shape{Kind: budget.Bucket, Amount: 1}
		return l
	}
	r.org.Limits = []budget.Limit{
		limit(budget.Limit{ID: "org", Subject: budget.Org}),
		limit(budget.Limit{ID: "off", Subject: budget.Org, Mode: budget.Off}),
		limit(budget.Limit{ID: "shadow", Subject: budget.Org, Mode: budget.Shadow}),
		limit(budget.Limit{ID: "me", Subject: budget.User, Only: "alice"}),
		limit(budget.Limit{ID: "you", Subject: budget.User, Only: "bob"}),
		limit(budget.Limit{ID: "my-key", Subject: budget.Key, Only: "k1"}),
		limit(budget.Limit{ID: "your-key", Subject: budget.Key, Only: "k2"}),
		limit(budget.Limit{ID: "my-ip", Subject: budget.IP, Only: "10.0.0.1"}),
		limit(budget.Limit{ID: "your-ip", Subject: budget.IP, Only: "10.0.0.2"}),
		limit(budget.Limit{ID: "4o", Subject: budget.Org, Models: []string{"gpt-4o*"}}),
		limit(budget.Limit{ID: "mini", Subject: budget.Org, Models: []string{"*-mini"}}),
		limit(budget.Limit{ID: "alias", Subject: budget.Org, Models: []string{"smart"}}),
		limit(budget.Limit{ID: "embed", Subject: budget.Org, Endpoints: []string{"embeddings"}}),
		limit(budget.Limit{ID: "chat", Subject: budget.Org, Endpoints: []string{"chat.*"}}),
	}
	r.org.UserLimits = map[string][]budget.Limit{"bob": {limit(budget.Limit{ID: "bobs", Subject: budget.User})}}
	f := func(user, model, want string) {
		t.Helper()
		req, err := wire.Scan(wire.ChatCompletions, []byte(prompt(model, "hi", "")), wire.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		c := r.caller()
		c.User = user
		p, err := r.guard.Plans.Prepare(c, req)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range p.Limits {
			got = append(got, l.ID)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s with %s stands under %s, want %s", user, model, s, want)
		}
	}
	f("alice", "gpt-4o", "org shadow me my-key my-ip 4o chat")
	f("alice", "gpt-4o-mini", "org shadow me my-key my-ip 4o mini chat")
	f("alice", "smart", "org shadow me my-key my-ip 4o alias chat") // an alias does not bypass a limit
	f("bob", "gpt-4o", "bobs")
	f("carol", "o4-mini", "org shadow my-key my-ip mini chat")
}

func TestModels(t *testing.T) {
	r := newRig(t)
	names := map[string]string{}
	for _, m := range r.guard.Plans.Models(r.caller()) {
		names[m.ID] = m.Provider
	}
	if names["gpt-4o"] != "openai" || names["smart"] != "openai" {
		t.Errorf("models: %v", names)
	}
	for _, name := range []string{"no-such-model", "claude-sonnet-4-5", "grok-4"} {
		if _, ok := names[name]; ok {
			t.Errorf("%s is listed, but cannot be called", name)
		}
	}
	// An account that the catalogue does not know offers what its pools name, but a
	// pool for everything names nothing.
	ours := r.guard.Policy().Providers.All()[0]
	ours.ID, ours.Pools[0].Models = "gateway", []string{"*"}
	if list := r.guard.Plans.Models(r.caller()); len(list) != 1 || list[0].ID != "smart" {
		t.Errorf("a gateway offers %d models, %v", len(list), list[:1])
	}
	ours.Pools[0].Models = []string{"gpt-4o*", "grok-*"}
	if list := r.guard.Plans.Models(r.caller()); len(list) < 4 {
		t.Errorf("a gateway with patterns offers %v", list)
	}
	ours.ID, ours.Pools[0].Models = "openai", nil
	for name := range names {
		if _, err := r.prepare(prompt(name, "hi", `"max_tokens":5`)); err != nil && !strings.HasPrefix(name, "text-embedding") {
			t.Errorf("%s is listed, but refused: %v", name, err)
		}
	}
	if m, err := r.guard.Plans.Model(r.caller(), "smart"); err != nil || m.Provider != "openai" {
		t.Errorf("smart: %v, %v", m, err)
	}
	if _, err := r.guard.Plans.Model(r.caller(), "no-such-model"); err == nil {
		t.Error("a model without a price was found")
	}
	r.org.Models = []string{"gpt-4o-mini"}
	if list := r.guard.Plans.Models(r.caller()); len(list) != 1 || list[0].ID != "gpt-4o-mini" {
		t.Errorf("an org with one model is shown %v", list)
	}
}

func TestHidesOutput(t *testing.T) {
	for model, want := range map[string]bool{
		"gpt-4o": false, "gpt-4.1-mini": false, "chatgpt-4o-latest": false, "ft:gpt-4o-mini:acme::1": false, "GPT-3.5-turbo": false,
		"o1": true, "o4-mini": true, "gpt-5": true, "gpt-6-foo": true, "deepseek-reasoner": true, "openai/gpt-4o": true,
		"unheard-of": true, "command-a-reasoning-08-2025": true, "llama-4-thinking": true, "mistral-large-latest": false,
	} {
		if hidesOutput(model) != want {
			t.Errorf("hidesOutput(%q) is not %v", model, want)
		}
	}
	r := newRig(t)
	for extra, want := range map[string]bool{
		`"stream":true`: false, `"reasoning_effort":"none"`: false, `"reasoning_effort":"high"`: true,
		`"prediction":{"type":"content","content":"x"}`: true, `"n":2,"best_of":2`: false, `"best_of":3`: true,
	} {
		if r.plan(prompt("gpt-4o", "hi", extra)).hidesOutput() != want {
			t.Errorf("a call with %s: hidesOutput is not %v", extra, want)
		}
	}
}
