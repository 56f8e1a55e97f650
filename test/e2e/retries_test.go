package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// retryPrograms are the programs of examples/retries. Each returns the command that runs it.
var retryPrograms = map[string]func(*testing.T) *exec.Cmd{
	"python": func(t *testing.T) *exec.Cmd {
		// A version manager's python3 may be on the PATH without a version to run.
		for _, python := range []string{"python3", "/usr/bin/python3"} {
			if redistest.Command(t, python, "-c", "import urllib.request").Run() == nil {
				return redistest.Command(t, python, "retry.py")
			}
		}
		t.Skip("python3 is not installed")
		return nil
	},
	"node": func(t *testing.T) *exec.Cmd {
		node, err := nodeProgram("node")
		if err != nil {
			node, err = exec.LookPath("node")
		}
		if err != nil {
			needNode(t, "node")
		}
		return redistest.Command(t, node, "retry.mjs")
	},
	"go": func(t *testing.T) *exec.Cmd {
		program := filepath.Join(t.TempDir(), "retries")
		build := redistest.Command(t, "go", "build", "-o", program, ".")
		build.Dir = retriesDir
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		return redistest.Command(t, program)
	},
}

const retriesDir = "../../examples/retries"

// retried matches a snippet's output about a call that was refused for now, with a wait of at
// least Retry-After.
var retried = regexp.MustCompile(`429.*: retry in ([1-9][0-9]*)\.[0-9] s\n`)

// TestRetrySnippets: each program of examples/retries retries after Retry-After and gets its
// response once there is capacity, as one call. A request that no retry can help is sent once.
func TestRetrySnippets(t *testing.T) {
	t.Parallel()
	for name, command := range retryPrograms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := command(t)
			s := newStack(t, fakeprovider.Options{}, `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    over_limit: refuse
    users:
      - id: alice
        limits: [{name: one-at-a-time, metric: concurrency, amount: 1}]
        keys: [{id: k1, hash: "${key:alice}"}]
      - id: bob
        limits: [{name: tiny, amount: $0.00001, window: 1h}]
        keys: [{id: k2, hash: "${key:bob}"}]
`)
			g, p := s.gate(nil), s.proxy()
			go post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o-mini", gated, `"max_tokens":5`))
			g.awaitHeld()
			var program retriesRun
			program.start(t, cmd, p.URL, s.keys["alice"])
			until(t, "the program was refused or ended", func() bool {
				return strings.Contains(p.log(), `"status":429`) || program.ended()
			})
			g.release()
			err := program.wait()
			if err != nil || !retried.MatchString(program.stderr.String()) || program.stdout.Len() == 0 {
				t.Errorf("with capacity: %v, printed %q and %q", err, &program.stdout, &program.stderr)
			}

			again := redistest.Command(t, cmd.Path, cmd.Args[1:]...)
			program = retriesRun{}
			program.start(t, again, p.URL, s.keys["bob"])
			err = program.wait()
			if err == nil || !strings.Contains(program.stderr.String(), "insufficient_quota") || strings.Contains(program.stderr.String(), "retry in") {
				t.Errorf("a call that can never fit: %v, printed %q", err, &program.stderr)
			}
		})
	}
}

// retriesRun is a running program and its output, which may be read once it has ended.
type retriesRun struct {
	stdout, stderr bytes.Buffer
	done           chan error
	t              *testing.T
}

func (r *retriesRun) start(t *testing.T, cmd *exec.Cmd, baseURL, key string) {
	t.Helper()
	cmd.Dir, cmd.Stdout, cmd.Stderr = retriesDir, &r.stdout, &r.stderr
	// urllib asks a proxy of the environment for loopback addresses too.
	cmd.Env = append(os.Environ(), "LLMGUARD_URL="+baseURL, "LLMGUARD_KEY="+key, "NO_PROXY=127.0.0.1", "no_proxy=127.0.0.1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // normally it has exited by then
	r.t, r.done = t, make(chan error, 1)
	go func() { r.done <- cmd.Wait() }()
}

func (r *retriesRun) ended() bool { return len(r.done) > 0 }

// wait returns the error of cmd.Wait once the program has ended.
func (r *retriesRun) wait() error { return redistest.Came(r.t, r.done) }
