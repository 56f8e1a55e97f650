package agents

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// LLMGUARD_AGENTS is how tests run: "require" makes a program that is not installed an error, and the wait in the
// queue a long one; "skip" runs none.
var (
	required = os.Getenv("LLMGUARD_AGENTS") == "require"
	skipped  = os.Getenv("LLMGUARD_AGENTS") == "skip"
)

// program is an agent.
type program struct {
	name, file string // the file is in node/node_modules
	few        string // see settings
	tool, args string // a call of a tool that runs `echo TEXT`
	again      int    // how often it repeats a request that is refused for good
	setup      func(t *testing.T, home, base string)
	command    []string // before the prompt
	env        func(base, key string) []string
}

var programs = []program{
	{
		name: "claude", file: "@anthropic-ai/claude-code/bin/claude.exe", few: "$0.2",
		tool: "Bash", args: `{"command":"echo TEXT","description":"Print"}`,
		command: []string{"--allowedTools=Bash(echo:*)", "-p"},
		env: func(base, key string) []string {
			return []string{
				"ANTHROPIC_BASE_URL=" + strings.TrimSuffix(base, "/v1"), "ANTHROPIC_AUTH_TOKEN=" + key,
				"ANTHROPIC_MODEL=claude-opus-5", "CLAUDE_CODE_MAX_RETRIES=2", "DISABLE_AUTOUPDATER=1",
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
			}
		},
	},
	{
		name: "codex", file: ".bin/codex", few: "$0.022", again: 1,
		tool: "exec_command", args: `{"cmd":"echo TEXT"}`,
		setup:   codexConfig,
		command: []string{"exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"},
		env:     func(_, key string) []string { return []string{"LLMGUARD_KEY=" + key} },
	},
	{
		name: "opencode", file: "opencode-linux-x64-baseline/bin/opencode", few: "$0.0208",
		tool: "bash", args: `{"command":"echo TEXT","description":"Print"}`,
		setup:   openCodeConfig,
		command: []string{"run", "--title=A story"}, // without a title it makes another call for one
		env: func(_, key string) []string {
			return []string{"LLMGUARD_KEY=" + key, "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1"}
		},
	},
}

// sdk stands for programs on SDKs.
var sdk = program{name: "sdk", file: "@anthropic-ai/sdk/package.json", few: "$1"}

// echo answers with a call of the tool, after some thinking.
func (p program) echo(text string) fakeprovider.Behaviour {
	return fakeprovider.Behaviour{Call: p.tool, Args: strings.ReplaceAll(p.args, "TEXT", text), Reasoning: 128}
}

func codexConfig(t *testing.T, home, base string) {
	write(t, filepath.Join(home, ".codex/config.toml"), `model = "gpt-5"
model_provider = "llmguard"
[model_providers.llmguard]
name = "llmguard"
base_url = "`+base+`"
env_key = "LLMGUARD_KEY"
wire_api = "responses"
stream_idle_timeout_ms = 660000
request_max_retries = 1
stream_max_retries = 1
`)
}

func openCodeConfig(t *testing.T, home, base string) {
	write(t, filepath.Join(home, "opencode.json"), `{
  "model": "llmguard/gpt-4o-mini",
  "provider": {"llmguard": {
    "npm": "@ai-sdk/openai-compatible", "name": "llmguard",
    "options": {"baseURL": "`+base+`", "apiKey": "{env:LLMGUARD_KEY}"}, "models": {"gpt-4o-mini": {}}
  }}
}`)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (p program) path() string {
	path, err := filepath.Abs(filepath.Join("node/node_modules", p.file))
	if err != nil {
		return p.file
	}
	return path
}

// need skips the test if the program is not installed.
func (p program) need(t *testing.T) {
	t.Helper()
	_, err := os.Stat(p.path())
	if err != nil && required {
		t.Fatalf("%s is not installed: %v", p.name, err)
	}
	if err != nil {
		t.Skipf("%s is not installed: `make agents` installs it", p.name)
	}
}

// running is a program that has been started.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *output
	done chan struct{}
	err  error // once it is done
}

// output is what a program has printed so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start runs the program with the prompt of a story and a key, in a home of its own and without input.
func (st *story) start(p program, key string) *running {
	st.t.Helper()
	home := st.t.TempDir()
	if p.setup != nil {
		p.setup(st.t, home, st.s.Proxy.URL)
	}
	cmd := redistest.Process(st.t, p.path(), append(p.command, st.prompt())...)
	cmd.Dir = home
	cmd.Env = append(p.env(st.s.Proxy.URL, key), "HOME="+home, "TMPDIR="+home, "PATH="+os.Getenv("PATH"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what it starts is killed with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	r := &running{t: st.t, cmd: cmd, out: &output{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = r.out, r.out
	err := cmd.Start()
	if err != nil {
		st.t.Fatal(err)
	}
	go func() { r.err = cmd.Wait(); close(r.done) }()
	st.t.Cleanup(r.kill)
	return r
}

// bound is how long a program may take.
const bound = 3 * time.Minute

// end waits for the program and returns what it printed.
func (r *running) end() string {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(bound):
		r.t.Fatalf("%v does not end within %v; it printed:\n%s", r.cmd.Args, bound, r.out)
	}
	return r.out.String()
}

func (r *running) kill() {
	select {
	case <-r.done:
	default:
		_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
		redistest.Came(r.t, r.done)
	}
}
