package e2e

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestInitRunsAsPrinted: check, serve and worker run side by side on one machine with the
// lines that init prints, also where Prometheus has its port.
func TestInitRunsAsPrinted(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "127.0.0.1:9090"); err == nil { // else something has it anyway
		defer l.Close()
	}
	r := redistest.Start(t)
	path := filepath.Join(t.TempDir(), "llmguard.yaml")
	env := append(os.Environ(), "REDIS_URL=redis://"+r.Addr, "OPENAI_API_KEY=sk-none", "PATH=/usr/bin:/bin")
	cmd := exec.Command(binary, "init", "-c", path)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "listen: 127.0.0.1:8080\n") {
		t.Fatalf("%v: %s", err, text)
	}
	own := strings.Replace(string(text), "listen: 127.0.0.1:8080\n", "listen: 127.0.0.1:0\ntimeouts: {drain: 0s}\n", 1)
	if err := os.WriteFile(path, []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	var admins []string
	for _, role := range []string{" serve ", " worker "} {
		p := startLine(t, env, printed(t, string(out), role))
		if role == " serve " {
			p.await("serving calls", func(map[string]any) {})
		}
		admins = append(admins, p.Admin)
	}
	if admins[0] == admins[1] || strings.HasSuffix(admins[0], ":9090") {
		t.Errorf("the admin listeners are %v", admins)
	}
	second := exec.Command("sh", "-c", printed(t, string(out), " serve "))
	second.Env = env
	if notes, err := second.CombinedOutput(); err == nil || !strings.Contains(string(notes), "admin.listen: another process listens on") {
		t.Errorf("a second serve: %v, %s", err, notes)
	}
}

// printed is the line of a command's output that has a word.
func printed(t *testing.T, out, word string) string {
	t.Helper()
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "  ") && strings.Contains(line, word) {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("no %q in\n%s", word, out)
	return ""
}

// startLine runs a line of a shell that is one llmguard, until the test ends.
func startLine(t *testing.T, env []string, line string) *process {
	t.Helper()
	settings := ""
	if i := strings.Index(line, binary); i > 0 {
		settings = line[:i]
	}
	p := &process{
		t: t, done: make(chan struct{}),
		cmd: exec.Command("sh", "-c", fmt.Sprintf("%s exec %s", settings, strings.TrimPrefix(line, settings))),
	}
	p.cmd.Env = env
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read(stderr)
	t.Cleanup(p.kill)
	p.await("serving health and metrics", func(line map[string]any) { p.Admin, _ = line["url"].(string) })
	p.awaitReady()
	return p
}
