package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// cli runs llmguard batch as alice.
func (s *stack) cli(p *process, stdin string, args ...string) (stdout, stderr string, err error) {
	cmd := redistest.Command(s.t, binary, append([]string{"batch"}, args...)...)
	cmd.Env = append(os.Environ(), "OPENAI_BASE_URL="+p.URL, "OPENAI_API_KEY="+s.keys["alice"])
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// TestBatchCommand: submit, watch, fetch, list and cancel from a shell. Submitting the same
// file again returns the same batch.
func TestBatchCommand(t *testing.T) {
	t.Parallel()
	s := batchStack(t, fakeprovider.Options{})
	p := s.proxy()
	s.worker()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "out.jsonl")
	line := func(id string) string {
		return fmt.Sprintf(`{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":%s}`+"\n", id, chat("gpt-4o-mini", "hello", `"max_tokens":5`))
	}
	if err := os.WriteFile(in, []byte(line("a")+line("b")), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, err := s.cli(p, "", "submit", in, "--watch", "--out", out)
	if err != nil || !strings.HasPrefix(stdout, "batch_") || !strings.Contains(stderr, "completed 2/2, 0 failed, $0.0000") {
		t.Fatalf("%v: %s%s", err, stdout, stderr)
	}
	id := strings.TrimSpace(stdout)
	if text, err := os.ReadFile(out); err != nil || strings.Count(string(text), "\n") != 2 {
		t.Errorf("%v: %s", err, text)
	}
	if again, _, err := s.cli(p, line("a")+line("b"), "submit", "-"); err != nil || again != stdout {
		t.Errorf("the same file is batch %s, %v", again, err)
	}
	other, _, err := s.cli(p, "", "submit", in, "--again")
	if err != nil || other == stdout {
		t.Errorf("--again is batch %s, %v", other, err)
	}
	if got, _, err := s.cli(p, "", "fetch", id); err != nil || strings.Count(got, "\n") != 2 {
		t.Errorf("%v: %s", err, got)
	}
	if got, _, err := s.cli(p, "", "status", id); err != nil || !strings.Contains(got, "2 of 2, 0 failed") || !strings.Contains(got, "at most $0.0000") {
		t.Errorf("%v: %s", err, got)
	}
	if got, _, err := s.cli(p, "", "list"); err != nil || strings.Count(got, "batch_") != 2 {
		t.Errorf("%v: %s", err, got)
	}
	if _, got, err := s.cli(p, "", "cancel", id); err == nil || !strings.Contains(got, "completed") {
		t.Errorf("an ended batch is cancelled: %v %s", err, got)
	}
	_, got, err := s.cli(p, line("a")+line("a"), "submit", "-", "--watch")
	if err == nil || !strings.Contains(got, "line 2: ") || !strings.Contains(got, "duplicate_custom_id") {
		t.Errorf("a broken file: %v %s", err, got)
	}
}
