package guard

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/providers/azure"
	"github.com/llmguard/llmguard/providers/gemini"
	"github.com/llmguard/llmguard/providers/mistral"
)

// vendor is a provider that gives one recorded answer and keeps the request it received.
type vendor struct {
	status int
	header http.Header
	kind   string
	body   string

	path, query, sent string
	got               http.Header
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	v.path, v.query, v.sent, v.got = r.URL.Path, r.URL.RawQuery, string(body), r.Header
	for name, values := range v.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", v.kind)
	w.WriteHeader(v.status)
	_, _ = io.WriteString(w, v.body)
}

// vendorRig returns a rig that calls a vendor.
func vendorRig(t *testing.T, v *vendor, change func(*providers.Provider)) *rig {
	t.Helper()
	r := newRig(t, roomy()...)
	r.vendor(t, v, change)
	return r
}

// vendor makes a rig call a vendor until the test ends, at a price of 1 and 2 USD per
// million.
func (r *rig) vendor(t *testing.T, v *vendor, change func(*providers.Provider)) {
	t.Helper()
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL + "/v1")
	if err != nil {
		t.Fatal(err)
	}
	p := &providers.Provider{ID: "vendor", BaseURL: base, APIKey: "sk-vendor", Pools: []providers.Pool{{ID: "vendor"}}, ReportedCost: providers.ChargeCost}
	if change != nil {
		change(p)
	}
	set, err := providers.NewSet([]*providers.Provider{p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	policy := *r.guard.Policy()
	policy.Providers = set
	r.guard.SetPolicy(&policy)
	r.prices(t, `[{model: m, prices: [{input: 1, cached_input: 0.1, output: 2}], max_output: 1000}]`)
}

// prices replaces a rig's prices.
func (r *rig) prices(t *testing.T, entries string) {
	t.Helper()
	own, err := pricing.ParseEntries([]byte(entries))
	if err != nil {
		t.Fatal(err)
	}
	policy := *r.guard.Policy()
	if policy.Catalogue, err = pricing.New("", own); err != nil {
		t.Fatal(err)
	}
	r.guard.SetPolicy(&policy)
}

func events(data ...string) string {
	return "data: " + strings.Join(data, "\n\ndata: ") + "\n\ndata: [DONE]\n\n"
}

// TestVendorUsage bills answers in the forms known from vendors.
func TestVendorUsage(t *testing.T) {
	r := newRig(t, roomy()...)
	const choice = `"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]`
	const delta = `"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]`
	const last = `"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]`
	for _, x := range []struct {
		name, body string
		stream     bool
		in, cached int64
		out        int64
		told       pricing.Nano // the cost that the answer reports, if that is higher
	}{
		{"azure: filters beside the choices", `{"id":"1","model":"m",` + choice + `,"prompt_filter_results":[{"prompt_index":0}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`, false, 9, 0, 3, 0},
		{"azure: first event without a choice", events(`{"choices":[],"prompt_filter_results":[{}],"model":""}`, `{"model":"m",`+delta+`}`, `{"model":"m",`+last+`}`, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`), true, 9, 0, 3, 0},
		{"gemini: thoughts are in the total alone", `{"model":"m",` + choice + `,"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":112}}`, false, 9, 0, 103, 0},
		{"gemini: usage in every event", events(`{"model":"m",`+delta+`,"usage":{"prompt_tokens":9,"completion_tokens":1,"total_tokens":10}}`, `{"model":"m",`+last+`,"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`), true, 9, 0, 3, 0},
		{"groq: times in the usage", `{"model":"m",` + choice + `,"usage":{"queue_time":0.03,"prompt_tokens":9,"prompt_time":0.001,"completion_tokens":3,"completion_time":0.2,"total_tokens":12,"total_time":0.3},"x_groq":{"id":"req_1"}}`, false, 9, 0, 3, 0},
		{"groq: usage of its own as well", events(`{"model":"m",`+delta+`,"x_groq":{"id":"req_1"}}`, `{"model":"m",`+last+`,"x_groq":{"id":"req_1","usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}}`, `{"model":"m","choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`), true, 9, 0, 3, 0},
		{"deepseek: its own names for the cache", `{"model":"m",` + choice + `,"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":1,"completion_tokens_details":{"reasoning_tokens":1}}}`, false, 9, 8, 3, 0},
		{"deepseek: blank lines while it queues", "\n\n\n" + `{"model":"m",` + choice + `,"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`, false, 9, 0, 3, 0},
		{"deepseek: comments while it queues", ": keep-alive\n\n: keep-alive\n\n" + events(`{"model":"m",`+delta+`,"usage":null}`, `{"model":"m",`+last+`,"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`), true, 9, 0, 3, 0},
		{"openrouter: comments, and a cost", ": OPENROUTER PROCESSING\n\n" + events(`{"model":"m","provider":"P",`+delta+`}`, `{"model":"m",`+last+`,"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"cost":0.95,"is_byok":false,"prompt_tokens_details":{"cached_tokens":0}}}`), true, 9, 0, 3, 950_000_000},
		{"mistral: usage unasked in the last event", events(`{"model":"m",`+delta+`}`, `{"model":"m",`+last+`,"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}`), true, 9, 0, 3, 0},
		{"vllm: details that are null", `{"model":"m",` + choice + `,"prompt_logprobs":null,"kv_transfer_params":null,"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"prompt_tokens_details":null}}`, false, 9, 0, 3, 0},
		{"together: the prompt is echoed", `{"id":"o1","prompt":[],"model":"m",` + choice + `,"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"cached_tokens":4}}`, false, 9, 4, 3, 0},
		{"ollama: no total", `{"model":"m","system_fingerprint":"fp_ollama",` + choice + `,"usage":{"prompt_tokens":9,"completion_tokens":3}}`, false, 9, 0, 3, 0},
		{"perplexity: what each part costs", `{"model":"m",` + choice + `,"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"cost":{"request_cost":0.005,"total_cost":0.0050001}}}`, false, 9, 0, 3, 5_000_100},
		{"deepinfra: an estimate", `{"model":"m",` + choice + `,"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"estimated_cost":1.5e-05}}`, false, 9, 0, 3, 15_000},
		{"xai: ticks", `{"model":"m",` + choice + `,"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"cost_in_usd_ticks":250000001}}`, false, 9, 0, 3, 25_000_001},
	} {
		t.Run(x.name, func(t *testing.T) {
			v := &vendor{status: 200, kind: "application/json", body: x.body}
			extra := ""
			if x.stream {
				v.kind, extra = "text/event-stream", `"stream":true`
			}
			r.vendor(t, v, func(p *providers.Provider) {
				if strings.HasPrefix(x.name, "gemini") {
					p.Dialect = gemini.Dialect{}
				}
			})
			c, _, err := r.run(t.Context(), prompt("m", "hello there", extra))
			if err != nil {
				t.Fatal(err)
			}
			u, want := c.Result.Usage, max(x.told, pricing.Nano((x.in-x.cached)*1000+x.cached*100+x.out*2000))
			if c.Result.Outcome != Completed || u.Input != x.in || u.CachedInput != x.cached || u.Output != x.out || c.Result.Cost != want {
				t.Errorf("%s, %+v, cost %d, fault %q; want cost %d", c.Result.Outcome, u, c.Result.Cost, c.Result.Fault, want)
			}
		})
	}
}

// TestVendorUsageTranslated: callers of other APIs are shown the usage that is billed, in every form of vendors.
func TestVendorUsageTranslated(t *testing.T) {
	r := newRig(t, roomy()...)
	const whole = `"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]`
	const delta = `"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]`
	for name, usage := range map[string]string{
		"openai": `"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":2,"x":7}}`,
		"gemini": `"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":112}`,
		"native": `"usage":{"input_tokens":9,"output_tokens":3,"x":7}`,
		"groq":   `"x_groq":{"id":"req_1","usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`,
		"llama":  `"timings":{"cache_n":2,"prompt_n":7,"predicted_n":3}`,
	} {
		for _, ep := range []wire.Endpoint{wire.Messages, wire.Responses} {
			for _, stream := range []bool{false, true} {
				v := &vendor{status: 200, kind: "application/json", body: `{"id":"1","model":"m",` + whole + `,` + usage + `}`}
				if stream {
					v.kind, v.body = "text/event-stream", events(`{"id":"1","model":"m",`+delta+`}`, `{"id":"1","model":"m","choices":[],`+usage+`}`)
				}
				r.vendor(t, v, func(p *providers.Provider) {
					p.ChatOnly = true
					if name == "gemini" {
						p.Dialect = gemini.Dialect{}
					}
				})
				c, w := r.asked(t, ep, stream)
				got, billed := shownUsage(ep, w.Body.Bytes()), c.Result.Usage
				if c.Result.Estimated || got.Input != billed.Input || got.Output != billed.Output || got.CachedInput != billed.CachedInput || got.Input != 9 {
					t.Errorf("%s, %s, stream %v: got %+v, want %+v as billed (%s)\n%s", name, ep, stream, got, billed, c.Result.Outcome, w.Body)
				}
				if keeps := strings.Contains(w.Body.String(), `"x":7`); keeps != (name == "native" || name == "openai" && ep == wire.Responses) {
					t.Errorf("%s, %s, stream %v: another member is shown: %v\n%s", name, ep, stream, keeps, w.Body)
				}
			}
		}
	}
}

// asked makes a call of the model m at an endpoint.
func (r *rig) asked(t *testing.T, ep wire.Endpoint, stream bool) (*Call, *httptest.ResponseRecorder) {
	t.Helper()
	members := map[wire.Endpoint]string{
		wire.Messages: `"max_tokens":200,"messages":[{"role":"user","content":"hello there"}]`, wire.Responses: `"store":false,"input":"hello there"`,
	}
	req, err := wire.Scan(ep, fmt.Appendf(nil, `{"model":"m","stream":%t,%s}`, stream, members[ep]), wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.guard.Plans.Prepare(r.caller(), req)
	if err != nil {
		t.Fatal(err)
	}
	c, w := r.begin(p), httptest.NewRecorder()
	err = c.Forward(t.Context(), w, Forwarding{})
	c.End(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c, w
}

// shownUsage returns the usage of an answer, whole or in the last event of its stream that has any.
func shownUsage(ep wire.Endpoint, body []byte) (used wire.Usage) {
	if a, ok := wire.ParseUsage(ep, body); ok {
		return a.Usage
	}
	var list wire.Events
	_ = list.Feed(body)
	var a wire.Answer
	for event, ok := list.Next(); ok; event, ok = list.Next() {
		chunk, err := wire.ScanEvent(ep, wire.EventData(event), nil)
		if err == nil && chunk.HasUsage {
			a = chunk.After(a)
		}
	}
	return a.Usage
}

// TestVendorErrors checks that an error in any form leaves in OpenAI's.
func TestVendorErrors(t *testing.T) {
	r := newRig(t, roomy()...)
	for _, x := range []struct {
		name    string
		status  int
		body    string
		message string
		code    string
	}{
		{"gemini's list", 400, `[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]`, "API key not valid.", "invalid_argument"},
		{"vllm, older", 404, `{"object":"error","message":"The model does not exist.","type":"NotFoundError","param":null,"code":404}`, "The model does not exist.", "upstream_error"},
		{"vllm, newer", 400, `{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}`, "too long", "upstream_error"},
		{"mistral's detail", 422, `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"]}]},"type":"invalid_request_error","param":null,"code":null}`, "extra_forbidden", "upstream_error"},
		{"a text as error", 400, `{"error":"model not found"}`, "model not found", "upstream_error"},
		{"fastapi", 422, `{"detail":"nope"}`, "nope", "upstream_error"},
		{"openrouter", 402, `{"error":{"message":"Insufficient credits","code":402},"user_id":"u"}`, "Insufficient credits", "upstream_error"},
		{"azure", 404, `{"error":{"code":"DeploymentNotFound","message":"The API deployment does not exist."}}`, "does not exist", "DeploymentNotFound"},
		{"a page", 400, `<html>no</html>`, "answered 400", "upstream_error"},
		{"nothing", 403, ``, "answered 403", "upstream_error"},
	} {
		t.Run(x.name, func(t *testing.T) {
			r.vendor(t, &vendor{status: x.status, kind: "application/json", body: x.body}, nil)
			c, _, err := r.run(t.Context(), prompt("m", "hello", ""))
			e, ok := err.(*wire.Error) //nolint:errorlint // it is returned as it is
			if !ok || e.Status != x.status || !strings.Contains(e.Message, x.message) || e.Code != x.code || c.Result.Outcome != Rejected {
				t.Errorf("%v, %+v", err, e)
			}
		})
	}
}

// TestVendorRequests checks where and how vendors want a request that OpenAI would accept.
func TestVendorRequests(t *testing.T) {
	r := newRig(t, roomy()...)
	const answer = `{"model":"m","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`
	root := func(p *providers.Provider) { u := *p.BaseURL; u.Path = ""; p.BaseURL = &u }
	limited := `"max_completion_tokens":7`
	for _, x := range []struct {
		name               string
		change             func(*providers.Provider)
		extra              string
		path, query        string
		auth, key, sent    string
		query0, mustNotSay string
	}{
		{"openai", func(p *providers.Provider) { p.LimitField = "max_completion_tokens" }, `"max_tokens":7`, "/v1/chat/completions", "after=b", "Bearer sk-vendor", "", limited, "after=b&a=b&api_key=c", ""},
		{"like openai", nil, limited, "/v1/chat/completions", "after=b", "Bearer sk-vendor", "", `"max_tokens":7`, "after=b", "max_completion_tokens"},
		{"azure, v1", func(p *providers.Provider) { root(p); p.Dialect = azure.Dialect{} }, limited, "/openai/v1/chat/completions", "after=b", "", "sk-vendor", limited, "api-version=9&after=b&a=b", ""},
		{"azure, deployments", func(p *providers.Provider) {
			root(p)
			p.Dialect, p.APIVersion, p.Deployments = azure.Dialect{}, "2024-10-21", map[string]string{"m": "our-m"}
		}, limited, "/openai/deployments/our-m/chat/completions", "api-version=2024-10-21&after=b", "", "sk-vendor", limited, "api-version=9&after=b&API-VERSION=9&api%2Dversion=9;a=b", ""},
		{"azure, by the model", func(p *providers.Provider) { root(p); p.Dialect, p.APIVersion = azure.Dialect{}, "preview" }, "", "/openai/deployments/m/chat/completions", "api-version=preview", "", "sk-vendor", "", "", ""},
		{"mistral", func(p *providers.Provider) { p.Dialect = mistral.Dialect{} }, limited + `,"stream_options":{"include_usage":true}`, "/v1/chat/completions", "", "Bearer sk-vendor", "", `"max_tokens":7`, "", "stream_options"},
		{"mistral, names", func(p *providers.Provider) { p.Dialect = mistral.Dialect{} }, limited, "/v1/chat/completions", "", "Bearer sk-vendor", "", `"max_tokens":7`, "", "max_completion_tokens"},
		{"no key", func(p *providers.Provider) { p.APIKey = "" }, "", "/v1/chat/completions", "", "", "", "", "", ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			v := &vendor{status: 200, kind: "application/json", body: answer}
			r.vendor(t, v, x.change)
			c, w := r.begin(r.plan(prompt("m", "hello", x.extra))), httptest.NewRecorder()
			err := c.Forward(t.Context(), w, Forwarding{Header: http.Header{}, Query: x.query0})
			c.End(t.Context())
			got := fmt.Sprint(v.path, " ", v.query, " ", v.got.Get("Authorization"), " ", v.got.Get("Api-Key"))
			if want := fmt.Sprint(x.path, " ", x.query, " ", x.auth, " ", x.key); err != nil || got != want {
				t.Errorf("%v: %q, want %q", err, got, want)
			}
			if !strings.Contains(v.sent, x.sent) || x.mustNotSay != "" && strings.Contains(v.sent, x.mustNotSay) {
				t.Errorf("sent %s", v.sent)
			}
		})
	}
}
