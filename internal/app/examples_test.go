package app

import (
	"os"
	"testing"

	"github.com/llmguard/llmguard/config"
)

// TestProviderExamples checks that the example of every kind of provider can be used as it
// is.
func TestProviderExamples(t *testing.T) {
	const path = "../../examples/providers.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const hash = "sha256:ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	cfg, err := config.Parse(path, text, func(string) (string, bool) { return hash, true })
	if err != nil {
		t.Fatal(err)
	}
	set, err := upstreams(cfg)
	if err != nil {
		t.Fatal(err)
	}
	set.Close()
	if n := len(cfg.Providers); n != 11 {
		t.Errorf("%d providers, want 11", n)
	}
}
