package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// stopFor stops a process, as a hung machine would, and lets it go on, unless
// it has been killed.
func (p *process) stopFor(d time.Duration) {
	p.t.Helper()
	for _, sig := range []os.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			p.t.Error(err)
		}
		if sig == syscall.SIGSTOP {
			time.Sleep(d)
		}
	}
}

// TestZombies: workers are stopped beyond the lease of their jobs and go on
// afterwards, when others have run them. Every job has one end and one answer.
// Nothing is charged exactly that the provider was not asked for, and what it
// was asked for twice stands in the ledger twice, each with its own attempt.
func TestZombies(t *testing.T) {
	jobs, stops := 30, 3
	if n, err := strconv.Atoi(os.Getenv("LLMGUARD_CRASH_JOBS")); err == nil {
		jobs, stops = n, max(n/60, 3)
	}
	s := newStack(t, fakeprovider.Options{}, simple("[{name: w, subject: org, amount: $100, window: 1h}]")+"queue: {lease: 2s, max_attempts: 20}\n")
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Delay: time.Duration(200+rand.IntN(600)) * time.Millisecond}
	})
	p := s.proxy()
	workers := []*process{s.worker(), s.worker()}
	url := func() string { return p.URL }
	ids := make([]string, jobs)
	for i := range ids {
		ids[i] = submit(t, url, s.keys["alice"], chat("gpt-4o-mini", fmt.Sprint("job ", i), `"max_tokens":20`)).ID
		if i%(jobs/stops) == 5 {
			time.Sleep(100 * time.Millisecond) // the worker is in the midst of calls
			workers[i%2].stopFor(4500 * time.Millisecond)
		}
	}
	results := make(map[string]string)
	for _, id := range ids {
		if j := awaitJob(t, p.URL, s.keys["alice"], id, 3*time.Minute); j.Status != "succeeded" {
			t.Errorf("job %s ended as %s (%+v) after %d attempts", id, j.Status, j.Error, j.Attempts)
		}
		r := fetch(p.URL+"/jobs/"+id+"/result", s.keys["alice"])
		if r.status != http.StatusOK || !json.Valid([]byte(r.body)) {
			t.Errorf("result of %s: status %d: %.200s", id, r.status, r.body)
		}
		results[id] = r.body
	}
	workers[0].terminate() // what zombies have to say has been said then
	workers[1].terminate()
	for _, id := range ids {
		if j := awaitJob(t, p.URL, s.keys["alice"], id, time.Minute); j.Status != "succeeded" {
			t.Errorf("job %s became %s", id, j.Status)
		}
		if r := fetch(p.URL+"/jobs/"+id+"/result", s.keys["alice"]); r.body != results[id] {
			t.Errorf("job %s has a second result: %.200s", id, r.body)
		}
	}
	s.billedOnce(ids, false)
}

// billedOnce compares the ledger with the provider's log. Of a worker that was
// killed nobody knows whether it had asked already.
func (s *stack) billedOnce(ids []string, killed bool) {
	s.t.Helper()
	requests := s.fake.Log()
	asked := make(map[string]bool)
	for _, r := range requests {
		asked[r.RequestID] = true
	}
	type attempt struct {
		job string
		n   int
	}
	exact, attempts := make(map[string]budget.Entry), make(map[attempt]bool)
	entries := s.entries("acme")
	for _, e := range entries {
		if attempts[attempt{e.JobID, e.Attempt}] && !e.Estimated {
			s.t.Errorf("two charges of attempt %d of %s", e.Attempt, e.JobID)
		}
		attempts[attempt{e.JobID, e.Attempt}] = true
		if e.Estimated {
			continue
		}
		if other, ok := exact[e.UpstreamID]; ok || !asked[e.UpstreamID] {
			s.t.Errorf("charged without a request of its own: %+v and %+v", e, other)
		}
		exact[e.UpstreamID] = e
	}
	if len(entries) < len(ids) || !killed && len(entries) > len(requests) {
		s.t.Errorf("%d charges for %d requests", len(entries), len(requests))
	}
	s.t.Logf("%d jobs, %d requests, %d charges", len(ids), len(requests), len(entries))
}
