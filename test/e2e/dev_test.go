package e2e

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// dev is a running `llmguard dev` with its own temporary directory.
type dev struct {
	t      *testing.T
	cmd    *exec.Cmd
	tmp    string
	out    *os.File // its stdout and stderr
	text   string   // output up to the last line of the welcome
	ended  chan error
	config string
}

// devCommand returns `llmguard dev` on free ports, and its temporary directory.
func devCommand(t *testing.T, args ...string) (cmd *exec.Cmd, tmp string) {
	t.Helper()
	tmp, err := os.MkdirTemp("", "dev") // t.TempDir() is too long for a socket path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	cmd = redistest.Process(t, binary, append([]string{"dev", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "OPENAI_API_KEY=sk-must-not-be-used", "REDIS_URL=")
	return cmd, tmp
}

func startDev(t *testing.T, args ...string) *dev {
	t.Helper()
	d := &dev{t: t, ended: make(chan error, 1)}
	d.cmd, d.tmp = devCommand(t, args...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	d.out, d.cmd.Stdout, d.cmd.Stderr = r, w, w
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	go func() { d.ended <- d.cmd.Wait() }()
	t.Cleanup(func() { _ = d.cmd.Process.Kill() })
	if err := r.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(r); lines.Scan(); {
		d.text += lines.Text() + "\n"
		if lines.Text() == "Press Ctrl-C to stop." {
			d.config = d.field("config")
			if err := r.SetReadDeadline(time.Time{}); err != nil {
				t.Fatal(err)
			}
			return d
		}
	}
	_ = d.cmd.Process.Kill()
	t.Fatalf("dev ended with %v before it was ready:\n%s", redistest.Came(t, d.ended), d.text)
	return nil
}

// read keeps reading dev's output, as a terminal does.
func (d *dev) read() *dev {
	go func() { _, _ = io.Copy(io.Discard, d.out) }()
	return d
}

// field returns a value from the welcome.
func (d *dev) field(name string) string {
	_, rest, ok := strings.Cut(d.text, "\n  "+name+" ")
	if !ok {
		d.t.Fatalf("no %q in\n%s", name, d.text)
	}
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}

// stop signals dev and waits for it to exit.
func (d *dev) stop(with os.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(with); err != nil {
		d.t.Fatal(err)
	}
	d.awaitEnd()
}

func (d *dev) awaitEnd() {
	d.t.Helper()
	select {
	case <-d.ended:
	case <-time.After(time.Minute):
		d.t.Fatal("dev did not end")
	}
}

// usage returns the lines of `llmguard usage` for all orgs, without header and total.
func (d *dev) usage(by string) []string {
	d.t.Helper()
	out, err := redistest.Command(d.t, binary, "usage", "--org", "all", "--by", by, "-c", d.config).Output()
	if err != nil {
		d.t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(out), by+" ")
	lines := strings.Split(strings.TrimSpace(rows), "\n")
	return lines[1:max(len(lines)-1, 1)]
}

// metric reports whether the metrics have a nonzero sample.
func (d *dev) metric(sample string) bool {
	d.t.Helper()
	resp, err := client.Get(d.field("metrics"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n"+sample+" ")
	return ok && !strings.HasPrefix(rest, "0\n")
}

// leftBehind returns the sockets of redis-servers that still answer.
func leftBehind(tmp string) (running []string) {
	sockets, _ := filepath.Glob(filepath.Join(tmp, "llmguard-*", "redis.sock"))
	for _, path := range sockets {
		if c, err := net.Dial("unix", path); err == nil {
			_ = c.Close()
			running = append(running, path)
		}
	}
	return running
}

func awaitTrue(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 6000 {
		if is() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("it never happened that %s", what)
}

// TestDevLeavesNothingRunning: however dev exits, its redis-server exits too, and dev cleans up
// if it still can.
func TestDevLeavesNothingRunning(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(d *dev){
		"closed terminal": func(d *dev) { d.read().stop(syscall.SIGHUP) },
		"Ctrl-C":          func(d *dev) { d.read().stop(os.Interrupt) },
		"killed":          func(d *dev) { d.stop(os.Kill) },
		"closed pipe": func(d *dev) { // as with `llmguard dev 2>&1 | head`, the next log line has no reader
			_ = d.out.Close()
			req, _ := http.NewRequest(http.MethodPost, d.field("base URL")+"/chat/completions", strings.NewReader(chat("gpt-4o-mini", "hello", `"max_tokens":5`)))
			req.Header.Set("Authorization", "Bearer "+d.field("API key"))
			if resp, err := client.Do(req); err == nil {
				_ = resp.Body.Close()
			}
			d.awaitEnd()
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := startDev(t)
			if n := len(leftBehind(d.tmp)); n != 1 {
				t.Fatalf("%d redis-servers of its own, want 1: `make test` installs what it needs", n)
			}
			end(d)
			awaitTrue(t, "the redis-server ended", func() bool { return len(leftBehind(d.tmp)) == 0 })
			if left, _ := os.ReadDir(d.tmp); name != "killed" && len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestDevKeepsWithData: --data keeps the keys and the spend.
func TestDevKeepsWithData(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	first := startDev(t, "--data", dir).read()
	key, admin := first.field("API key"), first.field("admin key")
	out, err := redistest.Command(t, "sh", "-c", firstCurl(first.text)).Output()
	if err != nil || !bytes.Contains(out, []byte("200 OK")) {
		t.Fatalf("%v: %s", err, out)
	}
	first.stop(syscall.SIGHUP)
	second := startDev(t, "--data", dir).read()
	if second.field("API key") != key || second.field("admin key") != admin {
		t.Error("another start has other keys")
	}
	awaitTrue(t, "the call is in the ledger", func() bool {
		lines := second.usage("user")
		return len(lines) == 1 && strings.HasPrefix(lines[0], "alice ")
	})
	if info, err := os.Stat(filepath.Join(dir, "keys.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: keys are readable by others: %v", err, info)
	}
	second.stop(os.Interrupt)
}

// firstCurl returns the first call that dev prints.
func firstCurl(text string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "  curl -i ") {
			return strings.Replace(line, "curl", "curl -s", 1)
		}
	}
	return "exit 1"
}

// TestDevSpendsOnlyWithReal: an OpenAI key in the environment is used only with --real.
func TestDevSpendsOnlyWithReal(t *testing.T) {
	t.Parallel()
	d := startDev(t).read()
	text, err := os.ReadFile(d.config)
	if err != nil || strings.Contains(string(text), "openai.com") || !strings.Contains(d.field("provider"), "calls cost nothing") {
		t.Errorf("%v: without --real: %s", err, d.field("provider"))
	}
	d.stop(os.Interrupt)
	d = startDev(t, "--real").read()
	if !strings.Contains(d.field("provider"), "calls cost money") {
		t.Errorf("with --real: %s", d.field("provider"))
	}
	d.stop(os.Interrupt)
	cmd, _ := devCommand(t, "--real")
	cmd.Env = append(cmd.Env, "OPENAI_API_KEY=")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "OPENAI_API_KEY") {
		t.Errorf("--real without a key: %v, %s", err, out)
	}
}

// TestDevPrintsWhatRuns: every command that dev prints runs in a shell unchanged, even if
// llmguard is not on the PATH.
func TestDevPrintsWhatRuns(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"--demo"}} {
		d := startDev(t, args...).read()
		setting := ""
		ran := 0
		_, text, _ := strings.Cut(d.text, "\nMake a call")
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			switch {
			case strings.HasPrefix(line, "export "):
				setting = line + "\n"
				continue
			case !strings.HasPrefix(line, "curl ") && !strings.HasPrefix(line, "for ") && !strings.HasPrefix(line, binary):
				continue
			}
			line = strings.Replace(line, " top ", " top --once ", 1) // the test has no terminal
			line = strings.Replace(line, "in 1 2 3;", "in 1;", 1)    // the other calls would wait long
			cmd := redistest.Command(t, "sh", "-ec", setting+line)
			cmd.Env = append(os.Environ(), "PATH=/usr/bin:/bin")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s\n%s", err, line, out)
			}
			ran++
		}
		if ran < 5 {
			t.Errorf("%d commands in\n%s", ran, d.text)
		}
		d.stop(os.Interrupt)
	}
}

// TestDevDemo: --demo shows 50 users in 5 orgs. One user spends the most, until the limit makes
// his calls wait.
func TestDevDemo(t *testing.T) {
	t.Parallel()
	d := startDev(t, "--demo").read()
	text, err := os.ReadFile(d.config)
	if orgs, users := strings.Count(string(text), "\n    name: "), strings.Count(string(text), "-dev, hash:"); err != nil || orgs != 5 || users != 50 {
		t.Errorf("%v: %d orgs, %d users; want 5 and 50", err, orgs, users)
	}
	awaitTrue(t, "the program out of control spent most", func() bool {
		lines := d.usage("user")
		return len(d.usage("org")) == 5 && len(lines) > 20 && slices.Contains(strings.Fields(lines[0]), "casper")
	})
	awaitTrue(t, "its calls wait", func() bool {
		return d.metric(`llmguard_budget_refusals_total{limit="user-bucket",mode="enforce"}`)
	})
	d.stop(os.Interrupt)
}
