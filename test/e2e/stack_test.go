package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// binary is llmguard, built once for all tests.
var binary string

// atOnce is how many tests run in parallel. They mostly wait, so it exceeds the CPU count of a
// small machine.
const atOnce = "5"

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	logging.Disable() // go-redis logs errors that it also returns
	if err := runInParallel(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "llmguard-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "llmguard")
	args := []string{"-C", "../..", "build", "-ldflags=-s", "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", append(args, "./cmd/llmguard")...)
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build llmguard: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// runInParallel sets -parallel, unless it is set on the command line.
func runInParallel() error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", atOnce)
}

const providerKey = "sk-provider-canary-7f3a"

// stack is one deployment: Redis, a provider, and llmguard processes.
type stack struct {
	t     *testing.T
	redis *redistest.Server // nil: several deployments share one
	fake  *fakeprovider.Server
	path  string   // of the configuration
	files string   // the file directory, if a test reads it
	env   []string // extra environment of its processes
	keys  map[string]string
}

// newStack starts Redis and the provider and writes the configuration. text is appended to the
// common part; ${key:user} in it becomes the hash of a new key for that user.
func newStack(t *testing.T, fake fakeprovider.Options, text string) *stack {
	t.Helper()
	server := redistest.Start(t, redistest.WithAOF(), redistest.WithArgs("--appendfsync", "always"))
	s := sharingStack(t, fmt.Sprintf("{addresses: [%q]}", server.Addr), fake, text)
	s.redis = server
	t.Cleanup(s.wantDocumentedKeys)
	return s
}

// sharingStack is a stack on a Redis that others may use too; connection is the section redis.
func sharingStack(t *testing.T, connection string, fake fakeprovider.Options, text string) *stack {
	t.Helper()
	fake.Key = providerKey
	s := &stack{
		t: t, fake: fakeprovider.New(fake), path: filepath.Join(t.TempDir(), "llmguard.yaml"), keys: map[string]string{},
	}
	if err := s.fake.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.fake.Close() })
	for {
		before, rest, ok := strings.Cut(text, "${key:")
		if !ok {
			break
		}
		user, after, _ := strings.Cut(rest, "}")
		key := keys.New(keys.Live)
		s.keys[user] = key
		text = before + keys.Hash(keys.Pepper{}, key) + after
	}
	common := fmt.Sprintf(`
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
redis: %s
timeouts: {drain: 0s, shutdown: 20s}
`, connection)
	if !strings.Contains("\n"+text, "\nstore:") { // the machine may be busy; deadlines are tested elsewhere
		common += "store: {deadline: 10s}\n"
	}
	text = strings.ReplaceAll(text, "${provider}", s.fake.BaseURL())
	text = strings.ReplaceAll(text, "${provider_key}", providerKey)
	if err := os.WriteFile(s.path, []byte(common+text), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// info returns a number from a section of Redis INFO.
func (s *stack) info(section, name string) int {
	s.t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr})
	defer rdb.Close()
	text, err := rdb.Info(s.t.Context(), section).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.Atoi(value)
	if err != nil {
		s.t.Fatalf("%s: %v", name, err)
	}
	return n
}

// simple is a configuration with one org, one user "alice" and no quota; the argument is the
// org's limits in YAML flow style.
func simple(limits string) string {
	return fmt.Sprintf(`
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    limits: %s
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
`, limits)
}

// process is one running llmguard.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	URL   string // for callers, ends in /v1
	Admin string
	mu    sync.Mutex
	lines []map[string]any
	raw   bytes.Buffer
	done  chan struct{}
}

func (s *stack) proxy() *process  { s.t.Helper(); return s.start("serve") }
func (s *stack) worker() *process { s.t.Helper(); return s.start("worker") }

// replace changes the configuration for processes that start later.
func (s *stack) replace(old, changed string) {
	s.t.Helper()
	text, err := os.ReadFile(s.path)
	if err != nil || !bytes.Contains(text, []byte(old)) {
		s.t.Fatalf("no %q in the configuration: %v", old, err)
	}
	if err := os.WriteFile(s.path, bytes.Replace(text, []byte(old), []byte(changed), 1), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stack) start(role string) *process { s.t.Helper(); return s.startBinary(binary, role) }

func (s *stack) startBinary(binary, role string) *process {
	s.t.Helper()
	p := &process{t: s.t, cmd: redistest.Process(s.t, binary, role, "-c", s.path), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), s.env...)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go p.read(stderr)
	s.t.Cleanup(p.tell)
	s.t.Cleanup(p.kill)
	p.await("serving health and metrics", func(line map[string]any) { p.Admin, _ = line["url"].(string) })
	if role == "serve" {
		p.await("serving calls", func(line map[string]any) { p.URL, _ = line["url"].(string) })
	}
	p.awaitReady()
	return p
}

func (p *process) read(r io.Reader) {
	defer close(p.done)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line map[string]any
		p.mu.Lock()
		p.raw.Write(lines.Bytes())
		p.raw.WriteByte('\n')
		if json.Unmarshal(lines.Bytes(), &line) == nil {
			p.lines = append(p.lines, line)
		}
		p.mu.Unlock()
	}
}

// log returns everything that the process has logged so far.
func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.raw.String()
}

// await waits for a log line with the message.
func (p *process) await(message string, found func(map[string]any)) {
	p.t.Helper()
	for range 6000 {
		p.mu.Lock()
		for _, line := range p.lines {
			if line["msg"] == message {
				found(line)
				p.mu.Unlock()
				return
			}
		}
		p.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	p.t.Fatalf("%v never logged %q; its log:\n%s", p.cmd.Args, message, p.log())
}

func (p *process) awaitReady() {
	p.t.Helper()
	for range 3000 {
		resp, err := client.Get(p.Admin + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.t.Fatalf("%v never became ready; its log:\n%s", p.cmd.Args, p.log())
}

// tell prints the end of the process's log if the test has failed.
func (p *process) tell() {
	if !p.t.Failed() {
		return
	}
	lines := slices.DeleteFunc(strings.Split(p.log(), "\n"), func(line string) bool {
		return strings.Contains(line, `"status":20`) && !strings.Contains(line, `"error"`)
	})
	p.t.Logf("%v, without the calls that went well, ended its log with:\n%s", p.cmd.Args, strings.Join(lines[max(0, len(lines)-25):], "\n"))
}

// kill sends SIGKILL to the process and waits for it.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		redistest.Came(p.t, p.done)
		_ = p.cmd.Wait()
	}
}

// terminate sends SIGTERM and waits; the test fails if the process does not exit.
func (p *process) terminate() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case <-p.done:
		if err := p.cmd.Wait(); err != nil {
			p.t.Errorf("%v ended with %v; its log:\n%s", p.cmd.Args, err, p.log())
		}
	case <-time.After(2 * time.Minute):
		p.t.Fatalf("%v did not shut down; its log:\n%s", p.cmd.Args, p.log())
	}
}

// metrics returns the process's metrics as text.
func (p *process) metrics() string {
	p.t.Helper()
	resp, err := client.Get(p.Admin + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}
