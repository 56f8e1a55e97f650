package guard

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/providers/azure"
	"github.com/llmguard/llmguard/providers/dialect"
	"github.com/llmguard/llmguard/providers/gemini"
	"github.com/llmguard/llmguard/providers/mistral"
)

// bills is the price list of a provider whose answers may come from either model. A search
// costs a fee that is not in the price of any request.
const (
	bills = `[
		{model: m, prices: [{input: 1, output: 2, image_out: 10, audio_out: 20}], max_output: 1000, context: 8000},
		{model: dear, prices: [{input: 100, output: 200}], max_output: 1000, context: 8000}]`
	searchFee = 50_000_000 // nano-USD
)

// server describes how a provider reads a request, and the most it bills for it.
type server struct {
	name   string
	kind   dialect.Dialect
	host   string
	limits []string // its names for the output limit in chat
	dear   []string // members that make another model answer
	fees   []string // members that cost a search
	bodies []string // members whose own members count like the request's
	lax    bool     // accepts names in any case, like Go's decoder
	usd    bool     // the operator knows that it reports its costs in USD
}

var servers = []server{
	{name: "openai", host: "api.openai.com", limits: []string{"max_tokens", "max_completion_tokens"}, fees: []string{"web_search_options"}},
	{name: "azure", kind: azure.Dialect{}, host: "x.openai.azure.com", limits: []string{"max_tokens", "max_completion_tokens"}, fees: []string{"data_sources"}},
	{name: "mistral", kind: mistral.Dialect{}, host: "api.mistral.ai", limits: []string{"max_tokens"}},
	{name: "gemini", kind: gemini.Dialect{}, host: "generativelanguage.googleapis.com", limits: []string{"max_tokens", "max_completion_tokens"}, fees: []string{"extra_body", "google"}},
	{name: "openrouter", host: "openrouter.ai", limits: []string{"max_tokens"}, dear: []string{"models", "route", "fallbacks", "provider", "preset"}, fees: []string{"plugins", "web_search_options"}},
	{name: "vllm", host: "vllm", limits: []string{"max_tokens"}},
	{name: "litellm", host: "litellm", limits: []string{"max_tokens", "max_output_tokens"}, dear: []string{"fallbacks", "model_list"}, bodies: []string{"extra_body"}, lax: true, usd: true},
	{name: "qwen", host: "dashscope", limits: []string{"max_tokens"}, fees: []string{"enable_search", "search_options"}},
	{name: "xai", host: "api.x.ai", limits: []string{"max_tokens"}, fees: []string{"search_parameters"}},
	{name: "llama.cpp", host: "llama", limits: []string{"n_predict", "max_tokens"}, lax: true},
}

// bill returns the most the server may bill for a request with `input` tokens, in nano-USD.
func (s *server) bill(body []byte, input int64) int64 {
	given := map[string]json.RawMessage{}
	s.read(given, body)
	output, in, out, fees := int64(1000), int64(1000), int64(20_000), int64(0)
	for _, name := range append([]string{"max_output_tokens"}[:s.responds(given)], s.limits...) {
		var n *int64
		if json.Unmarshal(given[name], &n) == nil && n != nil {
			output = *n
			break
		}
	}
	for _, name := range []string{"n", "best_of"} {
		var n *int64
		if json.Unmarshal(given[name], &n) == nil && n != nil && name == "n" {
			output *= *n
		}
	}
	var modes []string
	_ = json.Unmarshal(given["modalities"], &modes)
	switch text := strings.Join(modes, " "); {
	case strings.Contains(text, "audio"):
	case strings.Contains(text, "image"):
		out = 10_000
	default:
		out = 2000
	}
	for _, name := range s.dear {
		if given[name] != nil {
			in, out = 100_000, 200_000
		}
	}
	for _, name := range s.fees {
		if given[name] != nil {
			fees = searchFee
		}
	}
	return input*in + output*out + fees
}

// responds returns 1 for a request to Responses, which has one name for its limit.
func (s *server) responds(given map[string]json.RawMessage) int {
	if given["input"] != nil {
		return 1
	}
	return 0
}

// read decodes an object as the server does, without nulls.
func (s *server) read(given map[string]json.RawMessage, body []byte) {
	var doc map[string]json.RawMessage
	if json.Unmarshal(body, &doc) != nil {
		return
	}
	for name, value := range doc {
		if s.lax {
			name = strings.ToLower(name)
		}
		if string(value) != "null" {
			given[name] = value
		}
	}
	for _, name := range s.bodies {
		if inner := given[name]; inner != nil {
			delete(given, name)
			s.read(given, inner)
		}
	}
}

