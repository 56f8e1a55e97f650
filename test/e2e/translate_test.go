package e2e

import (
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/pricing"
)

// chatOnly makes the provider of a configuration support chat completions only.
func chatOnly(config string) string {
	return strings.Replace(config, `api_key: "${provider_key}"`, `api_key: "${provider_key}", responses: translate`, 1)
}

// translatedTest is a response of alice's, and what its tests need.
type translatedTest struct {
	s               *stack
	p               *process
	alice, bob, eve string // API keys
	first           reply
	id              string // of the first response
	message, said   string // id and text of its output
}

// TestTranslated uses Responses with a provider that supports only chat completions, and
// compares the charges with the usage that the provider counted.
func TestTranslated(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{KeepBodies: true}, "queue: {seal_keys: [{id: k1, secret: a-secret-of-16-characters}]}\n"+chatOnly(twoOrgs))
	c := &translatedTest{s: s, p: s.proxy(), alice: s.keys["alice"], bob: s.keys["bob"], eve: s.keys["eve"]}
	c.begin(t)
	t.Run("goes on", c.goesOn)
	t.Run("stream", c.stream)
	t.Run("a stream that breaks off ends in the next event", c.brokenStream)
	t.Run("kept", c.kept)
	t.Run("not kept", c.notKept)
	t.Run("refused", c.refused)
	var sum pricing.Nano
	for _, e := range s.settled("acme", 8) {
		if !e.Estimated { // expected for the stream that broke off
			sum += e.Cost
		}
		if e.Overrun != 0 || e.Call.Endpoint != "responses" {
			t.Errorf("overran, or is no response: %+v", e)
		}
	}
	if want := bill(t, s.fake.Log()); sum != want {
		t.Errorf("charged %v, the provider counts %v", sum, want)
	}
}

// begin creates the first response.
func (c *translatedTest) begin(t *testing.T) {
	t.Helper()
	first := c.create(c.alice, `"instructions":"Be kind","input":"The secret word is marmalade [fake: output=20]"`)
	id, _ := first.get(t, "id").(string)
	if first.status != 200 || !strings.HasPrefix(id, "resp_") || first.get(t, "status") != "completed" ||
		first.get(t, "usage.output_tokens") != 20.0 || first.header.Get("X-Llmguard-Cost-Usd") == "" {
		t.Fatalf("%+v", first)
	}
	message := first.get(t, "output").([]any)[0].(map[string]any)
	said := message["content"].([]any)[0].(map[string]any)["text"].(string)
	if body := c.sent(); !strings.Contains(body, `"messages":[{"role":"system","content":"Be kind"},{"role":"user"`) ||
		!strings.Contains(body, `"max_tokens":100`) || strings.Contains(body, "input") {
		t.Errorf("sent %s", body)
	}
	c.first, c.id = first, id
	c.message, c.said = message["id"].(string), said
}

// create creates a response with these members.
func (c *translatedTest) create(key, more string) reply {
	c.s.t.Helper()
	return c.p.do(key, "POST", "/responses", `{"model":"gpt-4o-mini","max_output_tokens":100,`+more+`}`)
}

// sent returns the body of the last request to the provider.
func (c *translatedTest) sent() string {
	log := c.s.fake.Log()
	return string(log[len(log)-1].Body)
}

func (c *translatedTest) goesOn(t *testing.T) {
	second := c.create(c.alice, `"input":"again","previous_response_id":"`+c.id+`"`)
	if second.status != 200 || second.get(t, "previous_response_id") != c.id {
		t.Fatalf("%+v", second)
	}
	third := c.create(c.alice, `"input":[{"type":"message","role":"user","content":"and again"}],"previous_response_id":"`+second.get(t, "id").(string)+`"`)
	body := c.sent()
	if third.status != 200 || strings.Contains(body, "Be kind") || strings.Contains(body, "previous_response_id") {
		t.Errorf("%+v; sent %s", third, body)
	}
	at := 0
	for _, part := range []string{"marmalade", c.said, `"again"`, "and again"} { // the whole conversation, in order
		n := strings.Index(body[at:], part)
		if n < 0 {
			t.Fatalf("%q is not sent, or not in its place: %s", part, body)
		}
		at += n
	}
	r := c.create(c.alice, `"input":[{"type":"item_reference","id":"`+c.message+`"},{"role":"user","content":"so?"}]`)
	if r.status != 200 || !strings.Contains(c.sent(), c.said) {
		t.Errorf("%+v; sent %s", r, c.sent())
	}
}

