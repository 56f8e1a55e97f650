package cli

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// says runs a command line and returns everything that it prints.
func says(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := run(context.Background(), args, &out, &out); err != nil {
		complain(&out, err)
	}
	return out.String()
}

func TestConfigurationErrorsStandAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(path, []byte("providers: [{id: a, base_url: \"http://h\"}]\norgs: [{id: a}]\nlissten: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := path + `:3:1: unknown field "lissten"; did you mean "listen"?` + "\n    3 | lissten: x\n      | ^^^^^^^\n"
	for _, command := range []string{"check", "serve", "worker", "usage"} {
		if got := says(t, command, "-c", path); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", command, got, want)
		}
	}
}

func TestMissingConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.yaml")
	want := "llmguard: " + path + " not found. Use --config FILE (`llmguard dev` writes one and prints its path), or create one with `llmguard init`. `llmguard serve` needs this file and does not work over the network\n"
	if got := says(t, "serve", "-c", path); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCheckCounts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("providers: [{id: a, base_url: \"http://h\"}]\norgs: [{id: a}, {id: b}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := says(t, "check", "-c", path), "1 provider, 2 orgs, 0 users, 0 keys, 0 limits\n"; !strings.Contains(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
