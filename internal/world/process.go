package world

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// Process is a running llmguard.
type Process struct {
	URL   string // for callers, ends in /v1; of `llmguard serve` only
	Admin string // of the admin listener

	t     testing.TB
	role  string
	cmd   *exec.Cmd
	mu    sync.Mutex
	lines []map[string]any
	raw   bytes.Buffer
	done  chan struct{}
}

func (w *World) launch(role string) *Process {
	w.t.Helper()
	p := &Process{
		t: w.t, role: role, cmd: redistest.Process(w.t, w.binary, role, "-c", w.Config), done: make(chan struct{}),
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(p.Kill)
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stderr)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			p.read(lines.Bytes())
		}
	}()
	return p
}

func (p *Process) read(text []byte) {
	var line map[string]any
	p.mu.Lock()
	defer p.mu.Unlock()
	p.raw.Write(append(text, '\n'))
	if json.Unmarshal(text, &line) == nil {
		p.lines = append(p.lines, line)
	}
}

// Log returns everything that the process has logged so far.
func (p *Process) Log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.raw.String()
}

// Lines returns the lines of the log with a message.
func (p *Process) Lines(message string) []map[string]any {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []map[string]any
	for _, line := range p.lines {
		if line["msg"] == message {
			out = append(out, line)
		}
	}
	return out
}

// awaitReady waits until the process serves, and reads its addresses from its log.
func (p *Process) awaitReady() {
	p.t.Helper()
	p.Admin = p.address("serving health and metrics")
	if p.role == "serve" {
		p.URL = p.address("serving calls")
	}
	client := http.Client{Timeout: redistest.Bound}
	for range attempts {
		resp, err := client.Get(p.Admin + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		time.Sleep(pause)
	}
	p.t.Fatalf("llmguard %s never became ready; its log:\n%s", p.role, p.Log())
}

func (p *Process) address(message string) string {
	p.t.Helper()
	for range attempts {
		if lines := p.Lines(message); len(lines) > 0 {
			url, _ := lines[0]["url"].(string)
			return strings.TrimSuffix(url, "/")
		}
		select {
		case <-p.done:
			p.t.Fatalf("llmguard %s ended; its log:\n%s", p.role, p.Log())
		case <-time.After(pause):
		}
	}
	p.t.Fatalf("llmguard %s never logged %q; its log:\n%s", p.role, message, p.Log())
	return ""
}

// end lets the process finish what it does, and waits for it. Its log is then complete.
func (p *Process) end() {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	redistest.Came(p.t, p.done)
	err := p.cmd.Wait()
	if err != nil {
		p.t.Errorf("llmguard %s ended with %v; its log:\n%s", p.role, err, p.Log())
	}
}

// Kill sends SIGKILL to the process and waits for it.
func (p *Process) Kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		redistest.Came(p.t, p.done)
		_ = p.cmd.Wait()
	}
}
