package config

import "testing"

// TestPoolSplits: input and output are separate where the file says so, and at Anthropic unless it has a tpm.
func TestPoolSplits(t *testing.T) {
	for _, c := range []struct {
		kind string
		pool Pool
		want bool
	}{
		{"anthropic", Pool{}, true},
		{"anthropic", Pool{RPM: 5}, true},
		{"anthropic", Pool{TPM: 5}, false},
		{"openai", Pool{}, false},
		{"openai", Pool{ITPM: 5}, true},
		{"openai", Pool{OTPM: 5}, true},
	} {
		if got := (&Provider{Kind: c.kind}).Splits(&c.pool); got != c.want {
			t.Errorf("%s, %+v: %v", c.kind, c.pool, got)
		}
	}
}
