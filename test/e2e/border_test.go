package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestBorderStreams: each event of a stream reaches the caller before the provider sends the
// next one.
func TestBorderStreams(t *testing.T) {
	t.Parallel()
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			provider, next := stepwise(t)
			s, _, b := atOne(t, name, strings.ReplaceAll(simple("[]"), "${provider}", provider))
			go allow(t, next) // the headers come with the first event
			resp, err := b.send(t, b.from(t, "127.0.0.1"), s.keys["alice"], chat("gpt-4o", "hi", `"stream":true`))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			seen := 0
			lines := bufio.NewScanner(resp.Body)
			for lines.Scan() {
				if !strings.Contains(lines.Text(), fmt.Sprintf("part %d", seen)) {
					continue
				}
				if seen++; seen < 3 {
					allow(t, next)
				}
			}
			if seen != 3 || lines.Err() != nil {
				t.Errorf("got %d events and %v, want all of them", seen, lines.Err())
			}
		})
	}
}

// allow lets the provider send one event.
func allow(t *testing.T, next chan<- struct{}) {
	select {
	case next <- struct{}{}:
	case <-time.After(redistest.Bound):
		t.Error("the provider sends no event")
	}
}

// few are changes that allow each address a few requests in a minute.
var few = map[string][]string{
	"nginx":   {"rate=20r/s", "rate=1r/m", "burst=40", "burst=5"},
	"haproxy": {"expire 60s", "expire 1h", "http_req_rate(10s)", "http_req_rate(1h)", "gt 200", "gt 6"},
}

// TestBorderFlood: what one address sends beyond its rate is refused at the border in OpenAI's
// form, and never reaches llmguard. Other addresses are served.
func TestBorderFlood(t *testing.T) {
	t.Parallel()
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, b := atOne(t, name, simple("[]"), few[name]...)
			c := b.from(t, "127.0.0.2")
			passed, refused := 0, answer{}
			for range 500 {
				a := b.ask(t, c, s.keys["alice"], "")
				if a.status != http.StatusOK {
					refused = a
					break
				}
				passed++
			}
			wantRefusal(t, refused, http.StatusTooManyRequests, "rate_limit_error", "rate_limit_exceeded")
			if passed < 5 {
				t.Errorf("got %d calls before the first refusal, want the burst", passed)
			}
			if a := b.ask(t, b.from(t, "127.0.0.3"), s.keys["alice"], ""); a.status != http.StatusOK {
				t.Errorf("another address: got %d, %v: %s", a.status, a.err, a.body)
			}
			redistest.Eventually(t, "the call of the other address in the log", func() bool { return len(callsFrom(p, "127.0.0.3")) == 1 })
			if n := len(callsFrom(p, "127.0.0.2")); n != passed {
				t.Errorf("llmguard saw %d calls of the flood, want the %d that passed", n, passed)
			}
		})
	}
}

// wantRefusal checks an answer of the border itself.
func wantRefusal(t *testing.T, a answer, status int, kind, code string) {
	t.Helper()
	if a.status != status || a.err != nil {
		t.Fatalf("got %d, %v: %s; want %d", a.status, a.err, a.body, status)
	}
	gotKind, gotCode, _ := errorOf(t, a)
	if gotKind != kind || gotCode != code || !strings.HasPrefix(a.header.Get("Content-Type"), "application/json") {
		t.Errorf("got %v: %s; want %s, %s", a.header, a.body, kind, code)
	}
	if later := a.header.Get("Retry-After") != ""; later != (status != http.StatusRequestEntityTooLarge) {
		t.Errorf("got headers %v with %d", a.header, status)
	}
}

// callsFrom returns the calls from an address that llmguard has logged so far.
func callsFrom(p *process, address string) (calls []map[string]any) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, line := range p.lines {
		if line["msg"] == "call" && line["ip"] == address {
			calls = append(calls, line)
		}
	}
	return calls
}

