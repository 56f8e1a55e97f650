package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// from sends a request as a load balancer would for a caller with an address.
func (p *process) from(address, key, method, path, body string) reply {
	p.t.Helper()
	req, err := http.NewRequest(method, p.URL+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("X-Forwarded-For", address)
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		p.t.Error(err)
		return reply{}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Error(err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

// all sends n requests, evenly to the processes and in parallel, and counts the statuses.
func all(t *testing.T, n int, send func(i int) reply) map[int]int {
	var mu sync.Mutex
	got := map[int]int{}
	var group sync.WaitGroup
	places := make(chan struct{}, 8)
	for i := range n {
		places <- struct{}{}
		group.Go(func() {
			defer func() { redistest.Came(t, places) }()
			r := send(i)
			mu.Lock()
			got[r.status]++
			mu.Unlock()
		})
	}
	redistest.Wait(t, group.Wait)
	return got
}

// refusedBy fails the test unless the reply is a 429 in OpenAI's form that names the limit.
func (r reply) refusedBy(t *testing.T, limit string) {
	t.Helper()
	if r.status != 429 || r.header.Get("Retry-After") == "" || !strings.Contains(r.body, `"rate_limit_exceeded"`) ||
		!strings.Contains(r.body, fmt.Sprintf(`limit \"%s\"`, limit)) {
		t.Errorf("got status %d, Retry-After %q, %s; want 429 by limit %s", r.status, r.header.Get("Retry-After"), r.body,
			limit)
	}
}

// TestRequestLimits: two proxies count requests together, per address before the key is known, per
// key, user and org after that. A restart forgets nothing.
func TestRequestLimits(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, simple("[]")+`
trusted_proxies: [127.0.0.1]
request_limits:
  - {name: address, subject: ip, amount: 40, window: 1d}
  - {name: lists, subject: user, endpoints: [/v1/jobs], methods: [GET], bucket: {capacity: 3, refill: 1/1d}}
  - {name: reads, subject: key, class: read, amount: 5, window: 1d}
  - {name: calls, subject: org, class: spend, amount: 2, window: 1d}
  - {name: watched, subject: ip, amount: 1, window: 1d, mode: shadow}
`)
	a, b := s.proxy(), s.proxy()
	nowhere := func(address func(i int) string) map[int]int {
		return all(t, 60, func(i int) reply {
			return []*process{a, b}[i%2].from(address(i), "none", "GET", "/nothing", "")
		})
	}
	same := func(int) string { return "198.51.100.1" }
	if got := nowhere(same); got[404] != 40 || got[429] != 20 {
		t.Errorf("one address: got statuses %v, want 40 times 404 and 20 times 429", got)
	}
	network := func(i int) string { return fmt.Sprintf("2001:db8::%x", i+1) }
	if got := nowhere(network); got[404] != 40 || got[429] != 20 {
		t.Errorf("addresses of a /64: got statuses %v, want 40 times 404 and 20 times 429", got)
	}
	networks := func(i int) string { return fmt.Sprintf("2001:db8:0:%x::1", i+1) }
	if got := nowhere(networks); got[404] != 60 {
		t.Errorf("addresses of many networks: got statuses %v, want 404 only", got)
	}
	a.kill()
	a = s.proxy()
	a.from("198.51.100.1", "none", "GET", "/nothing", "").refusedBy(t, "address")
	a.from("198.51.100.1", s.keys["alice"], "POST", "/chat/completions", hello).refusedBy(t, "address")

	const home = "192.0.2.1"
	got := all(t, 6, func(i int) reply { return []*process{a, b}[i%2].from(home, s.keys["alice"], "GET", "/jobs/", "") })
	if got[200] != 3 || got[429] != 3 {
		t.Errorf("lists of jobs: got statuses %v, want three times 200", got)
	}
	b.from(home, s.keys["alice"], "GET", "/jobs", "").refusedBy(t, "lists")
	got = all(t, 4, func(i int) reply { return []*process{a, b}[i%2].from(home, s.keys["alice"], "GET", "/limits", "") })
	if got[200] != 2 || got[429] != 2 {
		t.Errorf("other reads: got statuses %v, want twice 200", got)
	}
	b.from(home, s.keys["alice"], "GET", "/models", "").refusedBy(t, "reads")
	if r := b.from(home, s.keys["alice"], "POST", "/jobs/job_none/cancel", ""); r.status != 404 {
		t.Errorf("a cancellation: got status %d, %s; want 404", r.status, r.body)
	}
	got = all(t, 4, func(i int) reply {
		return []*process{a, b}[i%2].from(home, s.keys["alice"], "POST", "/chat/completions", hello)
	})
	if got[200] != 2 || got[429] != 2 {
		t.Errorf("calls: got statuses %v, want twice 200", got)
	}
	a.from(home, s.keys["alice"], "POST", "/batches", "{}").refusedBy(t, "calls")
	for sample, least := range map[string]float64{
		`llmguard_budget_request_refusals_total{limit="calls",mode="enforce"}`:        1,
		`llmguard_budget_request_refusals_total{limit="watched",mode="shadow"}`:       1,
		`llmguard_guard_refused_calls_total{cause="requests:calls",org="acme"}`:       1,
		`llmguard_guard_refused_calls_total{cause="requests:address",org="_unknown"}`: 1,
	} {
		if n := a.value(sample); n < least {
			t.Errorf("%s: got %v, want %v or more", sample, n, least)
		}
	}

	s.redis.Kill()
	for name, p := range map[string]*process{"a": a, "b": b} {
		got := all(t, 60, func(int) reply { return p.from("203.0.113.5", "none", "GET", "/nothing", "") })
		if got[404] != 40 || got[429] != 20 {
			t.Errorf("%s without Redis: got statuses %v, want 40 times 404 and 20 times 429", name, got)
		}
	}
}

const hello = `{"model":"gpt-4o-mini","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}`

// TestWrongKeysOfSeveralProcesses: two proxies allow no more wrong keys than one, and neither a
// restart nor a network of addresses allows more. The right key always works.
func TestWrongKeysOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, simple("[]")+"\ntrusted_proxies: [127.0.0.1]\n")
	a, b := s.proxy(), s.proxy()
	began := time.Now()
	guess := func(address func(i int) string, n int) int {
		got := all(t, n, func(i int) reply {
			return []*process{a, b}[i%2].from(address(i), keys.New(keys.Live), "GET", "/models", "")
		})
		if got[401]+got[429] != n {
			t.Errorf("got statuses %v, want 401 and 429 only", got)
		}
		return got[401]
	}
	for name, address := range map[string]func(i int) string{
		"one address":        func(int) string { return "198.51.100.1" },
		"addresses of a /64": func(i int) string { return fmt.Sprintf("2001:db8::%x", i+1) },
	} {
		checked := guess(address, 60)
		a.kill()
		a = s.proxy()
		checked += guess(address, 60)
		if most := 21 + int(time.Since(began)/time.Second); checked < 20 || checked > most {
			t.Errorf("%s: got %d wrong keys checked, want 20 to %d", name, checked, most)
		}
		if r := b.from(address(0), s.keys["alice"], "GET", "/models", ""); r.status != 200 {
			t.Errorf("%s, the right key: got status %d, %s; want 200", name, r.status, r.body)
		}
	}
	many := func(i int) string { return fmt.Sprintf("2001:db8:1:%x::1", i+1) }
	checked, most := guess(many, 400), 201+10*int(time.Since(began)/time.Second+1)
	if checked > most {
		t.Errorf("many networks: got %d wrong keys checked, want at most %d", checked, most)
	}
	kept, err := s.redis.Client().Keys(t.Context(), "lg:{auth:}:*").Result()
	if err != nil || len(kept) > most {
		t.Errorf("got %d keys in Redis, %v; want at most %d", len(kept), err, most)
	}
	for _, key := range kept {
		if ttl := s.redis.Client().PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > 5*time.Minute {
			t.Errorf("%s: got time to live %v, want one below 5 minutes", key, ttl)
		}
	}
	s.redis.Kill()
	if got := guess(func(int) string { return "203.0.113.5" }, 30); got > 42+2*int(time.Since(began)/time.Second) {
		t.Errorf("without Redis: got %d wrong keys checked, want no more than each proxy allows", got)
	}
	if r := b.from("203.0.113.5", s.keys["alice"], "GET", "/models", ""); r.status != 200 {
		t.Errorf("without Redis, the right key: got status %d, %s; want 200", r.status, r.body)
	}
}
