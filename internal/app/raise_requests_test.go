package app

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/guard"
)

func TestConvertRaiseRequests(t *testing.T) {
	const head = "public_url: https://llm.example.com/\nproviders: [{id: openai, base_url: \"https://a.example/v1\"}]\n"
	for text, want := range map[string]guard.RaiseRule{
		"orgs: [{id: acme}]": {MaxAmount: 50e9, MaxFor: 24 * time.Hour},
		"orgs: [{id: acme, raise_requests: {mode: allow}}]": {Allowed: true, MaxAmount: 50e9, MaxFor: 24 * time.Hour},
		"defaults: {raise_requests: {mode: allow, max_amount: $5, max_for: 2h}}\norgs: [{id: acme}]": {
			Allowed: true, MaxAmount: 5e9, MaxFor: 2 * time.Hour,
		},
		"defaults: {raise_requests: {mode: allow, max_amount: $5}}\norgs: [{id: acme, raise_requests: {mode: refuse, max_for: 1h}}]": {
			MaxAmount: 5e9, MaxFor: time.Hour,
		},
	} {
		s, err := convert(read(t, head+text))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.policy.Orgs["acme"].Raises; got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
		if got := s.policy.PublicURL; got != "https://llm.example.com" {
			t.Errorf("public URL: got %q, want it without the slash", got)
		}
	}
}
