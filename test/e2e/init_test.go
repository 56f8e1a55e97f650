package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestInitRunsAsPrinted: the lines that init prints run check, serve and worker side by side on
// one machine, even if Prometheus occupies its port. The ports are free when init prints them;
// other processes here keep taking such ports, so each command gets a different one.
func TestInitRunsAsPrinted(t *testing.T) {
	t.Parallel()
	if l, err := net.Listen("tcp", "127.0.0.1:9090"); err == nil { // otherwise the port is taken already
		defer l.Close()
	}
	r := redistest.Start(t)
	path := filepath.Join(t.TempDir(), "llmguard.yaml")
	env := append(os.Environ(), "REDIS_URL=redis://"+r.Addr, "OPENAI_API_KEY=sk-none", "PATH=/usr/bin:/bin")
	cmd := redistest.Command(t, binary, "init", "-c", path)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), "listen: 127.0.0.1:8080\n") {
		t.Fatalf("%v: %s", err, text)
	}
	serve, worker := address(t, string(text), "${ADMIN_LISTEN:-"), address(t, string(out), "ADMIN_LISTEN=")
	if serve == worker || serve == "127.0.0.1:9090" || worker == "127.0.0.1:9090" {
		t.Errorf("the admin listeners are %s and %s", serve, worker)
	}
	anyPort := strings.NewReplacer(serve, "127.0.0.1:0", worker, "127.0.0.1:0",
		"listen: 127.0.0.1:8080\n", "listen: 127.0.0.1:0\ntimeouts: {drain: 0s}\n")
	if err := os.WriteFile(path, []byte(anyPort.Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	var admins []string
	for _, role := range []string{" serve ", " worker "} {
		p := startLine(t, env, anyPort.Replace(printed(t, string(out), role)))
		if role == " serve " {
			p.await("serving calls", func(map[string]any) {})
		}
		admins = append(admins, p.Admin)
	}
	second := redistest.Command(t, "sh", "-c", printed(t, string(out), " serve "))
	second.Env = append(env, "ADMIN_LISTEN="+strings.TrimPrefix(admins[0], "http://"))
	if notes, err := second.CombinedOutput(); err == nil || !strings.Contains(string(notes), "admin.listen: another process listens on") {
		t.Errorf("a second serve: %v, %s", err, notes)
	}
}

// address returns the host:port that follows a word in a text.
func address(t *testing.T, text, behind string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, behind)
	end := strings.IndexAny(rest, "} \n")
	if !found || end < 0 {
		t.Fatalf("no %q in\n%s", behind, text)
	}
	return rest[:end]
}

// printed returns the output line that contains a word.
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

// startLine runs a shell line that starts one llmguard, until the test ends.
func startLine(t *testing.T, env []string, line string) *process {
	t.Helper()
	settings := ""
	if i := strings.Index(line, binary); i > 0 {
		settings = line[:i]
	}
	p := &process{
		t: t, done: make(chan struct{}),
		cmd: redistest.Process(t, "sh", "-c", fmt.Sprintf("%s exec %s", settings, strings.TrimPrefix(line, settings))),
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
