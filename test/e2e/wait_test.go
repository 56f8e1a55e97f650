package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// tight allows one call of about 50 output tokens of gpt-4o per 2 s.
const (
	tight       = "[{name: small, subject: user, amount: $0.0006, window: 2s}]"
	tightWindow = 2 * time.Second
)

const oneCall = `"max_tokens":50`

// TestWait: calls over a limit wait, plain and as streams, or are refused, at one proxy.
func TestWait(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, fmt.Sprintf(`
queue: {keep_alive: 300ms}
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    limits: %s
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
      - {id: bob, keys: [{id: k2, hash: "${key:bob}"}]}
  - id: patient
    limits: [{name: slow, subject: user, amount: $0.0006, window: 1h}]
    users: [{id: carla, keys: [{id: k3, hash: "${key:carla}"}]}]
`, tight))
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Fill: true} })
	p := s.proxy()
	s.worker()
	t.Run("plain", func(t *testing.T) { waitsPlain(t, s, p) })
	t.Run("stream", func(t *testing.T) { waitsStreaming(t, s, p) })
	t.Run("ends", func(t *testing.T) { waitEnds(t, s, p) })
}

// waitsPlain: a call over the limit is answered late, not refused.
func waitsPlain(t *testing.T, s *stack, p *process) {
	call := func() (waited bool) {
		t.Helper()
		a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hi", oneCall))
		if a.status != 200 || !strings.Contains(a.body, `"choices"`) {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		if a.header.Get("X-Llmguard-Cost-Usd") == "" || a.header.Get("X-Request-Id") == "" {
			t.Errorf("headers %v", a.header)
		}
		return a.header.Get("X-Llmguard-Waited-Ms") != ""
	}
	waits(t, call)
}

// waits makes sequential calls of a user under the tight limit until one has waited. On a very
// slow machine the window of the previous call may have passed already.
func waits(t *testing.T, call func() (waited bool)) {
	t.Helper()
	for n := range 20 {
		before := time.Now()
		if call() && n == 0 {
			t.Fatal("the first call waited")
		}
		if call() {
			return
		}
		if took := time.Since(before); took < tightWindow {
			t.Fatalf("two calls passed within %v", took)
		}
	}
	t.Fatal("no call waited")
}

// waitsStreaming: a waiting stream receives bare newlines, then the worker's bytes.
func waitsStreaming(t *testing.T, s *stack, p *process) {
	body := chat("gpt-4o", "hi", oneCall+`,"stream":true`)
	waits(t, func() bool {
		t.Helper()
		a := post(p.URL+"/chat/completions", s.keys["bob"], body)
		rest := strings.TrimLeft(a.body, "\n")
		if a.status != 200 || a.err != nil || !strings.HasPrefix(rest, "data: ") || !strings.HasSuffix(rest, "data: [DONE]\n\n") {
			t.Fatalf("want newlines and then the stream, got %d, %v: %q", a.status, a.err, a.body)
		}
		return len(a.body)-len(rest) >= 2
	})
}

// waitEnds: a call that would wait longer than its caller allows is refused, immediately if
// that is foreseeable.
func waitEnds(t *testing.T, s *stack, p *process) {
	before := len(s.fake.Log())
	body := chat("gpt-4o", "hi", oneCall)
	if a := post(p.URL+"/chat/completions", s.keys["carla"], body); a.status != 200 {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	a := post(p.URL+"/chat/completions", s.keys["carla"], body)
	_, code, message := errorOf(t, a)
	if a.status != 429 || code != "rate_limit_exceeded" || !strings.Contains(message, `"slow"`) {
		t.Errorf("status %d, code %q: %s", a.status, code, message)
	}
	if a.header.Get("X-Should-Retry") != "false" || a.header.Get("Retry-After") == "" {
		t.Errorf("headers %v", a.header)
	}
	never := post(p.URL+"/chat/completions", s.keys["carla"], chat("gpt-4o", "hi", `"max_tokens":5000`))
	_, code, message = errorOf(t, never)
	if never.status != 402 || code != "insufficient_quota" || never.header.Get("Retry-After") != "" || never.header.Get("X-Should-Retry") != "false" {
		t.Errorf("status %d, code %q, headers %v", never.status, code, never.header)
	}
	if !strings.Contains(message, `"slow"`) || !strings.Contains(message, "max_completion_tokens") {
		t.Errorf("the refusal does not say which limit and what would fit: %s", message)
	}
	if n := len(s.fake.Log()) - before; n != 1 {
		t.Errorf("%d calls reached the provider, want 1", n)
	}
}

// TestJobs: submit, watch, read, list, cancel; other users see nothing.
func TestJobs(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    limits: [{name: small, subject: user, amount: $0.0006, window: 1h}]
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
      - {id: anna, keys: [{id: k2, hash: "${key:anna}"}]}
  - id: other
    users:
      - {id: alice, keys: [{id: k3, hash: "${key:eve}"}]}
`)
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Fill: true} })
	p := s.proxy()
	s.worker()
	key := s.keys["alice"]
	a := post(p.URL+"/chat/completions", key, chat("gpt-4o", "hi", oneCall), "Prefer", "respond-async")
	var j job
	if err := json.Unmarshal([]byte(a.body), &j); err != nil || a.status != 202 {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	if a.header.Get("Location") != "/v1/jobs/"+j.ID || a.header.Get("Preference-Applied") != "respond-async" {
		t.Errorf("headers %v", a.header)
	}
	if done := awaitJob(t, p.URL, key, j.ID, time.Minute); done.Status != "succeeded" || done.Charged == nil || *done.Charged == "0" {
		t.Errorf("job %+v", done)
	}
	if r := get(p.URL+"/jobs/"+j.ID+"/result", key); r.status != 200 || !strings.Contains(r.body, `"choices"`) {
		t.Errorf("result: status %d: %s", r.status, r.body)
	}
	// The window is used up now: the next job waits and can be cancelled.
	second := submit(t, func() string { return p.URL }, key, chat("gpt-4o", "again", oneCall))
	if r := get(p.URL+"/jobs/"+second.ID+"/result", key); r.status != 409 {
		t.Errorf("result of a waiting job: status %d: %s", r.status, r.body)
	}
	if list := get(p.URL+"/jobs?limit=1", key); !strings.Contains(list.body, second.ID) || !strings.Contains(list.body, `"has_more":true`) {
		t.Errorf("list: %s", list.body)
	}
	for _, who := range []string{"anna", "eve"} {
		for _, path := range []string{"", "/result"} {
			if r := get(p.URL+"/jobs/"+j.ID+path, s.keys[who]); r.status != 404 {
				t.Errorf("%s reads alice's job%s: status %d", who, path, r.status)
			}
		}
		if r := post(p.URL+"/jobs/"+second.ID+"/cancel", s.keys[who], ""); r.status != 404 {
			t.Errorf("%s cancels alice's job: status %d", who, r.status)
		}
		if list := get(p.URL+"/jobs", s.keys[who]); strings.Contains(list.body, "job_") {
			t.Errorf("%s lists alice's jobs: %s", who, list.body)
		}
	}
	// If the worker is trying the job right now, it ends after the attempt.
	if r := post(p.URL+"/jobs/"+second.ID+"/cancel", key, ""); r.status != 200 || !strings.Contains(r.body, `"cancelled"`) && !strings.Contains(r.body, `"cancelling":true`) {
		t.Errorf("cancel: status %d: %s", r.status, r.body)
	}
	if done := awaitJob(t, p.URL, key, second.ID, time.Minute); done.Status != "cancelled" {
		t.Errorf("job %+v", done)
	}
	if n := len(s.fake.Log()); n != 1 {
		t.Errorf("%d calls reached the provider, want 1", n)
	}
}

// TestLeft: a caller that disconnects while waiting is dropped. If it disconnects from a
// stream, the upstream call is cancelled and the output so far is charged.
func TestLeft(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{Cadence: fakeprovider.Cadence{Token: 50 * time.Millisecond}}, simple(roomy))
	p := s.proxy()
	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/chat/completions",
		strings.NewReader(chat("gpt-4o", "[fake: output=2000]", `"stream":true,"max_tokens":4000`)))
	req.Header.Set("Authorization", "Bearer "+s.keys["alice"])
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	held, err := pricing.ParseUSD(resp.Header.Get("X-Llmguard-Held-Usd"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	for range 20 {
		lines.Scan()
	}
	cancel()
	resp.Body.Close()
	entry := s.settled("acme", 1)[0]
	if !entry.Estimated || entry.Cost <= 0 || entry.Cost >= held/2 {
		t.Errorf("want a small estimated charge, got %+v", entry)
	}
	if err := s.fake.Quiet(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r := s.fake.Log()[0]; r.Outcome != fakeprovider.ClientGone {
		t.Errorf("the provider was not cancelled: %+v", r.Outcome)
	}
}

// TestUpstreamFailures: what is charged for each failure of the provider, according to the
// ledger.
func TestUpstreamFailures(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, simple(roomy))
	p := s.proxy()
	cases := []struct {
		directive, extra string
		status           int
		charged          string // "nothing", "exact", "some", "came"
	}{
		{"status=400", "", 400, "nothing"},
		{"status=401", "", 502, "nothing"},
		{"status=404 body=string", "", 404, "nothing"},
		{"status=500", "", 500, "nothing"},
		{"status=502 body=html", "", 502, "nothing"},
		{"cut=headers", "", 502, "some"},
		{"cut=abort", "", 502, "some"},
		{"usage=none", "", 200, "some"},
		{"usage=negative", "", 200, "some"},
		{"cut=reset", `,"stream":true`, 200, "came"},
		{"cut=eof", `,"stream":true`, 200, "came"},
		{"usage=none", `,"stream":true`, 200, "some"},
		{"cut=nodone", `,"stream":true`, 200, "exact"},
	}
	n := 0
	for _, c := range cases {
		t.Run(c.directive+c.extra, func(t *testing.T) {
			a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "[fake: output=40 "+c.directive+"]", `"max_tokens":100`+c.extra))
			if a.status != c.status {
				t.Errorf("status %d, want %d: %s", a.status, c.status, a.body)
			}
			if a.status >= 400 {
				errorOf(t, a)
			}
			broken := strings.Contains(c.directive, "reset") || strings.Contains(c.directive, "eof")
			if broken && a.err == nil && !strings.Contains(a.body, `data: {"error":`) {
				t.Errorf("a broken stream ended like a whole one: %q", a.body)
			}
			s.llmguard("queue", "resume", "openai") // which a refused credential pauses
			if c.charged == "nothing" {
				return
			}
			n++
			entries := s.settled("acme", n)
			e := entries[len(entries)-1]
			if (c.charged == "exact") == e.Estimated {
				t.Errorf("estimated is %v: %+v", e.Estimated, e)
			}
			if c.charged == "came" && e.Usage.Output >= 15 { // grows with the time until it was noticed
				return
			}
			if e.Usage.Output > 100 || e.Cost <= 0 {
				t.Errorf("charged %v for %+v, want %s", e.Cost, e.Usage, c.charged)
			}
		})
	}
	if got := len(s.entries("acme")); got != n {
		t.Errorf("%d entries in the ledger, want %d", got, n)
	}
}

// TestProviderBusy: a provider's 429 makes the call wait, not fail.
func TestProviderBusy(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, simple(roomy))
	p := s.proxy()
	s.worker()
	a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "[fake: status=429 retry-after=1 times=1]", `"max_tokens":10`))
	if a.status != 200 || a.header.Get("X-Llmguard-Waited-Ms") == "" {
		t.Errorf("status %d, headers %v: %s", a.status, a.header, a.body)
	}
	if n := len(s.settled("acme", 1)); n != 1 {
		t.Errorf("%d charges, want 1", n)
	}
}

// TestQuota: two proxies share a pool's quota. The provider never sees more calls than a tenth
// of the per-minute quota plus what has refilled since, and never more concurrent calls than
// the pool allows.
func TestQuota(t *testing.T) {
	t.Parallel()
	const calls, rpm, concurrency = 40, 120, 4
	s := newStack(t, fakeprovider.Options{}, strings.Replace(simple(roomy), `api_key: "${provider_key}"`,
		fmt.Sprintf(`api_key: "${provider_key}", pools: [{id: p, rpm: %d, concurrency: %d}]`, rpm, concurrency), 1))
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Delay: 100 * time.Millisecond}
	})
	proxies := []*process{s.proxy(), s.proxy()}
	s.worker()
	began := time.Now()
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			post(proxies[i%2].URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", fmt.Sprint(i), `"max_tokens":5`), "Prefer", "wait=2")
		})
	}
	redistest.Wait(t, wg.Wait)
	requests := s.fake.Log()
	slices.SortFunc(requests, func(a, b fakeprovider.Record) int { return a.At.Compare(b.At) })
	for i, r := range requests {
		if most := rpm/10 + rpm*r.At.Sub(began).Minutes() + 1; float64(i+1) > most {
			t.Errorf("request %d came after %s, when the pool had room for %.1f", i+1, r.At.Sub(began), most)
		}
	}
	if n := s.fake.Totals().PeakInFlight; n > concurrency {
		t.Errorf("the provider saw %d calls at once, want at most %d", n, concurrency)
	}
	if len(requests) < concurrency {
		t.Errorf("the provider saw %d calls of %d", len(requests), calls)
	}
}

// TestStoreDown: while Redis is unavailable, calls are refused quickly; afterwards they work
// again.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, simple(roomy))
	p := s.proxy()
	body := chat("gpt-4o", "x", `"max_tokens":5`)
	s.redis.Kill()
	a := post(p.URL+"/chat/completions", s.keys["alice"], body)
	if errorOf(t, a); a.status != 503 || a.header.Get("Retry-After") == "" {
		t.Errorf("status %d, headers %v: %s", a.status, a.header, a.body)
	}
	if len(s.fake.Log()) != 0 {
		t.Error("a call went out without a hold")
	}
	s.redis.Restart()
	until(t, "calls pass again", func() bool {
		return post(p.URL+"/chat/completions", s.keys["alice"], body).status == 200
	})
}
