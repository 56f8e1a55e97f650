package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/fakeprovider"
)

// pause stops a process, like a hung machine. The returned function resumes it, unless it has
// been killed.
func (p *process) pause() (resume func()) {
	p.t.Helper()
	signal := func(sig os.Signal) {
		err := p.cmd.Process.Signal(sig)
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			p.t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }
}

// stopFor pauses a process for d.
func (p *process) stopFor(d time.Duration) {
	p.t.Helper()
	resume := p.pause()
	time.Sleep(d)
	resume()
}

// TestZombies: workers are stopped during calls, for longer than their jobs' lease, and
// continue after another worker has run the jobs. Every job has one end and one response. Each
// exact charge belongs to a request that reached the provider, and a job with two requests has
// two charges, one per attempt.
func TestZombies(t *testing.T) {
	t.Parallel()
	rounds, jobs := either(2, 30), either(5, 20)
	s := newStack(t, fakeprovider.Options{}, simple("[{name: w, subject: org, amount: $100, window: 1h}]")+"queue: {lease: 2s, max_attempts: 20}\n")
	g := s.gate(nil)
	g.once = true
	p := s.proxy()
	var ids []string
	for i := range rounds {
		ids = append(ids, s.zombie(p, g, fmt.Sprint("round ", i, " job "), jobs)...)
	}
	if n := len(s.fake.Log()); n < len(ids)+rounds {
		t.Errorf("%d requests for %d jobs, and in each of %d rounds one was run again", n, len(ids), rounds)
	}
	s.billedOnce(ids, false)
	s.costAll(p, ids)
}

// zombie stops a worker while its call is at the provider, lets another worker run its jobs,
// and resumes the first.
func (s *stack) zombie(p *process, g *gate, name string, jobs int) (ids []string) {
	s.t.Helper()
	url := func() string { return p.URL }
	first := s.worker()
	texts := append(make([]string, jobs), gated)
	for i, text := range texts {
		ids = append(ids, submit(s.t, url, s.keys["alice"], chat("gpt-4o-mini", fmt.Sprint(name, i, text), `"max_tokens":20`)).ID)
	}
	g.awaitHeld()
	resume := first.pause()
	second := s.worker()
	results := make(map[string]string)
	for _, id := range ids {
		results[id] = s.succeeded(p, id)
	}
	resume()
	g.release()
	first.terminate() // after this, zombies have reported everything
	second.terminate()
	for _, id := range ids {
		if now := s.succeeded(p, id); now != results[id] {
			s.t.Errorf("job %s has a second result: %.200s, and before %.200s", id, now, results[id])
		}
	}
	return ids
}

// succeeded waits for a job to end and returns its result.
func (s *stack) succeeded(p *process, id string) string {
	s.t.Helper()
	j := awaitJob(s.t, p.URL, s.keys["alice"], id, 3*time.Minute)
	if j.Status != "succeeded" {
		s.t.Errorf("job %s ended as %s (%+v) after %d attempts", id, j.Status, j.Error, j.Attempts)
	}
	r := fetch(p.URL+"/jobs/"+id+"/result", s.keys["alice"])
	if r.status != http.StatusOK || !json.Valid([]byte(r.body)) {
		s.t.Errorf("result of %s: status %d: %.200s", id, r.status, r.body)
	}
	return r.body
}

// billedOnce compares the ledger with the provider's log once nothing is held. What a killed
// worker had not yet reported is charged at the end of its lease, even though it is unknown
// whether its request had been sent.
func (s *stack) billedOnce(ids []string, killed bool) {
	s.t.Helper()
	s.noHolds()
	requests := s.fake.Log()
	asked := make(map[string]bool)
	for _, r := range requests {
		asked[r.RequestID] = true
	}
	type attempt struct {
		job string
		n   int
	}
	exact, attempts := make(map[string]ledger.Entry), make(map[attempt]bool)
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
