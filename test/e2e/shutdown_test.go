package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestShutdown: after SIGTERM a stream completes and is settled.
func TestShutdown(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{Cadence: fakeprovider.Cadence{Token: 20 * time.Millisecond}}, simple(roomy))
	p := s.proxy()
	got := make(chan answer, 1)
	go func() {
		got <- post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "[fake: output=60]", `"stream":true,"max_tokens":100`))
	}()
	until(t, "the stream has begun", func() bool { return len(s.fake.Log()) > 0 })
	p.terminate()
	if a := redistest.Came(t, got); !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
		t.Errorf("the stream was cut: %v %q", a.err, a.body)
	}
	if e := s.settled("acme", 1)[0]; e.Estimated {
		t.Errorf("the stream was not settled by its usage: %+v", e)
	}
}

// TestShutdownWaiting: on shutdown, waiting callers get a response that makes them retry: plain
// calls a status, streams an error event.
func TestShutdownWaiting(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{}, simple("[{name: small, subject: user, amount: $0.0006, window: 100s}]")+"queue: {keep_alive: 200ms}\n")
	s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Fill: true} })
	p := s.proxy()
	s.worker()
	if a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hi", oneCall)); a.status != 200 {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	got := make(chan answer, 2)
	for _, extra := range []string{oneCall, oneCall + `,"stream":true`} {
		go func() { got <- post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hi", extra)) }()
	}
	until(t, "both wait", func() bool { return p.value("llmguard_proxy_waiting_callers") == 2 })
	time.Sleep(500 * time.Millisecond) // the stream may get its first newline then, which commits it to 200
	p.terminate()
	for range 2 {
		a := redistest.Came(t, got)
		switch {
		case a.err != nil:
			t.Errorf("a waiting caller was cut off: %v", a.err)
		case a.status == 503 && a.header.Get("Retry-After") != "":
		case a.status == 200 && strings.Contains(a.body, `data: {"error":`):
		default:
			t.Errorf("status %d, headers %v: %q", a.status, a.header, a.body)
		}
	}
}
