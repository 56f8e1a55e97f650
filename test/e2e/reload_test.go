package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// rewrite changes the configuration file and returns the value of llmguard_config_hash once it
// is in effect.
func (s *stack) rewrite(change func(string) string) float64 {
	s.t.Helper()
	text, err := os.ReadFile(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	next := []byte(change(string(text)))
	if string(next) == string(text) {
		s.t.Fatal("the change changes nothing")
	}
	if err := os.WriteFile(s.path, next, 0o600); err != nil {
		s.t.Fatal(err)
	}
	sum := sha256.Sum256(next)
	n, err := strconv.ParseUint(hex.EncodeToString(sum[:6]), 16, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return float64(n)
}

// hangUp makes the process reload its configuration.
func (p *process) hangUp() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		p.t.Fatal(err)
	}
}

// awaitValue waits until a metric has a value.
func (p *process) awaitValue(sample string, want float64) {
	p.t.Helper()
	var got float64
	for range 1500 {
		if got = p.value(sample); got == want {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.t.Fatalf("%v: %s is %v and not %v; its log:\n%s", p.cmd.Args, sample, got, want, p.remarks())
}

// remarks returns the process's log without calls and jobs.
func (p *process) remarks() string {
	var out strings.Builder
	for line := range strings.Lines(p.log()) {
		if !strings.Contains(line, `"msg":"call"`) && !strings.Contains(line, `"msg":"job"`) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// awaitJob waits until a job has succeeded.
func (p *process) awaitJob(key, id string) {
	p.t.Helper()
	var job struct{ Status string }
	for range 3000 {
		a := get(p.URL+"/jobs/"+id, key)
		if _ = json.Unmarshal([]byte(a.body), &job); job.Status == "succeeded" {
			return
		}
		if job.Status == "failed" {
			p.t.Fatalf("the job failed: %s", a.body)
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.t.Fatalf("the job is %s", job.Status)
}

const reloadable = `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}", pools: [{id: main, models: ["gpt-*"], worker_concurrency: 3}]}
  # more providers
prices:
  - {model: house, prices: [{input: 1, output: 2}]}
orgs:
  - id: acme
    limits: [{name: w, amount: $1000, window: 1h}]
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
      # more users
`

// grown returns the configuration of reload i: a provider with a pool that replaces the
// previous one, a user with a key, and changed limits.
func (s *stack) grown(text, key string, i int) string {
	text = strings.Replace(text, "  # more providers\n", fmt.Sprintf(
		"  - {id: house%d, base_url: %q, api_key: %q, pools: [{id: house%d, models: [house]}]}\n  # more providers\n", i, s.fake.BaseURL(), providerKey, i), 1)
	if i > 0 {
		text = strings.Replace(text, fmt.Sprintf("house%d, models: [house]", i-1), fmt.Sprintf("house%d, models: [\"none*\"]", i-1), 1)
	}
	text = strings.Replace(text, "      # more users\n", fmt.Sprintf(
		"      - {id: user%d, keys: [{id: user%d, hash: %q}]}\n      # more users\n", i, i, keys.Hash(keys.Pepper{}, key)), 1)
	text = strings.Replace(text, fmt.Sprintf("amount: $%d,", 1000+i), fmt.Sprintf("amount: $%d,", 1001+i), 1)
	return strings.Replace(text, fmt.Sprintf("worker_concurrency: %d", 3+i), fmt.Sprintf("worker_concurrency: %d", 4+i), 1)
}

// TestReloadUnderLoad: reloads add providers with pools, users with keys and changed limits
// under traffic. No call fails, new keys and pools work immediately, live and in the worker,
// and calls in progress complete.
func TestReloadUnderLoad(t *testing.T) {
	t.Parallel()
	reloads := either(3, 30)
	s := newStack(t, fakeprovider.Options{}, reloadable)
	g := s.gate(nil)
	proxy, worker := s.proxy(), s.worker()
	var calls, failed atomic.Int64
	var wg sync.WaitGroup
	done := make(chan struct{})
	stop := sync.OnceFunc(func() { close(done); redistest.Wait(t, wg.Wait) })
	defer stop()
	call := func(key, body string, prefer ...string) answer {
		a := post(proxy.URL+"/chat/completions", key, body, prefer...)
		calls.Add(1)
		if (a.err != nil || a.status != http.StatusOK && a.status != http.StatusAccepted) && failed.Add(1) < 10 {
			t.Errorf("status %d, %v: %s", a.status, a.err, a.body)
		}
		return a
	}
	wg.Go(func() { call(s.keys["alice"], chat("gpt-4o", gated, `"max_tokens":5,"stream":true`)) })
	g.awaitHeld()
	for i := range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(10 * time.Millisecond):
					call(s.keys["alice"], chat("gpt-4o", "hi", `"max_tokens":5`+[]string{"", `,"stream":true`}[i%2]))
				}
			}
		})
	}
	for i := range reloads {
		key := keys.New(keys.Live)
		hash := s.rewrite(func(text string) string { return s.grown(text, key, i) })
		before := calls.Load()
		for _, p := range []*process{proxy, worker} {
			p.hangUp()
		}
		for _, p := range []*process{proxy, worker} {
			p.awaitValue("llmguard_config_hash", hash)
		}
		call(key, chat("house", "hi", `"max_tokens":5`))
		for _, model := range []string{"house", "gpt-4o"} {
			var job struct{ ID string }
			if a := call(key, chat(model, "hi", `"max_tokens":5`), "Prefer", "respond-async"); json.Unmarshal([]byte(a.body), &job) != nil || job.ID == "" {
				t.Fatalf("no job: %s", a.body)
			}
			proxy.awaitJob(key, job.ID)
		}
		until(t, "calls were made meanwhile", func() bool { return calls.Load() >= before+20 })
	}
	g.release()
	stop()
	if failed.Load() > 0 {
		t.Errorf("%d of %d calls failed", failed.Load(), calls.Load())
	}
	t.Logf("%d calls over %d reloads", calls.Load(), reloads)
	a := post(proxy.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hi", `"max_tokens":5`))
	if limits := a.header.Get("X-Llmguard-Limits"); !strings.Contains(limits, fmt.Sprint(1000+reloads)) {
		t.Errorf("the limit is not the new one: %s", limits)
	}
	worker.terminate()
	proxy.terminate()
}

// TestReloadRefused: an invalid file changes nothing and is reported in the log and the
// metrics. If some changes need a restart, only the others take effect.
func TestReloadRefused(t *testing.T) {
	t.Parallel()
	key := keys.New(keys.Admin)
	s := newStack(t, fakeprovider.Options{}, reloadable)
	s.rewrite(func(text string) string {
		return strings.Replace(text, `admin: {listen: "127.0.0.1:0"}`, `admin: {listen: "127.0.0.1:0", keys: [{id: ops, hash: "`+keys.Hash(keys.Pepper{}, key)+`"}]}`, 1)
	})
	for _, p := range []*process{s.proxy(), s.worker()} {
		before := p.value("llmguard_config_hash")
		old, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		s.rewrite(func(text string) string { return strings.Replace(text, "limits:", "limts:", 1) })
		p.hangUp()
		p.awaitValue("llmguard_config_last_reload_successful", 0)
		if got := p.value("llmguard_config_hash"); got != before {
			t.Errorf("the hash changed from %v to %v", before, got)
		}
		p.await("reload failed, still running the previous configuration", func(line map[string]any) {
			if text, _ := line["err"].(string); !strings.Contains(text, `unknown field "limts"; did you mean "limits"?`) {
				t.Errorf("the log says %q", text)
			}
		})
		if p.URL != "" {
			if a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hi", `"max_tokens":5`)); a.status != http.StatusOK {
				t.Errorf("status %d: %s", a.status, a.body)
			}
		}
		hash := s.rewrite(func(string) string {
			return strings.Replace(string(old), "listen: 127.0.0.1:0\n", "listen: 127.0.0.1:1\nlog: {level: debug}\n", 1)
		})
		p.hangUp()
		p.awaitValue("llmguard_config_hash", hash)
		if ok, wait := p.value("llmguard_config_last_reload_successful"), p.value("llmguard_config_restart_needed"); ok != 1 || wait != 1 {
			t.Errorf("successful is %v, %v fields wait for a restart; want 1 and 1", ok, wait)
		}
		p.await("some changed fields need a restart to take effect", func(line map[string]any) {
			if fields := fmt.Sprint(line["fields"]); fields != "[listen]" {
				t.Errorf("what needs a restart is %s", fields)
			}
		})
		taken, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		signalled := ""
		until(t, "the audit has the reload by a signal", func() bool {
			signalled = get(p.Admin+"/admin/v1/audit?actor=signal&limit=1", key).body
			return strings.Contains(signalled, fmt.Sprintf(`"after":{"hash":"%x"`, sha256.Sum256(taken)))
		})
		for _, want := range []string{`"action":"config.reload"`, `"before":{"hash":"`, `"needs_restart":["listen"]`} {
			if !strings.Contains(signalled, want) {
				t.Errorf("the audit of a reload by a signal has no %s: %s", want, signalled)
			}
		}
		reload := p.Admin + "/admin/v1/config/reload"
		if a := post(reload, s.keys["alice"], ""); a.status != http.StatusUnauthorized {
			t.Errorf("a caller's key reloads: status %d: %s", a.status, a.body)
		}
		if a := post(reload, key, ""); a.status != http.StatusOK || !strings.Contains(a.body, `"needs_restart":["listen"]`) || !strings.Contains(a.body, `"changed":[]`) {
			t.Errorf("status %d: %s", a.status, a.body)
		}
		s.rewrite(func(text string) string { return strings.Replace(text, "level: debug", "level: loud", 1) })
		if a := post(reload, key, ""); a.status != http.StatusBadRequest || !strings.Contains(a.body, "log.level: expected one of debug, info, warn, error, got") {
			t.Errorf("status %d: %s", a.status, a.body)
		}
		if err := os.WriteFile(s.path, old, 0o600); err != nil {
			t.Fatal(err)
		}
		p.terminate()
	}
}

// TestDoctor runs doctor against real processes: healthy ones, one that rejected a file, and a
// worker that is down.
func TestDoctor(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, reloadable)
	proxy, worker := s.proxy(), s.worker()
	doctor := func() (string, int) {
		cmd := redistest.Command(t, binary, "doctor", "-c", s.path, "--url", proxy.Admin, "--url", worker.Admin)
		out, err := cmd.CombinedOutput()
		if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := doctor()
	if code != 0 || !strings.Contains(out, "all processes run with the same configuration file") || !strings.Contains(out, "no hold is overdue in 1 org") || strings.Contains(out, "ERROR") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	old, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	s.rewrite(func(text string) string { return strings.Replace(text, "limits:", "limts:", 1) })
	proxy.hangUp()
	proxy.awaitValue("llmguard_config_last_reload_successful", 0)
	if err := os.WriteFile(s.path, append(old, "# newer\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, code := doctor(); code != 2 || !strings.Contains(out, "its configuration file is invalid") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	before := proxy.value("llmguard_config_hash")
	worker.hangUp()
	until(t, "the worker reloaded", func() bool { return worker.value("llmguard_config_hash") != before })
	if out, _ := doctor(); !strings.Contains(out, "run with different configuration files") {
		t.Error(out)
	}
	worker.kill()
	if out, code := doctor(); code != 2 || !strings.Contains(out, "does not answer") {
		t.Errorf("exit %d:\n%s", code, out)
	}
}
