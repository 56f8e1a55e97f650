package proxy

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/queue"
)

// tight has capacity for calls of gpt-4o-mini only.
func tight() budget.Limit { return window(400_000, time.Hour) }

// TestDowngrade: a call that does not fit is served with the cheaper model, with only the model's
// name changed, and the answer says so; a call that fits is not downgraded.
func TestDowngrade(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, tight())
	r.org.Downgrade = map[string]string{"gpt-4o": "gpt-4o-mini", "gpt-4o-mini": "gpt-4o"}
	body := `{ "messages":[{"role":"user","content":"[fake: output=10] hi"}],  "max_tokens":%, "model":"gpt-4o" , "seed":7}`
	small, large := strings.Replace(body, "%", "10", 1), strings.Replace(body, "%", "100", 1)

	a := r.chat(small)
	if a.status != 200 || a.header.Get(guard.HeaderInstead) != "" || !strings.Contains(a.body, `"model":"gpt-4o"`) {
		t.Fatalf("got status %d, %v, %s; want 200", a.status, a.header, a.body)
	}
	for _, stream := range []string{"", `,"stream":true`} {
		want := strings.Replace(large, `"seed":7`, `"seed":7`+stream, 1)
		a = r.chat(want)
		if a.status != 200 || a.header.Get(guard.HeaderInstead) != "gpt-4o" || !strings.Contains(a.body, `"model":"gpt-4o-mini"`) {
			t.Fatalf("got status %d, %v, %s; want 200", a.status, a.header, a.body)
		}
	}
	for _, record := range r.records(3)[1:] {
		if record["model"] != "gpt-4o-mini" {
			t.Errorf("got %v, want gpt-4o-mini", record)
		}
	}
	r.org.Downgrade = nil
	r.chat(large, "X-Stainless-Timeout", "2").fails(t, http.StatusPaymentRequired, "insufficient_quota")
	// More expensive and unknown models are not used as fallbacks.
	for _, other := range []string{"o1", "no-such-model", "gpt-4o"} {
		r.org.Downgrade = map[string]string{"gpt-4o": other}
		r.chat(large).fails(t, http.StatusPaymentRequired, "insufficient_quota")
	}
}

// TestDowngradeQueued: a job that does not fit runs with the cheaper model, even if it could never
// fit with its own.
func TestDowngradeQueued(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, tight())
	r.org.Downgrade = map[string]string{"gpt-4o": "gpt-4o-mini"}
	r.worker(nil)
	a := r.chat(prompt("[fake: output=10] hi", `"max_tokens":100`), "Prefer", "respond-async, wait=60")
	if a.status != 200 || a.header.Get(guard.HeaderInstead) != "gpt-4o" || !strings.Contains(a.body, `"model":"gpt-4o-mini"`) {
		t.Errorf("got status %d, %v, %s; want 200", a.status, a.header, a.body)
	}
	b := r.call("POST", "/v1/responses", `{"model":"gpt-4o","input":"[fake: output=10]","max_output_tokens":100,"background":true}`)
	if b.status != 200 {
		t.Fatalf("got %+v; want status 200", b)
	}
	var got answer
	r.until("the response is completed", func() bool {
		got = r.call("GET", "/v1/responses/"+b.id(), "")
		return strings.Contains(got.body, `"status":"completed"`)
	})
	if !strings.Contains(got.body, `"model":"gpt-4o-mini"`) {
		t.Errorf("got %s, want gpt-4o-mini", got.body)
	}
}
