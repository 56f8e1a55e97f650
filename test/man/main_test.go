package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWrite: a page for each command, with its flags.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if err := write("v1.2.3", dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"llmguard.1": "llmguard v1.2.3", "llmguard-usage-adjust.1": "reason", "llmguard-batch-submit.1": "watch"} {
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(page), want) {
			t.Errorf("%s: %v, or no %q in it", name, err, want)
		}
	}
}