// asked are members that a request may have, drawn at random.
var asked = []string{
	`"max_tokens":%d`, `"max_completion_tokens":%d`, `"max_output_tokens":%d`, `"n_predict":%d`, `"n":2`, `"max_tokens":null`,
	`"extra_body":{"max_tokens":900}`, `"extra_body":{"models":["dear"],"fallbacks":["dear"]}`, `"Max_Tokens":900`, `"MODELS":["dear"]`,
	`"models":["dear"]`, `"route":"fallback"`, `"fallbacks":["dear"]`, `"provider":{"order":["x"]}`, `"preset":"x"`, `"model_list":[]`,
	`"plugins":[{"id":"web"}]`, `"web_search_options":{}`, `"enable_search":true`, `"search_options":{}`, `"search_parameters":{"mode":"on"}`,
	`"data_sources":[]`, `"google":{"cached_content":"x"}`, `"tools":[{"type":"web_search"}]`, `"tools":[{"google_search":{}}]`,
	`"modalities":["text","image"]`, `"modalities":["text","audio"]`, `"stream":true`, `"temperature":0.5`, `"top_k":40`,
	`"guided_json":{"type":"object"}`, `"thinking":{"type":"enabled"}`, `"safe_prompt":true`, `"reasoning_effort":"low"`, `"x%d":1`,
}

// FuzzBill checks, for any request to a provider of any kind, that what is held covers the
// most the provider may bill, and that what is charged covers what its answer bills, in tokens and,
// if that is known to be in USD, as a cost.
func FuzzBill(f *testing.F) {
	for seed := range uint64(400) {
		f.Add(seed)
	}
	r := newRig(f)
	own, err := pricing.ParseEntries([]byte(bills))
	if err != nil {
		f.Fatal(err)
	}
	catalogue, err := pricing.New("", own)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		dice := rand.New(rand.NewPCG(seed, 1))
		for i := range servers {
			s := &servers[i]
			policy := *r.guard.Policy()
			policy.Catalogue, policy.Providers = catalogue, s.set(t)
			r.guard.SetPolicy(&policy)
			s.try(t, r, dice)
		}
	})
}

func (s *server) set(t *testing.T) *providers.Set {
	t.Helper()
	p := &providers.Provider{
		ID: s.name, Dialect: s.kind, BaseURL: &url.URL{Scheme: "https", Host: s.host, Path: "/v1"},
		Pools: []providers.Pool{{ID: s.name}},
	}
	p.ChatOnly = s.kind != nil && !slices.Contains(s.kind.Wires(p.BaseURL), wire.Responses)
	if s.usd {
		p.ReportedCost = providers.ChargeCost
	}
	set, err := providers.NewSet([]*providers.Provider{p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	return set
}

// try makes one random request and compares the bill with the hold and the charge.
func (s *server) try(t *testing.T, r *rig, dice *rand.Rand) {
	t.Helper()
	ep, body := wire.ChatCompletions, `{"model":"m","messages":[{"role":"user","content":"a few words"}]`
	if dice.IntN(4) == 0 {
		ep, body = wire.Responses, `{"model":"m","input":"a few words"`
	}
	for range dice.IntN(4) {
		member := asked[dice.IntN(len(asked))]
		if strings.Contains(member, "%d") {
			member = fmt.Sprintf(member, 1+dice.IntN(50))
		}
		body += "," + member
	}
	req, err := wire.Scan(ep, []byte(body+"}"), wire.Limits{})
	if err != nil {
		return // refused
	}
	p, err := r.guard.Plans.Prepare(r.caller(), req)
	if err != nil {
		return
	}
	sent := p.sent.Rewrite(p.edits...).Bytes()
	bill := s.bill(sent, p.Input)
	if int64(p.Max.Cost) < bill {
		t.Fatalf("%s: %s is sent as %s: %v is held, and %v may be billed", s.name, body, sent, p.Max.Cost, pricing.Nano(bill))
	}
	model, in, out := "m", int64(1000), int64(2000)
	if dice.IntN(3) == 0 {
		model, in, out = "dear", 100_000, 200_000
	}
	tokens := int64(1 + dice.IntN(2000))
	bill = p.Input*in + tokens*out
	cost := ""
	if dice.IntN(2) == 0 {
		reported := max(bill, int64(dice.IntN(1_000_000_000)))
		cost = fmt.Sprintf(`,"cost":%d.%09d`, reported/1e9, reported%1e9)
		if p.Target.Provider.ReportsUSD() {
			bill = reported
		}
	}
	counts := fmt.Sprintf(`"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d`, p.Input, tokens, p.Input+tokens)
	answer := fmt.Sprintf(`{"id":"1","model":%q,"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{%s%s}}`, model, counts, cost)
	c := newCall(r.guard, p, "call", 0)
	c.holds(&budget.Hold{Max: p.First}, p.start)
	(&upstreamCall{call: c, upstream: t.Context()}).settlePlain([]byte(answer))
	if int64(c.Result.Cost) < bill {
		t.Fatalf("%s: %s is answered %s: %v is charged, and %v is billed", s.name, body, answer, c.Result.Cost, pricing.Nano(bill))
	}
}
