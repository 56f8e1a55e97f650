package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/lua"
	"github.com/llmguard/llmguard/pricing"
)

// TestRollingUpgrade replaces two proxies and two workers under load, one after the other, with
// a version that has different scripts. No call fails, no job is lost, and the charges match
// the provider's bill.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	next := nextVersion(t)
	s := newStack(t, fakeprovider.Options{Cadence: fakeprovider.Cadence{Token: time.Millisecond}}, `
providers:
  - {id: openai, base_url: "${provider}", api_key: "${provider_key}"}
orgs:
  - id: acme
    limits: [{name: all, amount: $100, window: 1h}]
    users:
      - {id: alice, keys: [{id: k1, hash: "${key:alice}"}]}
      - {id: bob, limits: [{name: tight, amount: $0.0006, window: 2s}], keys: [{id: k2, hash: "${key:bob}"}]}
`)
	s.replace("timeouts: {drain: 0s,", "timeouts: {drain: 1s,")
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Fill: true} })
	old := []*process{s.proxy(), s.proxy(), s.worker(), s.worker()}
	front := newBalancer(t, old[0], old[1])
	load := s.load(front.URL + "/v1")
	load.waitFor(8)
	scripts := s.info("memory", "number_of_cached_scripts")
	for i, p := range old {
		load.waitFor(8) // calls have passed through each mix of versions
		role := p.cmd.Args[1]
		fresh := s.startBinary(next, role)
		if role == "serve" {
			front.swap(i, fresh)
		}
		p.terminate()
	}
	load.waitFor(16)
	load.stop()
	if n := s.info("memory", "number_of_cached_scripts"); n < scripts*3/2 {
		t.Errorf("redis has %d scripts, and had %d before the upgrade: the new processes run the old ones", n, scripts)
	}
	for _, id := range load.jobs {
		if j := awaitJob(t, front.URL+"/v1", s.keys["alice"], id, time.Minute); j.Status != "succeeded" {
			t.Errorf("job %s ended as %s (%v)", id, j.Status, j.Error)
		}
	}
	calls := int(load.calls.Load()) + len(load.jobs)
	if n := len(s.fake.Log()); n != calls {
		t.Errorf("%d calls reached the provider, want %d", n, calls)
	}
	var sum pricing.Nano
	for _, e := range s.settled("acme", calls) {
		if e.Estimated {
			t.Errorf("an estimate: %+v", e)
		}
		sum += e.Cost
	}
	if want := bill(t, s.fake.Log()); sum != want {
		t.Errorf("the ledger says %d nano-dollars, the provider %d", sum, want)
	}
	t.Logf("%d calls, %d jobs", load.calls.Load(), len(load.jobs))
}

// nextVersion returns a llmguard binary with every Redis script changed, so that old and new
// processes run different ones on the same keys. It changes one letter of a comment in the
// binary itself, without a second build.
func nextVersion(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := fs.Glob(lua.Files(), "*.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range scripts {
		text, err := fs.ReadFile(lua.Files(), name)
		if err != nil {
			t.Fatal(err)
		}
		at, comment := bytes.Index(program, text), bytes.Index(text, []byte("-- "))
		if at < 0 || comment < 0 {
			t.Fatalf("%s is at %d in the binary, its first comment at %d", name, at, comment)
		}
		program[at+comment+len("-- ")] = '!'
	}
	changed, next := filepath.Join(t.TempDir(), "changed"), filepath.Join(t.TempDir(), "llmguard-next")
	if err := os.WriteFile(changed, program, 0o700); err != nil {
		t.Fatal(err)
	}
	// A file that this process has open for writing cannot be executed, even by a child that
	// another test forked meanwhile. So cp writes it.
	if out, err := redistest.Command(t, "cp", changed, next).CombinedOutput(); err != nil {
		t.Fatalf("copy the next version: %v\n%s", err, out)
	}
	return next
}

// balancer forwards calls to processes that report ready.
type balancer struct {
	*httptest.Server
	t       *testing.T
	mu      sync.Mutex
	back    []*process
	ready   []bool
	sending map[*process]int // calls assigned to it that it may not have received yet
	turn    int
}

func newBalancer(t *testing.T, back ...*process) *balancer {
	b := &balancer{t: t, back: back, ready: make([]bool, len(back)), sending: map[*process]int{}}
	b.look()
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Transport:     b,
		ErrorLog:      slog.NewLogLogger(slog.NewTextHandler(t.Output(), nil), slog.LevelWarn),
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "balanced"}) },
	}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Otherwise the server closes the request's body when the answer begins. A transport that then still looks for
		// the body's end cuts the answer off.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(b.Close)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	go func() {
		for ctx.Err() == nil {
			b.look()
			time.Sleep(50 * time.Millisecond)
		}
	}()
	return b
}

