package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// llmguard runs a command on the stack's configuration.
func (s *stack) llmguard(args ...string) string {
	s.t.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.t.Fatalf("llmguard %v: %v\n%s", args, err, out)
	}
	return out
}

// try is llmguard for a command that may fail.
func (s *stack) try(args ...string) (string, error) {
	cmd := redistest.Command(s.t, binary, append(args, "-c", s.path)...)
	cmd.Env = append(os.Environ(), s.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestStop: spending is stopped while calls run, a caller waits and jobs are queued, at two
// proxies and a worker. Those that run finish, the waiting caller is answered, nothing reaches the
// provider, not even after all have restarted, and the jobs are done after the stop ends.
func TestStop(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    limits: [{name: open, metric: concurrency, subject: user, amount: 2}]
    users: [{id: alice, keys: [{id: k1, hash: "${key:alice}"}]}]
  - id: other
    limits: [{name: w, metric: requests, amount: 1000, window: 1h}]
    users: [{id: bob, keys: [{id: k2, hash: "${key:bob}"}]}]
`)
	release := make(chan struct{})
	var sent atomic.Int64
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		sent.Add(1)
		redistest.Came(t, release)
		return fakeprovider.Behaviour{}
	})
	proxies, worker := []*process{s.proxy(), s.proxy()}, s.worker()
	send := func(p *process, user, text string, header ...string) answer {
		return post(p.URL+"/chat/completions", s.keys[user], chat("gpt-4o", text, `"max_tokens":5`), header...)
	}

	var running, waiting sync.WaitGroup
	for i := range 2 {
		running.Go(func() {
			if a := send(proxies[i], "alice", fmt.Sprint("runs ", i)); a.status != http.StatusOK {
				t.Errorf("a call that ran: got status %d, %v: %s, want 200", a.status, a.err, a.body)
			}
		})
	}
	until(t, "two calls run", func() bool { return s.fake.Totals().InFlight == 2 })
	for i := range 2 {
		waiting.Go(func() {
			wantStopped(t, "a caller that waits", send(proxies[i], "alice", fmt.Sprint("waits ", i)))
		})
	}
	until(t, "two callers wait", func() bool {
		return proxies[0].value("llmguard_proxy_waiting_callers") == 1 && proxies[1].value("llmguard_proxy_waiting_callers") == 1
	})
	var jobs []string
	for i := range 6 {
		a := send(proxies[i%2], "alice", fmt.Sprint("job ", i), "Prefer", "respond-async")
		if a.status != http.StatusAccepted {
			t.Fatalf("job: got status %d: %s", a.status, a.body)
		}
		jobs = append(jobs, strings.TrimPrefix(a.header.Get("Location"), "/v1/jobs/"))
	}

	s.llmguard("stop", "--reason", "test")
	time.Sleep(time.Second) // the promise: from now on nothing is sent
	before := sent.Load()
	redistest.Wait(t, waiting.Wait)
	refused := func() {
		t.Helper()
		for _, p := range proxies {
			wantStopped(t, "a new call", send(p, "bob", "new"))
			wantStopped(t, "a new job", send(p, "alice", "new", "Prefer", "respond-async"))
		}
	}
	refused()
	close(release)
	redistest.Wait(t, running.Wait)
	until(t, "nothing runs", func() bool { return s.fake.Totals().InFlight == 0 })
	if n := proxies[0].value(`llmguard_guard_stopped{scope="deployment"}`); n != 1 {
		t.Errorf("metric of the stop: got %v, want 1", n)
	}

	// A restart of Redis and of every process keeps the stop.
	for _, p := range append(proxies, worker) {
		p.terminate()
	}
	s.redis.Kill()
	s.redis.Restart()
	proxies = []*process{s.proxy(), s.proxy()}
	s.worker()
	refused()
	time.Sleep(2 * time.Second) // several checks for work
	if n := sent.Load() - before; n != 0 {
		t.Errorf("after the stop: got %d requests at the provider, want 0", n)
	}
	if a := send(proxies[0], "alice", "job 0"); a.status != http.StatusForbidden {
		t.Errorf("still stopped: got status %d, want 403", a.status)
	}

	// One org stays stopped by name.
	s.llmguard("stop", "--org", "other", "--reason", "test")
	if out := s.llmguard("resume"); !strings.Contains(out, "still stopped: org other") {
		t.Errorf("resume: got %q, want the org that is still stopped", out)
	}
	for _, id := range jobs {
		until(t, "job "+id+" is done", func() bool {
			return strings.Contains(get(proxies[1].URL+"/jobs/"+id, s.keys["alice"]).body, `"status":"succeeded"`)
		})
	}
	wantStopped(t, "a call of the other org", send(proxies[0], "bob", "new"))
	s.llmguard("resume", "--org", "other")
	until(t, "the other org may call", func() bool { return send(proxies[1], "bob", "again").status == http.StatusOK })
}

// wantStopped requires the answer to a call while spending is stopped.
func wantStopped(t *testing.T, what string, a answer) {
	t.Helper()
	if a.err != nil || a.status != http.StatusForbidden || !strings.Contains(a.body, `"spending_stopped"`) ||
		a.header.Get("X-Should-Retry") != "false" {
		t.Errorf("%s: got status %d, %v, %v: %s; want 403 spending_stopped", what, a.status, a.err, a.header, a.body)
	}
}
