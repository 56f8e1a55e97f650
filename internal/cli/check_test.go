package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// command runs a command line and returns its output and exit code.
func command(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if err := run(t.Context(), args, &stdout, &stderr); err != nil {
		code = exitCode(&stderr, err)
	}
	return stdout.String() + stderr.String(), code
}

// TestInit: the file that init writes passes check, with and without provider keys in the
// environment. Existing files are overwritten only with --force.
func TestInit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "llmguard.yaml")
	for _, s := range known {
		t.Setenv(s.Env, "")
	}
	t.Setenv("REDIS_URL", "")
	out, code := command(t, "init", "-c", path)
	if code != 0 || !strings.Contains(out, "lg_live_") || !strings.Contains(out, "Set OPENAI_API_KEY before you start it") {
		t.Fatalf("exit %d: %s", code, out)
	}
	if out, code := command(t, "check", "-c", path); code != 0 || !strings.Contains(out, "1 provider, 1 org, 1 user, 1 key, 3 limits") {
		t.Errorf("exit %d: %s", code, out)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(text), "# yaml-language-server: $schema=llmguard.schema.json\n") {
		t.Errorf("%v: begins with %.60s", err, text)
	}
	if strings.Contains(string(text), "lg_live_") {
		t.Error("the key itself is in the file")
	}
	schema, err := os.ReadFile(filepath.Join(dir, "llmguard.schema.json"))
	if want, _ := command(t, "config", "schema"); err != nil || string(schema) != want || !json.Valid(schema) {
		t.Errorf("the schema beside it is another one: %v", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: mode %v", err, info.Mode())
	}

	if out, code := command(t, "init", "-c", path); code != 1 || !strings.Contains(out, "already exists. Overwrite it with --force") {
		t.Errorf("exit %d: %s", code, out)
	}
	if again, err := os.ReadFile(path); err != nil || !bytes.Equal(again, text) {
		t.Error("it was overwritten all the same")
	}
	for _, s := range known {
		t.Setenv(s.Env, "sk-canary-of-"+s.ID)
	}
	t.Setenv("REDIS_URL", "redis://127.0.0.1:6379/1")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, code := command(t, "init", "-c", path, "--force"); code != 0 || strings.Contains(out, "before you start it") {
		t.Errorf("exit %d: %s", code, out)
	}
	if out, code := command(t, "check", "-c", path); code != 0 || !strings.Contains(out, fmt.Sprintf("%d providers", len(known))) {
		t.Errorf("exit %d: %s", code, out)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: mode %v after --force, want 0600", err, info.Mode())
	}
	if text, err = os.ReadFile(path); err != nil || strings.Contains(string(text), "canary") || !strings.Contains(string(text), "url: ${REDIS_URL}") {
		t.Errorf("%v: %s", err, text)
	}
}

func TestExitCode(t *testing.T) {
	var w bytes.Buffer
	if code := exitCode(&w, errors.Join(exit(2))); code != 2 || w.Len() > 0 {
		t.Errorf("%d, said %q", code, w.String())
	}
	if code := exitCode(&w, errors.New("broken")); code != 1 || w.String() != "llmguard: broken\n" {
		t.Errorf("%d, said %q", code, w.String())
	}
}

// TestCompletion: every shell has a completion script.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, code := command(t, "completion", shell); code != 0 || !strings.Contains(out, "llmguard") {
			t.Errorf("%s: exit %d", shell, code)
		}
	}
	if out, _ := command(t, "__complete", "che"); !strings.Contains(out, "check\t") {
		t.Error(out)
	}
}