func (c *translatedTest) stream(t *testing.T) {
	r := c.create(c.alice, `"input":"[fake: output=300]","stream":true`)
	list := events(r)
	for i, data := range list {
		if (reply{body: data}).get(t, "sequence_number") != float64(i) {
			t.Errorf("event %d: %s", i, data)
		}
	}
	last := reply{body: list[len(list)-1]}
	if !strings.HasPrefix(r.body, "event: response.created\n") || last.get(t, "type") != "response.incomplete" || last.get(t, "response.incomplete_details.reason") != "max_output_tokens" {
		t.Errorf("%s", r.body)
	}
	again := c.create(c.alice, `"input":"x","previous_response_id":"`+last.get(t, "response.id").(string)+`"`)
	if again.status != 200 {
		t.Errorf("%+v", again)
	}
}

func (c *translatedTest) brokenStream(t *testing.T) {
	list := events(c.create(c.bob, `"input":"[fake: output=50 cut=eof]","stream":true`))
	last := reply{body: list[len(list)-1]}
	if last.get(t, "type") != "error" || last.get(t, "sequence_number") != float64(len(list)-1) || len(list) < 5 {
		t.Errorf("%d events, the last %+v", len(list), last)
	}
}

func (c *translatedTest) kept(t *testing.T) {
	if r := c.p.do(c.alice, "GET", "/responses/"+c.id, ""); r.status != 200 || r.body != c.first.body {
		t.Errorf("%+v", r)
	}
	if r := c.p.do(c.alice, "GET", "/responses/"+c.id+"/input_items", ""); r.status != 200 || len(r.get(t, "data").([]any)) != 1 || !strings.Contains(r.body, "marmalade") {
		t.Errorf("%+v", r)
	}
	if r := c.p.do(c.alice, "POST", "/responses/"+c.id+"/cancel", ""); r.status != 400 {
		t.Errorf("%+v", r)
	}
	for _, key := range []string{c.bob, c.eve} {
		for _, call := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"POST", "/cancel"}, {"GET", "/input_items"}} {
			if r := c.p.do(key, call[0], "/responses/"+c.id+call[1], ""); r.status != 404 {
				t.Errorf("%v: %+v", call, r)
			}
		}
	}
	if r := c.create(c.eve, `"input":"x","previous_response_id":"`+c.id+`"`); r.status != 404 {
		t.Errorf("%+v", r)
	}
	kept, err := c.s.redis.Client().Get(t.Context(), "lg:{acme}:response:"+c.id).Result()
	if err != nil || strings.Contains(kept, "marmalade") {
		t.Errorf("what was c.said stands in Redis in the clear, or not at all: %v %q", err, kept)
	}
	if r := c.p.do(c.alice, "DELETE", "/responses/"+c.id, ""); r.status != 200 || r.get(t, "deleted") != true {
		t.Errorf("%+v", r)
	}
	for _, r := range []reply{c.p.do(c.alice, "GET", "/responses/"+c.id, ""), c.create(c.alice, `"input":"x","previous_response_id":"`+c.id+`"`)} {
		if r.status != 404 {
			t.Errorf("%+v", r)
		}
	}
}

func (c *translatedTest) notKept(t *testing.T) {
	r := c.create(c.alice, `"input":"x","store":false`)
	if r.status != 200 || c.p.do(c.alice, "GET", "/responses/"+r.get(t, "id").(string), "").status != 404 {
		t.Errorf("%+v", r)
	}
}

func (c *translatedTest) refused(t *testing.T) {
	before := c.s.fake.Totals().Requests
	if r := c.create(c.alice, `"input":"x","tools":[{"type":"web_search"}]`); r.status != 400 || r.get(t, "error.param") != "tools[0].type" {
		t.Errorf("%+v", r)
	}
	if r := c.p.do(c.alice, "POST", "/responses/compact", `{"model":"gpt-4o-mini","input":"x"}`); r.status != 400 || r.get(t, "error.code") != "unsupported_endpoint" {
		t.Errorf("%+v", r)
	}
	if c.s.fake.Totals().Requests != before {
		t.Error("the provider was asked")
	}
}
