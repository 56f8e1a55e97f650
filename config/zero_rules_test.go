package config_test

import (
	"testing"

	"github.com/llmguard/llmguard/config"
)

// TestZeroThatHasAMeaning: zero is accepted where the reference gives it a special meaning.
func TestZeroThatHasAMeaning(t *testing.T) {
	for _, c := range []struct {
		text string
		zero func(*config.Config) bool
	}{
		{"queue: {blob_above: 0}", func(c *config.Config) bool { return c.Queue.BlobAbove == 0 }},
		{"queue: {blob_above: 0B}", func(c *config.Config) bool { return c.Queue.BlobAbove == 0 }},
		{"connections: {streams: 0}", func(c *config.Config) bool { return c.Connections.Streams == 0 }},
		{"files: {max_org_bytes: 0, max_org_files: 0}", func(c *config.Config) bool { return c.Files.MaxOrgBytes == 0 && c.Files.MaxOrgFiles == 0 }},
		{"batches: {max_open: 0, max_user_open: 0, max_ended: 0}", func(c *config.Config) bool {
			return c.Batches.MaxOpen+c.Batches.MaxEnded == 0 && c.Batches.MaxUserOpen == 0
		}},
		{"timeouts: {drain: 0s}", func(c *config.Config) bool { return c.Timeouts.Drain == 0 }},
		{"redis: {addresses: [\"a:1\"], db: 0}", func(c *config.Config) bool { return c.Redis.DB == 0 }},
	} {
		if cfg := read(t, c.text); !c.zero(cfg) {
			t.Errorf("%s: got another value, want 0", c.text)
		}
	}
}