// RoundTrip implements http.RoundTripper.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	p := b.pick()
	for p == nil {
		if r.Context().Err() != nil {
			return nil, r.Context().Err()
		}
		time.Sleep(20 * time.Millisecond)
		p = b.pick()
	}
	sent := sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.sending[p]--
	})
	defer sent()
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { sent() }}
	r = r.Clone(httptrace.WithClientTrace(r.Context(), trace))
	r.URL.Host = strings.TrimSuffix(strings.TrimPrefix(p.URL, "http://"), "/v1")
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		resp.Body = &observedBody{ReadCloser: resp.Body, ctx: r.Context(), t: b.t}
	}
	return resp, err
}

// observedBody logs why a response breaks off: because of the process, or its caller.
type observedBody struct {
	io.ReadCloser
	ctx context.Context
	t   *testing.T
}

// Read reads from the response.
func (o *observedBody) Read(p []byte) (int, error) {
	n, err := o.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		o.t.Logf("at %s an answer broke off: %v; its caller: %v", time.Now().UTC().Format(time.TimeOnly), err, context.Cause(o.ctx))
	}
	return n, err
}

// look checks the readiness of each process, as a probe does.
func (b *balancer) look() {
	b.mu.Lock()
	back := append([]*process(nil), b.back...)
	b.mu.Unlock()
	for i, p := range back {
		resp, err := client.Get(p.Admin + "/readyz")
		ready := err == nil && resp.StatusCode == http.StatusOK
		if err == nil {
			resp.Body.Close()
		}
		b.mu.Lock()
		if b.back[i] == p {
			b.ready[i] = ready
		}
		b.mu.Unlock()
	}
}

// pick returns the next ready process, or nil if there is none.
func (b *balancer) pick() *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.back {
		b.turn++
		if i := b.turn % len(b.back); b.ready[i] {
			b.sending[b.back[i]]++
			return b.back[i]
		}
	}
	return nil
}

// swap sends new calls to a replacement instead of the old process. It returns once the old
// process has received everything assigned to it.
func (b *balancer) swap(i int, fresh *process) {
	b.mu.Lock()
	old := b.back[i]
	b.back[i], b.ready[i] = fresh, true
	b.mu.Unlock()
	until(b.t, "the old process has received its requests", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.sending[old] == 0
	})
}

// load is a set of callers of every kind, until they are stopped.
type load struct {
	t     *testing.T
	calls atomic.Int64
	jobs  []string
	wg    sync.WaitGroup
	stop  func() // stops the calls; also at the end of the test
}

func (s *stack) load(base string) *load {
	ctx, quit := context.WithCancel(s.t.Context())
	l := &load{t: s.t}
	l.stop = sync.OnceFunc(func() { quit(); redistest.Wait(s.t, l.wg.Wait) })
	s.t.Cleanup(l.stop)
	caller := func(user, extra, end string) {
		l.wg.Go(func() {
			for ctx.Err() == nil && !l.t.Failed() {
				a := patient(base, s.keys[user], chat("gpt-4o", "hi", extra))
				if a.status != http.StatusOK || a.err != nil || !strings.HasSuffix(strings.TrimSpace(a.body), end) {
					s.t.Errorf("at %s a call of %s failed: status %d, %v, %v: %.300s",
						time.Now().UTC().Format(time.TimeOnly), user, a.status, a.err, a.header, a.body)
					return
				}
				l.calls.Add(1)
				time.Sleep(20 * time.Millisecond) // the load tests the order of events, not throughput
			}
		})
	}
	caller("alice", oneCall, "}")
	caller("alice", oneCall+`,"stream":true`, "data: [DONE]")
	caller("bob", oneCall, "}") // most of its calls wait
	l.wg.Go(func() {
		for i := 0; ctx.Err() == nil && !l.t.Failed(); i++ {
			l.jobs = append(l.jobs, submit(s.t, func() string { return base }, s.keys["alice"], chat("gpt-4o", fmt.Sprint("job ", i), oneCall)).ID)
			time.Sleep(50 * time.Millisecond)
		}
	})
	return l
}

// patient calls like an SDK: it retries a 503 that has Retry-After.
func patient(base, key, body string) answer {
	var a answer
	for n := range 60 { // a slow machine needs more than an SDK's two retries
		a = post(base+"/chat/completions", key, body, "X-Stainless-Retry-Count", fmt.Sprint(n))
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
			break
		}
		time.Sleep(time.Second)
	}
	return a
}

// waitFor waits until n more calls have completed.
func (l *load) waitFor(n int64) {
	l.t.Helper()
	from := l.calls.Load()
	until(l.t, "more calls have completed", func() bool { return l.t.Failed() || l.calls.Load() >= from+n })
	if l.t.Failed() {
		l.t.FailNow()
	}
}
