package providers

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llmguard/llmguard/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// upstream returns a provider at a real server.
func upstream(t *testing.T, url string) *Provider {
	t.Helper()
	p := &Provider{ID: "p", BaseURL: base(t, url+"/v1"), APIKey: "sk-own", Pools: []Pool{{ID: "p"}}}
	set, err := NewSet([]*Provider{p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	return p
}

// serve starts a server and a provider that uses it, and counts the requests that reach a handler.
func serve(t *testing.T, h http.HandlerFunc) (*Provider, *atomic.Int64) {
	t.Helper()
	var seen atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // only then does a server notice a disconnected client
		r.Body = io.NopCloser(bytes.NewReader(body))
		seen.Add(1)
		h(w, r)
	}))
	t.Cleanup(srv.Close)
	return upstream(t, srv.URL), &seen
}

func request(body string) Request {
	return Request{
		Path: "/chat/completions", Header: http.Header{}, Length: int64(len(body)),
		Body: func() io.Reader { return strings.NewReader(body) },
	}
}

// read closes an answer and returns its body.
func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// failure asserts a *SendError with the given Sent.
func failure(t *testing.T, err error, sent bool) {
	t.Helper()
	var failed *SendError
	if !errors.As(err, &failed) {
		t.Fatalf("got %v, want a *SendError", err)
	}
	if failed.Sent != sent {
		t.Errorf("sent is %v after %v", failed.Sent, err)
	}
}

func TestSendForwards(t *testing.T) {
	var got *http.Request
	var body string
	p, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, body = r, string(b)
		h := w.Header()
		h.Set("Content-Type", "text/plain")
		h.Set("X-Request-Id", "req_1")
		h.Set("OpenAI-Version", "2020")
		h.Set("OpenAI-Endpoint", "internal-name")
		h.Set("OpenAI-Organization", "org-secret")
		h.Set("OpenAI-Project", "proj-secret")
		h.Set("Set-Cookie", "a=b")
		h.Set("X-Ratelimit-Limit-Requests", "1")
		h.Set("Server", "x")
		_, _ = io.WriteString(w, "answer")
	})
	p.Headers = http.Header{"X-Own": {"1"}, "Openai-Organization": {"org-own"}}
	r := request(`{"a":1}`)
	r.Query = "beta=true&include[]=%2F&x=1&a;b&stream=true;x=1&order=%zz&limit=2"
	for _, name := range []string{
		"Authorization", "Api-Key", "Openai-Organization", "Openai-Project", "Cookie", "Idempotency-Key",
		"X-Forwarded-For", "Accept-Encoding", "Connection", "Host", "Content-Type", "X-Stainless-Lang", "Prefer", "Transfer-Encoding",
	} {
		r.Header.Set(name, "callers")
	}
	r.Header["Openai-Beta"] = []string{"one", "two"}
	r.Header.Set("X-Client-Request-Id", "mine")
	resp, err := p.Send(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if text := read(t, resp); text != "answer" || body != `{"a":1}` {
		t.Errorf("sent %q, answered %q", body, text)
	}
	if got.Method != http.MethodPost || got.RequestURI != "/v1/chat/completions?include%5B%5D=%2F&stream=true%3Bx%3D1&limit=2" || got.ContentLength != 7 {
		t.Errorf("sent %s %s with %d bytes", got.Method, got.RequestURI, got.ContentLength)
	}
	want := http.Header{
		"Authorization": {"Bearer sk-own"}, "Openai-Organization": {"org-own"}, "X-Own": {"1"},
		"Openai-Beta": {"one", "two"}, "X-Client-Request-Id": {"mine"}, "Content-Type": {"application/json"},
		"Accept-Encoding": {"identity"}, "User-Agent": {"llmguard"}, "Content-Length": {"7"},
	}
	if len(got.Header) != len(want) {
		t.Errorf("sent the headers %v", got.Header)
	}
	for name, values := range want {
		if fmt.Sprint(got.Header[name]) != fmt.Sprint(values) {
			t.Errorf("sent %s: %q, want %q", name, got.Header[name], values)
		}
	}
	back := http.Header{}
	CopyHeaders(back, resp.Header)
	if len(back) != 3 || back.Get("X-Request-Id") != "req_1" || back.Get("Openai-Version") != "2020" || back.Get("Content-Type") != "text/plain" {
		t.Errorf("the caller gets the headers %v", back)
	}
}

func TestSendNoKey(t *testing.T) {
	var got http.Header
	p, _ := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	p.APIKey = ""
	r := request("{}")
	r.Header.Set("Authorization", "Bearer callers")
	resp, err := p.Send(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	read(t, resp)
	if got.Get("Authorization") != "" {
		t.Errorf("sent the credential %q", got.Get("Authorization"))
	}
}

func TestSendFollowsNoRedirect(t *testing.T) {
	p, seen := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	resp, err := p.Send(t.Context(), request("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if read(t, resp); resp.StatusCode != http.StatusTemporaryRedirect || seen.Load() != 1 {
		t.Errorf("status %d after %d requests", resp.StatusCode, seen.Load())
	}
}

func TestSendEscapedBase(t *testing.T) {
	var uri string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { uri = r.RequestURI }))
	defer srv.Close()
	p := upstream(t, srv.URL+"/a%2Fb")
	resp, err := p.Send(t.Context(), request("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if read(t, resp); uri != "/a%2Fb/v1/chat/completions" {
		t.Errorf("sent to %s", uri)
	}
}

func TestSendRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	l.Close()
	_, err = upstream(t, url).Send(t.Context(), request("{}"))
	failure(t, err, false)
}