// TestBorderAddress: llmguard sees the caller's address, whatever the caller claims.
func TestBorderAddress(t *testing.T) {
	t.Parallel()
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, b := atOne(t, name, simple("[]"))
			a := b.ask(t, b.from(t, "127.0.0.4"), s.keys["alice"], chat("gpt-4o", "hi", ""), "X-Forwarded-For", "192.0.2.1")
			if a.status != http.StatusOK {
				t.Fatalf("got %d, %v: %s", a.status, a.err, a.body)
			}
			redistest.Eventually(t, "a call from 127.0.0.4 in the log", func() bool { return len(callsFrom(p, "127.0.0.4")) == 1 })
			if len(callsFrom(p, "192.0.2.1")) > 0 {
				t.Error("llmguard believes the caller's X-Forwarded-For")
			}
		})
	}
}

// TestBorderWaits: a call that waits in the queue is answered through the border, plain or as a
// stream, and what llmguard refuses passes unchanged.
func TestBorderWaits(t *testing.T) {
	t.Parallel()
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, b := atOne(t, name, simple(tight)+"queue: {keep_alive: 300ms}\n")
			s.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Fill: true} })
			s.worker()
			c := b.from(t, "127.0.0.1")
			waits(t, func() bool {
				a := b.ask(t, c, s.keys["alice"], chat("gpt-4o", "hi", oneCall))
				if a.status != http.StatusOK || a.err != nil {
					t.Fatalf("got %d, %v: %s", a.status, a.err, a.body)
				}
				return a.header.Get("X-Llmguard-Waited-Ms") != ""
			})
			redistest.Eventually(t, "a stream that waited", func() bool {
				a := b.ask(t, c, s.keys["alice"], chat("gpt-4o", "hi", oneCall+`,"stream":true`))
				if a.status != http.StatusOK || a.err != nil || !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
					t.Fatalf("got %d, %v: %q", a.status, a.err, a.body)
				}
				return strings.HasPrefix(a.body, "\n")
			})
			never := b.ask(t, c, s.keys["alice"], chat("gpt-4o", "hi", `"max_tokens":5000`))
			_, code, message := errorOf(t, never)
			if never.status != http.StatusPaymentRequired || code != "insufficient_quota" || !strings.Contains(message, `"small"`) {
				t.Errorf("got %d: %s", never.status, never.body)
			}
		})
	}
}

// TestBorderTimeouts: the border waits longer than llmguard does, and reuses no connection that
// llmguard may be closing.
func TestBorderTimeouts(t *testing.T) {
	t.Parallel()
	for file, timeouts := range map[string][]string{
		"nginx.conf":  {`proxy_read_timeout (\d+)s`},
		"haproxy.cfg": {`timeout client (\d+)s`, `timeout server (\d+)s`},
	} {
		text, err := os.ReadFile("../../deploy/border/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, pattern := range timeouts {
			m := regexp.MustCompile(pattern).FindSubmatch(text)
			if m == nil {
				t.Errorf("%s has no %s", file, pattern)
				continue
			}
			got, _ := time.ParseDuration(string(m[1]) + "s")
			for name, least := range map[string]string{"response_header_timeout": "15m", "hold": "280s"} {
				want, _ := time.ParseDuration(least)
				wantDefault(t, name, least)
				if got <= want {
					t.Errorf("%s: %s is %s, want more than %s (%s)", file, pattern, got, name, least)
				}
			}
		}
	}
}

// wantDefault checks a default in the configuration reference.
func wantDefault(t *testing.T, name, value string) {
	t.Helper()
	pages, err := filepath.Glob("../../docs/config/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(content)
	}
	if !strings.Contains(text.String(), fmt.Sprintf("**`%s`** (duration, default `%s`", name, value)) {
		t.Errorf("the default of %s is not %s any more", name, value)
	}
}

