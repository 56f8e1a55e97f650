package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/pricing"
)

// reply is a completely read response.
type reply struct {
	status int
	header http.Header
	body   string
}

// do sends one request and reads the response.
func (p *process) do(key, method, path, body string) reply {
	p.t.Helper()
	req, err := http.NewRequest(method, p.URL+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

// get returns a member of a JSON response; "a.b" is b in a.
func (r reply) get(t *testing.T, path string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	for name := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// responsesTest is a response of alice's, and what its tests need.
type responsesTest struct {
	s               *stack
	p               *process
	alice, bob, eve string // API keys
	first           reply
	id, item        string // of the first response and of its output
}

// TestResponses uses every endpoint of Responses, and compares the charges with the usage that
// the provider counted.
func TestResponses(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, twoOrgs)
	p := s.proxy()
	alice, bob, eve := s.keys["alice"], s.keys["bob"], s.keys["eve"]

	first := p.do(alice, "POST", "/responses", `{"model":"gpt-4o-mini","input":"[fake: output=20]","max_output_tokens":100}`)
	id, _ := first.get(t, "id").(string)
	if first.status != 200 || id == "" || first.get(t, "usage.output_tokens") != 20.0 || first.header.Get("X-Llmguard-Cost-Usd") == "" {
		t.Fatalf("%+v", first)
	}
	item := first.get(t, "output").([]any)[0].(map[string]any)["id"].(string)

	c := &responsesTest{s: s, p: p, alice: alice, bob: bob, eve: eve, first: first, id: id, item: item}
	t.Run("stream", c.stream)
	t.Run("goes on", c.goesOn)
	t.Run("free", c.free)
	t.Run("compact", c.compact)
	t.Run("older completions", c.older)
	t.Run("foreign", c.foreign)
	t.Run("kept", c.kept)
	var sum pricing.Nano
	for _, e := range s.settled("acme", 9) {
		sum += e.Cost
		if e.Estimated || e.Overrun != 0 {
			t.Errorf("estimated or overran: %+v", e)
		}
	}
	if want := bill(t, s.fake.Log()); sum != want {
		t.Errorf("charged %v, the provider counts %v", sum, want)
	}
}

func (c *responsesTest) stream(t *testing.T) {
	r := c.p.do(c.alice, "POST", "/responses", `{"model":"gpt-4o-mini","input":"[fake: output=80]","max_output_tokens":50,"stream":true}`)
	if !strings.HasPrefix(r.body, "event: response.created\n") || !strings.Contains(r.body, `"type":"response.incomplete"`) {
		t.Errorf("%s", r.body)
	}
}

func (c *responsesTest) goesOn(t *testing.T) {
	r := c.p.do(c.alice, "POST", "/responses", `{"model":"gpt-4o-mini","input":"more","max_output_tokens":50,"previous_response_id":"`+c.id+`"}`)
	if in, _ := r.get(t, "usage.input_tokens").(float64); r.status != 200 || in < 20 {
		t.Errorf("%+v", r)
	}
	r = c.p.do(c.alice, "POST", "/responses", `{"model":"gpt-4o-mini","max_output_tokens":50,"input":[{"type":"item_reference","id":"`+c.item+`"},{"role":"user","content":"more"}]}`)
	if r.status != 200 {
		t.Errorf("%+v", r)
	}
}

func (c *responsesTest) free(t *testing.T) {
	r := c.p.do(c.alice, "POST", "/responses/input_tokens", `{"model":"gpt-4o-mini","input":"hello"}`)
	if r.status != 200 || r.header.Get("X-Llmguard-Cost-Usd") != "0.000000000" || r.get(t, "object") != "response.input_tokens" {
		t.Errorf("%+v", r)
	}
	r = c.p.do(c.alice, "POST", "/moderations", `{"input":["hello","kill"]}`)
	if r.status != 200 || r.header.Get("X-Llmguard-Cost-Usd") != "0.000000000" || !bytes.Contains([]byte(r.body), []byte(`"flagged":true`)) {
		t.Errorf("%+v", r)
	}
}

func (c *responsesTest) compact(t *testing.T) {
	r := c.p.do(c.alice, "POST", "/responses/compact", `{"model":"gpt-4o-mini","input":"`+strings.Repeat("hello ", 100)+`"}`)
	if r.status != 200 || r.get(t, "object") != "response.compaction" || r.header.Get("X-Llmguard-Estimated") != "" {
		t.Errorf("%+v", r)
	}
}

func (c *responsesTest) older(t *testing.T) {
	r := c.p.do(c.alice, "POST", "/completions", `{"model":"gpt-4o-mini","prompt":["a b","c d"],"n":2,"best_of":3,"max_tokens":10}`)
	if r.status != 200 || len(r.get(t, "choices").([]any)) != 4 {
		t.Errorf("%+v", r)
	}
	r = c.p.do(c.alice, "POST", "/completions", `{"model":"gpt-4o-mini","prompt":"a b","stream":true}`)
	if r.status != 200 || strings.Contains(r.body, `"choices":[]`) || !strings.Contains(r.body, "[DONE]") {
		t.Errorf("%+v", r)
	}
}

func (c *responsesTest) foreign(t *testing.T) {
	for _, body := range []string{
		`{"model":"gpt-4o-mini","input":"x","max_output_tokens":50,"previous_response_id":"` + c.id + `"}`,
		`{"model":"gpt-4o-mini","max_output_tokens":50,"input":[{"id":"` + c.item + `"}]}`,
		`{"model":"gpt-4o-mini","input":"x","max_output_tokens":50,"conversation":"conv_1"}`,
		`{"model":"gpt-4o-mini","prompt":{"id":"pmpt_1"},"max_output_tokens":50}`,
		`{"model":"gpt-4o-mini","max_output_tokens":50,"input":[{"role":"user","content":[{"type":"input_file","file_id":"file-1"}]}]}`,
	} {
		before := c.s.fake.Totals().Requests
		if r := c.p.do(c.eve, "POST", "/responses", body); r.status != 404 || c.s.fake.Totals().Requests != before {
			t.Errorf("%s: %+v", body, r)
		}
	}
}

func (c *responsesTest) kept(t *testing.T) {
	if r := c.p.do(c.alice, "GET", "/responses/"+c.id, ""); r.status != 200 || r.get(t, "id") != c.id || r.body != c.first.body {
		t.Errorf("%+v", r)
	}
	if r := c.p.do(c.alice, "GET", "/responses/"+c.id+"/input_items", ""); r.status != 200 || r.get(t, "object") != "list" {
		t.Errorf("%+v", r)
	}
	if r := c.p.do(c.alice, "POST", "/responses/"+c.id+"/cancel", ""); r.status != 400 {
		t.Errorf("%+v", r)
	}
	before := c.s.fake.Totals().Requests
	for _, key := range []string{c.bob, c.eve} {
		for _, call := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"POST", "/cancel"}, {"GET", "/input_items"}} {
			mine := c.p.do(key, call[0], "/responses/"+c.id+call[1], "")
			none := c.p.do(key, call[0], "/responses/"+strings.Repeat("x", len(c.id))+call[1], "")
			same := strings.ReplaceAll(mine.body, c.id, strings.Repeat("x", len(c.id))) == none.body
			if mine.status != 404 || none.status != 404 || !same || c.s.fake.Totals().Requests != before {
				t.Errorf("%v: %+v, of nobody's %+v", call, mine, none)
			}
		}
	}
	if r := c.p.do(c.alice, "DELETE", "/responses/"+c.id, ""); r.status != 200 || r.get(t, "deleted") != true {
		t.Errorf("%+v", r)
	}
	if r := c.p.do(c.alice, "GET", "/responses/"+c.id, ""); r.status != 404 {
		t.Errorf("%+v", r)
	}
}

// twoOrgs has alice and bob in one org and eve in another.
const twoOrgs = `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    limits: [{name: w, amount: $100, window: 1h}]
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
      - {id: bob, keys: [{id: k2, hash: "${key:bob}"}]}
  - id: other
    limits: [{name: w, amount: $100, window: 1h}]
    users: [{id: eve, keys: [{id: k3, hash: "${key:eve}"}]}]
`
