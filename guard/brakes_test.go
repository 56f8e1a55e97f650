package guard

import (
	"testing"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
)

// TestFingerprint: equal requests have one endpoint and the same members, whatever their order and spaces.
func TestFingerprint(t *testing.T) {
	of := func(endpoint wire.Endpoint, body string) string {
		return fingerprint(&wire.Request{Endpoint: endpoint, Body: []byte(body)})
	}
	chat := of("/chat/completions", `{"model":"gpt-4o","n":1}`)
	if len(chat) != fingerprintLength {
		t.Errorf("got %q, want %d digits", chat, fingerprintLength)
	}
	if got := of("/chat/completions", `{ "n": 1, "model": "gpt-4o" }`); got != chat {
		t.Errorf("in another order: got %s, want %s", got, chat)
	}
	for _, name := range []string{"seed", "user", "metadata", "service_tier", "store", "safety_identifier", "prompt_cache_key"} {
		if got := of("/chat/completions", `{"model":"gpt-4o",`+"\n"+`"`+name+`":{"a":1e999},"n":1}`); got != chat {
			t.Errorf("with %s: got %s, want %s", name, got, chat)
		}
	}
	for what, other := range map[string]string{
		"another value":    of("/chat/completions", `{"model":"gpt-4o","n":2}`),
		"another endpoint": of("/responses", `{"model":"gpt-4o","n":1}`),
	} {
		if other == chat {
			t.Errorf("%s has the same fingerprint", what)
		}
	}
	if got := fingerprint(&wire.Request{Form: &wire.Form{}, Body: []byte("x")}); got != "" {
		t.Errorf("a form has the fingerprint %q", got)
	}
}

// TestBrakeSubject: subjects are written so that `brakes release` takes them.
func TestBrakeSubject(t *testing.T) {
	for _, c := range [][3]string{
		{"run", "abc", "run=abc"},
		{"user+run", "carol,abc", "user=carol, run=abc"},
		{"run-budget", "run_k3v5hd7q2mzx4abc", "run-budget=run_k3v5hd7q2mzx4abc"},
	} {
		if got := BrakeSubject(budget.Subject(c[0]), c[1]); got != c[2] {
			t.Errorf("%s %s: got %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
