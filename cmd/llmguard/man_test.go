package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMan: a page for each command, with its flags.
func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	var out bytes.Buffer
	if err := run(context.Background(), []string{"man", dir}, &out, &out); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"llmguard.1": "SEE ALSO", "llmguard-usage-adjust.1": "reason", "llmguard-batch-submit.1": "watch"} {
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(page), want) {
			t.Errorf("%s: %v, or no %q in it", name, err, want)
		}
	}
}
