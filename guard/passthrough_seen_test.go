package guard

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/tokenizer"
)

// TestBrokenStreamCostsWhatCame checks that a broken stream is charged for at least what
// arrived, and for its hold if the time does not bound the bill.
func TestBrokenStreamCostsWhatCame(t *testing.T) {
	r := newRig(t, roomy()...)
	r.org.AllowBuiltinTools = true
	const held = 16_000 // a provider needs 26 s for that
	f := func(model, directive, extra string, least int64) {
		t.Helper()
		before := r.used()
		c, _, _ := r.run(t.Context(), prompt(model, "[fake: output=400 "+directive+"]", `"max_completion_tokens":16000,"stream":true`+extra))
		res := c.Result
		if res.Outcome != Broken || !res.Estimated || res.Cost > c.Plan.Max.Cost {
			t.Errorf("%s %s: %s costs %v of %v, estimated %v", model, directive, res.Outcome, res.Cost, c.Plan.Max.Cost, res.Estimated)
		}
		if whole := least == held; whole != (res.Cost == c.Plan.Max.Cost) || res.Usage.Output < least {
			t.Errorf("%s %s: %d tokens at %v charged, held %v; want at least %d", model, directive, res.Usage.Output, res.Cost, c.Plan.Max.Cost, least)
		}
		r.charged(before, c)
	}
	f("gpt-4o", "cut=reset after=300", "", 300)
	f("gpt-4o", "cut=eof after=300", "", 300)
	f("gpt-4o", "cut=abort after=300", "", 300)
	f("gpt-4o", "cut=reset early", "", 1) // nothing arrived
	f("gpt-4o", "cut=eof after=300", `,"web_search_options":{}`, held)
	f("gpt-5-mini", "cut=eof after=300", "", 1)
	f("gpt-4o", "cut=eof after=300", `,"reasoning_effort":"low"`, 1)
}

// TestAnswerWithoutUsageCostsItsText checks that a whole answer is charged by its text, or
// by its hold if the text does not bound the bill.
func TestAnswerWithoutUsageCostsItsText(t *testing.T) {
	r := newRig(t, roomy()...)
	const hello, args = "Hello there, how are you today?", `{\"place\":\"Oslo\",\"days\":3}`
	count := func(text string) int64 { return int64(tokenizer.Count(tokenizer.O200k, []byte(text))) }
	const held = -1
	f := func(model, body, extra string, least int64) {
		t.Helper()
		r.raw("application/json", body)
		before := r.used()
		c, w, err := r.run(t.Context(), prompt(model, "hi", `"max_completion_tokens":500`+extra))
		if err != nil || w.Body.String() != body {
			t.Fatalf("%q, %v", w.Body, err)
		}
		res := c.Result
		if res.Outcome != NoUsage || !res.Estimated {
			t.Errorf("%s: %s, estimated %v", body, res.Outcome, res.Estimated)
		}
		switch whole := res.Cost == c.Plan.Max.Cost; {
		case least == held && !whole:
			t.Errorf("%s: %v charged, want the hold of %v", body, res.Cost, c.Plan.Max.Cost)
		case least != held && (whole || res.Usage.Output < least || res.Usage.Output > least+25):
			t.Errorf("%s: %d tokens charged, want %d and little more", body, res.Usage.Output, least)
		}
		r.charged(before, c)
	}
	said := `{"message":{"role":"assistant","content":"` + hello + `"},"finish_reason":"stop"}`
	one := `{"choices":[` + said + `]}`
	f("gpt-4o", one, "", count(hello)+1)
	f("gpt-4o", `{"choices":[`+said+`,`+said+`]}`, `,"n":2`, 2*count(hello)+2)
	f("gpt-4o", `{"choices":[{"message":{"content":null,"tool_calls":[{"id":"c","function":{"name":"weather","arguments":"`+args+`"}}]}}]}`,
		"", count("weather")+count(`{"place":"Oslo","days":3}`)+tokenizer.ToolCallOverhead)
	f("gpt-4o", `{"choices":[{"message":{"content":"","refusal":"`+hello+`"}}]}`, "", count(hello)+1)
	f("gpt-4o", `{"choices":[`+said+`]}`, `,"n":2`, held) // one of two
	f("gpt-4o", `{"choices":[`+said+`],"usage":{"prompt_tokens":8,"completion_tokens":5,"total_tokens":400}}`, "", held)
	f("gpt-5-mini", one, "", held)
	f("gpt-4o", one, `,"reasoning_effort":"low"`, held)
}

// TestResponseWithoutUsageCostsItsText checks the same for Responses.
func TestResponseWithoutUsageCostsItsText(t *testing.T) {
	r := newRig(t, roomy()...)
	const body = `{"id":"resp_1","object":"response","status":"completed","model":"gpt-4o-2024-08-06","output":[` +
		`{"id":"m","type":"message","role":"assistant","content":[{"type":"output_text","text":"Hello there","annotations":[]}]},` +
		`{"id":"c","type":"function_call","call_id":"x","name":"weather","arguments":"{}"}]}`
	r.raw("application/json", body)
	req, err := wire.Scan(wire.Responses, []byte(`{"model":"gpt-4o","input":"hi","max_output_tokens":500,"store":false}`), wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.guard.Plans.Prepare(r.caller(), req)
	if err != nil {
		t.Fatal(err)
	}
	c := r.begin(p)
	if err := c.Forward(t.Context(), httptest.NewRecorder(), Forwarding{Header: http.Header{}}); err != nil {
		t.Fatal(err)
	}
	c.End(t.Context())
	r.settle()
	if n := c.Result.Usage.Output; c.Result.Outcome != NoUsage || n < 4+tokenizer.ToolCallOverhead || n > 25 || c.Result.Cost >= c.Plan.Max.Cost {
		t.Errorf("%s: %d tokens at %v, held %v", c.Result.Outcome, n, c.Result.Cost, c.Plan.Max.Cost)
	}
	if last := r.entries()[0]; last.Cost != c.Result.Cost || !last.Estimated {
		t.Errorf("the ledger says %+v", last)
	}
}

// TestWholeStreamWithoutUsage checks that a stream that ends without usage is charged by
// its text or, like a plain answer, by its hold if the provider's tools add hidden input.
func TestWholeStreamWithoutUsage(t *testing.T) {
	r := newRig(t, roomy()...)
	r.org.AllowBuiltinTools = true
	for extra, whole := range map[string]bool{"": false, `,"web_search_options":{}`: true} {
		c, _, err := r.run(t.Context(), prompt("gpt-4o", "[fake: output=40 usage=none]", `"max_completion_tokens":16000,"stream":true`+extra))
		if err != nil {
			t.Fatal(err)
		}
		res := c.Result
		if res.Outcome != NoUsage || !res.Estimated || whole != (res.Cost == c.Plan.Max.Cost) {
			t.Errorf("%q: %s costs %v of %v, estimated %v; want the hold: %v", extra, res.Outcome, res.Cost, c.Plan.Max.Cost, res.Estimated, whole)
		}
	}
}
