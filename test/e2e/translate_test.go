package e2e

import (
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/pricing"
)

// chatOnly makes the provider of a configuration one that speaks chat
// completions only.
func chatOnly(config string) string {
	return strings.Replace(config, `api_key: "${provider_key}"`, `api_key: "${provider_key}", responses: translate`, 1)
}

// TestTranslated goes through Responses at a provider of chat completions, and
// compares what was charged with what the provider counted.
func TestTranslated(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{KeepBodies: true}, "queue: {seal_keys: [{id: k1, secret: a-secret-of-16-characters}]}\n"+chatOnly(twoOrgs))
	p := s.proxy()
	alice, bob, eve := s.keys["alice"], s.keys["bob"], s.keys["eve"]
	create := func(key, more string) reply {
		t.Helper()
		return p.do(key, "POST", "/responses", `{"model":"gpt-4o-mini","max_output_tokens":100,`+more+`}`)
	}
	sent := func() string { log := s.fake.Log(); return string(log[len(log)-1].Body) }

	first := create(alice, `"instructions":"Be kind","input":"The secret word is marmalade [fake: output=20]"`)
	id, _ := first.get(t, "id").(string)
	if first.status != 200 || !strings.HasPrefix(id, "resp_") || first.get(t, "status") != "completed" || first.get(t, "usage.output_tokens") != 20.0 || first.header.Get("X-Llmguard-Cost-Usd") == "" {
		t.Fatalf("%+v", first)
	}
	message := first.get(t, "output").([]any)[0].(map[string]any)
	said := message["content"].([]any)[0].(map[string]any)["text"].(string)
	if body := sent(); !strings.Contains(body, `"messages":[{"role":"system","content":"Be kind"},{"role":"user"`) || !strings.Contains(body, `"max_tokens":100`) || strings.Contains(body, "input") {
		t.Errorf("sent %s", body)
	}
	t.Run("goes on", func(t *testing.T) {
		second := create(alice, `"input":"again","previous_response_id":"`+id+`"`)
		if second.status != 200 || second.get(t, "previous_response_id") != id {
			t.Fatalf("%+v", second)
		}
		third := create(alice, `"input":[{"type":"message","role":"user","content":"and again"}],"previous_response_id":"`+second.get(t, "id").(string)+`"`)
		body := sent()
		if third.status != 200 || strings.Contains(body, "Be kind") || strings.Contains(body, "previous_response_id") {
			t.Errorf("%+v; sent %s", third, body)
		}
		at := 0
		for _, part := range []string{"marmalade", said, `"again"`, "and again"} { // the whole conversation, in order
			n := strings.Index(body[at:], part)
			if n < 0 {
				t.Fatalf("%q is not sent, or not in its place: %s", part, body)
			}
			at += n
		}
		r := create(alice, `"input":[{"type":"item_reference","id":"`+message["id"].(string)+`"},{"role":"user","content":"so?"}]`)
		if r.status != 200 || !strings.Contains(sent(), said) {
			t.Errorf("%+v; sent %s", r, sent())
		}
	})
	t.Run("stream", func(t *testing.T) {
		r := create(alice, `"input":"[fake: output=300]","stream":true`)
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
		again := create(alice, `"input":"x","previous_response_id":"`+last.get(t, "response.id").(string)+`"`)
		if again.status != 200 {
			t.Errorf("%+v", again)
		}
	})
	t.Run("a stream that breaks off ends in the next event", func(t *testing.T) {
		list := events(create(bob, `"input":"[fake: output=50 cut=eof]","stream":true`))
		last := reply{body: list[len(list)-1]}
		if last.get(t, "type") != "error" || last.get(t, "sequence_number") != float64(len(list)-1) || len(list) < 5 {
			t.Errorf("%d events, the last %+v", len(list), last)
		}
	})
	t.Run("kept", func(t *testing.T) {
		if r := p.do(alice, "GET", "/responses/"+id, ""); r.status != 200 || r.body != first.body {
			t.Errorf("%+v", r)
		}
		if r := p.do(alice, "GET", "/responses/"+id+"/input_items", ""); r.status != 200 || len(r.get(t, "data").([]any)) != 1 || !strings.Contains(r.body, "marmalade") {
			t.Errorf("%+v", r)
		}
		if r := p.do(alice, "POST", "/responses/"+id+"/cancel", ""); r.status != 400 {
			t.Errorf("%+v", r)
		}
		for _, key := range []string{bob, eve} {
			for _, call := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"POST", "/cancel"}, {"GET", "/input_items"}} {
				if r := p.do(key, call[0], "/responses/"+id+call[1], ""); r.status != 404 {
					t.Errorf("%v: %+v", call, r)
				}
			}
		}
		if r := create(eve, `"input":"x","previous_response_id":"`+id+`"`); r.status != 404 {
			t.Errorf("%+v", r)
		}
		kept, err := s.redis.Client().Get(t.Context(), "lg:{acme}:response:"+id).Result()
		if err != nil || strings.Contains(kept, "marmalade") {
			t.Errorf("what was said stands in Redis in the clear, or not at all: %v %q", err, kept)
		}
		if r := p.do(alice, "DELETE", "/responses/"+id, ""); r.status != 200 || r.get(t, "deleted") != true {
			t.Errorf("%+v", r)
		}
		for _, r := range []reply{p.do(alice, "GET", "/responses/"+id, ""), create(alice, `"input":"x","previous_response_id":"`+id+`"`)} {
			if r.status != 404 {
				t.Errorf("%+v", r)
			}
		}
	})
	t.Run("not kept", func(t *testing.T) {
		r := create(alice, `"input":"x","store":false`)
		if r.status != 200 || p.do(alice, "GET", "/responses/"+r.get(t, "id").(string), "").status != 404 {
			t.Errorf("%+v", r)
		}
	})
	t.Run("refused", func(t *testing.T) {
		before := s.fake.Totals().Requests
		if r := create(alice, `"input":"x","tools":[{"type":"web_search"}]`); r.status != 400 || r.get(t, "error.param") != "tools[0].type" {
			t.Errorf("%+v", r)
		}
		if r := p.do(alice, "POST", "/responses/compact", `{"model":"gpt-4o-mini","input":"x"}`); r.status != 400 || r.get(t, "error.code") != "unsupported_endpoint" {
			t.Errorf("%+v", r)
		}
		if s.fake.Totals().Requests != before {
			t.Error("the provider was asked")
		}
	})
	var sum pricing.Nano
	for _, e := range s.settled("acme", 8) {
		if !e.Estimated { // as that of the stream that broke off is
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