// TestBorderErrors: what the border refuses itself, and an llmguard that is down, are errors in
// OpenAI's form.
func TestBorderErrors(t *testing.T) {
	t.Parallel()
	size := map[string][]string{
		"nginx":   {"client_max_body_size 200m", "client_max_body_size 10k"},
		"haproxy": {"gt 209715200", "gt 10240"},
	}
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, b := atOne(t, name, simple("[]"), size[name]...)
			c := b.from(t, "127.0.0.1")
			large := b.ask(t, c, s.keys["alice"], chat("gpt-4o", strings.Repeat("x", 20<<10), ""))
			wantRefusal(t, large, http.StatusRequestEntityTooLarge, "invalid_request_error", "request_too_large")
			p.terminate()
			down := b.ask(t, c, s.keys["alice"], chat("gpt-4o", "hi", ""))
			wantRefusal(t, down, http.StatusServiceUnavailable, "service_unavailable_error", "server_is_overloaded")
		})
	}
}

// TestBorderConnections: one address has a limited number of calls (nginx) or connections
// (HAProxy) open.
func TestBorderConnections(t *testing.T) {
	t.Parallel()
	limits := map[string][]string{
		"nginx":   {"limit_conn llmguard_connections 100", "limit_conn llmguard_connections 2"},
		"haproxy": {"sc0_conn_cur gt 100", "sc0_conn_cur gt 2"},
	}
	for name := range proxies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, b := atOne(t, name, simple("[]"), limits[name]...)
			g := s.gate(nil)
			open := make(chan answer, 2)
			for range 2 {
				go func() { open <- b.ask(t, b.from(t, "127.0.0.5"), s.keys["alice"], chat("gpt-4o", gated, "")) }()
			}
			g.awaitHeld()
			g.awaitHeld()
			third := b.ask(t, b.from(t, "127.0.0.5"), s.keys["alice"], "")
			if name == "haproxy" {
				if third.err == nil {
					t.Errorf("got %d, want a closed connection", third.status)
				}
			} else {
				wantRefusal(t, third, http.StatusTooManyRequests, "rate_limit_error", "rate_limit_exceeded")
			}
			if a := b.ask(t, b.from(t, "127.0.0.6"), s.keys["alice"], ""); a.status != http.StatusOK {
				t.Errorf("another address: got %d, %v: %s", a.status, a.err, a.body)
			}
			g.release()
			g.release()
			for range 2 {
				if a := redistest.Came(t, open); a.status != http.StatusOK {
					t.Errorf("got %d, %v: %s", a.status, a.err, a.body)
				}
			}
		})
	}
}

// TestBorderCountsNetworks: addresses of one IPv6 network of /64 are one caller at the border.
func TestBorderCountsNetworks(t *testing.T) {
	t.Parallel()
	for name, changes := range map[string][]string{
		"nginx": slices.Concat(few["nginx"], []string{"ssl http2", "ssl http2 proxy_protocol"}),
		// A connection is counted before the header with its address is read, unless HAProxy is asked to wait for it.
		"haproxy": slices.Concat(few["haproxy"], []string{
			"alpn h2", "accept-proxy alpn h2", "tcp-request connection", "tcp-request session",
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _, b := atOne(t, name, simple("[]"), changes...)
			ask := func(address string) answer {
				c := b.from(t, "127.0.0.1")
				b.claim(c, address)
				return b.ask(t, c, s.keys["alice"], "")
			}
			refused := answer{status: http.StatusOK}
			for n := 1; n < 100 && refused.status == http.StatusOK; n++ {
				refused = ask(fmt.Sprintf("2001:db8:7:9:%x::%x", n, n))
			}
			wantRefusal(t, refused, http.StatusTooManyRequests, "rate_limit_error", "rate_limit_exceeded")
			for _, other := range []string{"2001:db8:7:8::1", "2001:db8:7::1", "192.0.2.7"} {
				if a := ask(other); a.status != http.StatusOK {
					t.Errorf("%s: got %d, %v: %s", other, a.status, a.err, a.body)
				}
			}
		})
	}
}