func TestSendCancelled(t *testing.T) {
	var waits atomic.Bool
	p, seen := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if waits.Load() {
			<-r.Context().Done()
		}
	})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for warm := range int64(2) { // without a connection and with one
		_, err := p.Send(cancelled, request("{}"))
		if failure(t, err, false); seen.Load() != warm {
			t.Error("a cancelled call reached the provider")
		}
		if warm > 0 {
			break
		}
		resp, err := p.Send(t.Context(), request("{}"))
		if err != nil {
			t.Fatal(err)
		}
		read(t, resp)
	}
	waits.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		redistest.Eventually(t, "the second request has come", func() bool { return seen.Load() > 1 })
		cancel()
	}()
	_, err := p.Send(ctx, request("{}"))
	if failure(t, err, true); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestSendStale(t *testing.T) {
	p, seen := serve(t, func(http.ResponseWriter, *http.Request) {})
	r := request("{}")
	refusal := errors.New("stale")
	r.Permit = func() error { return refusal }
	_, err := p.Send(t.Context(), r)
	if failure(t, err, false); !errors.Is(err, refusal) || seen.Load() != 0 {
		t.Errorf("%v; %d requests reached the provider", err, seen.Load())
	}
	r.Permit = func() error { return nil }
	resp, err := p.Send(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	read(t, resp)
}

func TestSendGzip(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, "plain text")
	_ = z.Close()
	var answer []byte
	p, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(answer)
	})
	for in, want := range map[string]string{zipped.String(): "plain text", "": ""} {
		answer = []byte(in)
		resp, err := p.Send(t.Context(), request("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if got := read(t, resp); got != want || resp.Header.Get("Content-Length") != "" || resp.ContentLength != -1 {
			t.Errorf("got %q with length %d", got, resp.ContentLength)
		}
	}
	for _, broken := range []string{"not gzip", zipped.String()[:zipped.Len()-3]} {
		answer = []byte(broken)
		resp, err := p.Send(t.Context(), request("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%q was read to its end", broken)
		}
		resp.Body.Close()
	}
}

func TestSendUnknownEncoding(t *testing.T) {
	p, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Encoding", "br") })
	_, err := p.Send(t.Context(), request("{}"))
	failure(t, err, true)
}

// TestSendIdle: a body that pauses too long is given up, also while waiting for a gzip header; a
// slow one is not.
func TestSendIdle(t *testing.T) {
	for _, encoding := range []string{"identity", "gzip"} {
		p, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", encoding)
			if encoding == "identity" {
				_, _ = io.WriteString(w, "begun")
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		p.IdleTimeout = 100 * time.Millisecond
		resp, err := p.Send(t.Context(), request("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); !errors.Is(err, ErrIdle) {
			t.Errorf("%s: got %v", encoding, err)
		}
		resp.Body.Close()
	}
}

// TestSendOnce: whatever a server does to kept-alive connections, no request reaches it twice, and
// one that is reported unsent never does.
func TestSendOnce(t *testing.T) {
	srv := newRude(t)
	p := upstream(t, "http://"+srv.addr)
	var wg sync.WaitGroup
	var ok, unsent, sent atomic.Int64
	for worker := range 8 {
		wg.Go(func() {
			for i := range 100 {
				id := fmt.Sprintf("%d-%d", worker, i)
				resp, err := p.Send(t.Context(), request(id+"."))
				seen, failed := srv.seen(id), (*SendError)(nil)
				switch {
				case err == nil:
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					ok.Add(1)
				case errors.As(err, &failed) && failed.Sent:
					sent.Add(1)
					if seen > 1 {
						t.Errorf("%s reached the server %d times", id, seen)
					}
					continue
				default:
					unsent.Add(1)
				}
				if want := map[bool]int{true: 1}[err == nil]; seen != want {
					t.Errorf("%s reached the server %d times: %v", id, seen, err)
				}
			}
		})
	}
	redistest.Wait(t, wg.Wait)
	if ok.Load() < 100 || sent.Load() == 0 {
		t.Errorf("%d answered, %d broken, %d unsent: the server was not as rude as it should be", ok.Load(), sent.Load(), unsent.Load())
	}
}

// TestSendLarge: bodies just below and above the size up to which they are joined arrive
// completely.
func TestSendLarge(t *testing.T) {
	p, _ := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	for _, n := range []int{joined - 1, joined, joined + 1, 3 << 20} {
		body := strings.Repeat("x", n-1) + "."
		for name, reader := range map[string]func() io.Reader{
			"one piece": func() io.Reader { return bytes.NewReader([]byte(body)) },
			"pieces":    func() io.Reader { return io.MultiReader(strings.NewReader(body[:n/2]), strings.NewReader(body[n/2:])) },
		} {
			r := request(body)
			r.Body = reader
			resp, err := p.Send(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if got := read(t, resp); got != body {
				t.Errorf("%s: %d bytes became %d", name, n, len(got))
			}
		}
	}
}
