package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

func TestRoutes(t *testing.T) {
	s := New(Options{Directory: &auth.Directory{}})
	f := func(method, path, route, arg string) {
		t.Helper()
		req, err := http.NewRequest(method, "http://x"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		got, gotArg, err := s.match(req)
		var e *wire.Error
		if errors.As(err, &e) {
			got.name = fmt.Sprint(e.Status)
		}
		if got.name != route || gotArg != arg {
			t.Errorf("%s %s goes to %s with %q, want %s with %q", method, path, got.name, gotArg, route, arg)
		}
	}
	for _, prefix := range []string{"", "/v1"} {
		f("POST", prefix+"/chat/completions", "chat.completions", "")
		f("POST", prefix+"/chat/completions/", "chat.completions", "")
		f("POST", prefix+"/embeddings?beta=true", "embeddings", "")
		f("GET", prefix+"/models", "models", "")
		f("GET", prefix+"/models/gpt-4o", "models.get", "gpt-4o")
		f("GET", prefix+"/models/org/model:free", "models.get", "org/model:free")
		f("GET", prefix+"/jobs", "jobs", "")
		f("GET", prefix+"/jobs/job_1", "jobs.get", "job_1")
		f("DELETE", prefix+"/jobs/job_1", "jobs.get", "job_1")
		f("POST", prefix+"/jobs/job_1/cancel", "jobs.cancel", "job_1")
		f("GET", prefix+"/jobs/job_1/result", "jobs.result", "job_1")
		f("GET", prefix+"/", "root", "")
		f("HEAD", prefix, "root", "")
		f("GET", prefix+"/chat/completions", "chat.completions", "")
		f("PUT", prefix+"/chat/completions", "405", "")
		f("GET", prefix+"/vector_stores/vs_1/files/file-1/content", "vector_stores.files.content", "vs_1/file-1")
		f("DELETE", prefix+"/conversations/conv_1/items/msg_1", "conversations.items.get", "conv_1/msg_1")
		f("PUT", prefix+"/vector_stores/vs_1/files", "405", "")
		f("GET", prefix+"/vector_stores/vs_1/other", "404", "")
		f("GET", prefix+"/vector_stores/vs_1/files/file-1/content/more", "404", "")
		f("PUT", prefix+"/jobs/job_1", "405", "")
		f("POST", prefix+"/models", "405", "")
		f("POST", prefix+"/", "405", "")
		f("POST", prefix+"/responses", "responses", "")
		f("POST", prefix+"/responses/compact", "responses.compact", "")
		f("POST", prefix+"/responses/input_tokens", "responses.input_tokens", "")
		f("GET", prefix+"/responses/compact", "405", "")
		f("DELETE", prefix+"/responses/resp_1", "responses.get", "resp_1")
		f("POST", prefix+"/responses/resp_1/cancel", "responses.cancel", "resp_1")
		f("GET", prefix+"/responses/resp_1/input_items", "responses.input_items", "resp_1")
		f("POST", prefix+"/completions", "completions", "")
		f("POST", prefix+"/moderations", "moderations", "")
		f("GET", prefix+"/responses/resp_1/../resp_2", "404", "")
		f("GET", prefix+"/responses/*/cancel", "405", "")
		f("GET", prefix+"/jobs/job_1/result/more", "404", "")
		f("GET", prefix+"/jobs/job_1/other", "404", "")
		f("POST", prefix+"/chat/completions/../../admin", "404", "")
		f("POST", prefix+"/chat/completions/x", "chat.completions.get", "x")
	}
	f("POST", "/v1x/chat/completions", "404", "")
	f("POST", "/v1/v1/chat/completions", "404", "")
	f("POST", "/V1/chat/completions", "404", "")
}

func TestParseWish(t *testing.T) {
	f := func(async bool, patience time.Duration, waits string, prefer ...string) {
		t.Helper()
		w, err := parseWish(http.Header{"Prefer": prefer})
		if err != nil || w.async != async || w.patience != patience || w.waits != waits {
			t.Errorf("Prefer %q: %+v, %v", prefer, w, err)
		}
	}
	f(false, 0, "")
	f(false, 0, "", "")
	f(true, 0, "", "respond-async")
	f(true, 0, "", "Respond-Async; foo=bar")
	f(true, 10*time.Second, "wait=10", "respond-async, wait=10")
	f(true, 10*time.Second, "wait=10", "wait = 10", "respond-async")
	f(false, 10*time.Second, "wait=10", `WAIT="10"`)
	f(false, time.Millisecond, "wait=0", "wait=0")
	f(false, maxWish, "wait=99999999", "wait=99999999")
	f(false, 5*time.Second, "wait=5", "return=minimal, handling=lenient; x, wait=5")
	f(false, 0, "", "respond-asyncx, waiting=5, async")
	for _, bad := range []string{"wait", "wait=", "wait=-1", "wait=1.5", "wait=x", "wait=99999999999999999999"} {
		if _, err := parseWish(http.Header{"Prefer": {bad}}); err == nil {
			t.Errorf("Prefer %q was taken", bad)
		}
	}
}

func TestPatience(t *testing.T) {
	s := New(Options{Directory: &auth.Directory{}})
	f := func(stream bool, wished, most time.Duration, announced string, want time.Duration) {
		t.Helper()
		x := &request{caller: guard.Caller{Org: &guard.Org{Org: settings.Org{MaxWait: most}}}}
		r := &http.Request{Header: http.Header{}}
		plan := &guard.Plan{Request: &wire.Request{Stream: stream}}
		if announced != "" {
			r.Header.Set("X-Stainless-Read-Timeout", announced)
		}
		if got := s.calls.patience(x, r, plan, preferences{patience: wished}); got.wait != want || got.hold != 0 && (stream || most == 0 && got.hold != want) {
			t.Errorf("stream %v, wished %v, at most %v, announced %q: %v, want %v", stream, wished, most, announced, got, want)
		}
	}
	f(false, 0, 0, "", 280*time.Second)
	f(false, 0, 0, "600", 280*time.Second)
	f(false, 0, 0, "60", 58*time.Second)
	f(false, 0, 0, "3", 1500*time.Millisecond) // half of a short one
	f(false, 10*time.Second, 0, "60", 10*time.Second)
	f(false, time.Hour, 0, "", 280*time.Second)
	f(false, 0, 5*time.Second, "60", 5*time.Second)
	for _, odd := range []string{"0", "-5", "NaN", "Inf", "x", "1e99"} {
		f(false, 0, 0, odd, 280*time.Second)
	}
	f(true, 0, 0, "60", 10*time.Minute) // a stream is kept alive
	f(true, time.Minute, 0, "", time.Minute)
	f(true, time.Hour, time.Minute, "", time.Minute)
}

// TestPatienceLeavesTimeForTheAnswer: the wait of a plain call ends while there is time left for
// its answer, and lasts at least a quarter of its time however long answers take.
func TestPatienceLeavesTimeForTheAnswer(t *testing.T) {
	s := New(Options{Directory: &auth.Directory{}})
	x := &request{caller: guard.Caller{Org: &guard.Org{Org: settings.Org{ID: "acme"}}}}
	for runs, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 400 * time.Millisecond,
		300 * time.Millisecond: 200 * time.Millisecond,
		400 * time.Millisecond: 125 * time.Millisecond,
		time.Minute:            125 * time.Millisecond,
	} {
		plan := &guard.Plan{Request: &wire.Request{Model: runs.String()}}
		for range 100 { // until nothing is left of the initial deviation
			s.calls.runs.add("acme", runs.String(), runs)
		}
		r := &http.Request{Header: http.Header{"X-Stainless-Timeout": {"1"}}} // half of it is reserved for the transfer
		if got := s.calls.patience(x, r, plan, preferences{}); got.wait.Round(time.Millisecond) != want {
			t.Errorf("calls that run for %s: waits %s, want %s", runs, got.wait, want)
		}
	}
}

// TestBodySize: bodies up to the limit are taken and larger ones refused.
func TestBodySize(t *testing.T) {
	const most = 2 << 20
	r := newRig(t, queue.Pool{}, func(o *Options) { o.MaxBody = most })
	sized := func(n int) string {
		empty := len(prompt("hi", `"max_tokens":5,"user":""`))
		return prompt("hi", `"max_tokens":5,"user":"`+strings.Repeat("x", n-empty)+`"`)
	}
	for _, n := range []int{200, most} {
		if a := r.chat(sized(n)); a.status != 200 {
			t.Errorf("%d bytes: got status %d, %.200s; want 200", n, a.status, a.body)
		}
	}
	r.chat(sized(most+1)).fails(t, 413, "request_too_large")
	r.chat("{}", "Content-Encoding", "gzip").fails(t, 415, "unsupported_content_encoding")
	r.chat("", "Content-Encoding", "identity").fails(t, 400, "")

	chunk := fmt.Sprintf("%x\r\n%s\r\n", 64<<10, strings.Repeat(" ", 64<<10))
	small := prompt("hi", `"max_tokens":5`)
	r.raw("chunked", "Transfer-Encoding: chunked\r\n\r\n"+fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(small), small), false, "HTTP/1.1 200 OK")
	r.raw("endless chunks", "Transfer-Encoding: chunked\r\n\r\n"+strings.Repeat(chunk, most/(64<<10)+2), false, "HTTP/1.1 413 Request Entity Too Large")
	r.raw("announced too large", "Content-Length: 99999999999\r\n\r\n", false, "HTTP/1.1 413 Request Entity Too Large")
	r.raw("no body", "\r\n", false, "HTTP/1.1 400 Bad Request")
	if n := len(r.fake.Log()); n != 3 {
		t.Errorf("%d calls reached the provider, want 3", n)
	}
}

// TestBodyIncomplete: a body that does not arrive completely in time is refused.
func TestBodyIncomplete(t *testing.T) {
	t.Parallel()
	const most = 2 << 20
	r := newRig(t, queue.Pool{}, func(o *Options) { o.MaxBody, o.ReadBody = most, 100*time.Millisecond })
	small := prompt("hi", `"max_tokens":5`)
	r.raw("shorter than announced", "Content-Length: 500\r\n\r\n"+small, false, "HTTP/1.1 408 Request Timeout")
	r.raw("much shorter", fmt.Sprintf("Content-Length: %d\r\n\r\n{", most), false, "HTTP/1.1 408 Request Timeout")
	r.raw("cut off", "Content-Length: 500\r\n\r\n"+small, true, "")
	if n := len(r.fake.Log()); n != 0 {
		t.Errorf("%d calls reached the provider, want 0", n)
	}
}

// raw sends the bytes of a chat call after the key, and compares the first line of the answer.
func (r *rig) raw(name, text string, hangUp bool, want string) {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.http.Listener.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + r.key + "\r\n"
	go func() {
		_, _ = io.WriteString(conn, head+text)
		if hangUp {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
	}()
	line, _ := bufio.NewReader(conn).ReadString('\n')
	if got := strings.TrimSpace(line); got != want {
		r.t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

// TestRecords: one access record per request, with what an operator needs and nothing confidential
// of the caller.
func TestRecords(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour { return fakeprovider.Behaviour{Output: 3} })
	r.chat(prompt("secret-prompt", `"max_tokens":5`))
	r.chat(prompt("secret-prompt", `"max_tokens":5,"stream":true`))
	r.chat(`{"secret-prompt":`)
	r.call("GET", "/v1/models", "", "Authorization", "Bearer "+r.key+"x")
	r.call("GET", "/secret-path", "")
	ctx, cancel := context.WithCancel(t.Context())
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		cancel()
		redistest.Came(t, r.hungUp)
		return fakeprovider.Behaviour{}
	})
	r.do(ctx, "POST", "/v1/chat/completions", prompt("secret-prompt", `"max_tokens":5`))
	list := r.records(6)
	f := func(i int, route string, status float64, more ...any) {
		t.Helper()
		m := list[i]
		if m["route"] != route || m["status"] != status || m["id"] == "" || m["ip"] != "127.0.0.1" || m["method"] == "" {
			t.Errorf("record %d: %v", i, m)
		}
		for j := 0; j < len(more); j += 2 {
			if m[more[j].(string)] != more[j+1] {
				t.Errorf("record %d: %v is %v, want %v", i, more[j], m[more[j].(string)], more[j+1])
			}
		}
	}
	for i := range 2 {
		f(i, "chat.completions", 200, "org", "acme", "user", "alice", "key", "k1", "model", "gpt-4o", "pool", "main", "outcome", "completed", "estimated", false)
		if list[i]["cost_nano_usd"].(float64) <= 0 || list[i]["held_nano_usd"].(float64) < list[i]["cost_nano_usd"].(float64) || list[i]["bytes"].(float64) < 100 || list[i]["upstream_id"] == "" {
			t.Errorf("record %d: %v", i, list[i])
		}
	}
	f(2, "chat.completions", 400, "org", "acme", "model", nil)
	f(3, "models", 401, "org", nil, "key", nil)
	f(4, "unknown", 404)
	f(5, "chat.completions", 499, "outcome", "completed")
	for _, secret := range []string{r.key, "secret-prompt", "secret-path"} {
		if strings.Contains(r.log.String(), secret) && secret != "secret-path" {
			t.Errorf("the log holds %q", secret)
		}
	}
}

// TestUpgrade: an offer of h2c is ignored; other protocols are refused in words.
func TestUpgrade(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	r.call("GET", "/v1/responses", "", "Connection", "Upgrade", "Upgrade", "websocket").fails(t, 400, "upgrade_not_supported") // no key
	r.call("GET", "/", "", "Connection", "Upgrade", "Upgrade", "h2c, websocket").fails(t, 400, "upgrade_not_supported")
	java := []string{"Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings", "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA"}
	for _, path := range []string{"/v1/chat/completions", "//v1//chat/completions", "/v1//chat/completions/", "/chat//completions"} {
		if a := r.call("POST", path, `{"model":"gpt-4o","max_tokens":5,"messages":[{"role":"user","content":"x"}]}`, java...); a.status != 200 {
			t.Errorf("%s with an offer of h2c: %d %.200s, want 200", path, a.status, a.body)
		}
	}
	c, err := net.Dial("tcp", r.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	answer, _ := io.ReadAll(c)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 505 ") || !strings.Contains(string(answer), "Use HTTP/1.1") {
		t.Errorf("HTTP/2 without TLS: got %q, want 505 in words", answer)
	}
}

// TestHead: every route that has GET has HEAD, with the same status and without a body.
func TestHead(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	for pattern, route := range r.proxy.routes {
		if !slices.Contains(route.methods, http.MethodGet) {
			continue
		}
		path := strings.ReplaceAll("/v1"+pattern, "*", "x")
		if strings.HasSuffix(path, "/") && pattern != "/" {
			path += "x"
		}
		get, head := r.call("GET", path, ""), r.call("HEAD", path, "")
		if head.status != get.status || head.body != "" || head.header.Get("Content-Type") != get.header.Get("Content-Type") {
			t.Errorf("HEAD %s: %d %q, want %d and no body", path, head.status, head.body, get.status)
		}
	}
}

// TestCORS: pages of configured origins may call and read all headers; by default none may.
func TestCORS(t *testing.T) {
	const page = "https://app.example.com"
	for _, c := range []struct {
		origins       []string
		origin, allow string
	}{
		{nil, page, ""},
		{[]string{page}, page, page},
		{[]string{page}, "https://evil.example", ""},
		{[]string{page}, "", ""},
		{[]string{page}, "null", ""},
		{[]string{"*"}, "https://any.example", "*"},
	} {
		r := newRig(t, queue.Pool{}, func(o *Options) { o.CORSOrigins = c.origins })
		asks := []string{"Authorization", "", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,x-stainless-os"}
		preflight := r.call("OPTIONS", "/v1/chat/completions", "", append(asks, "Origin", c.origin)...)
		if want := c.allow != ""; (preflight.status == 204) != want ||
			(preflight.header.Get("Access-Control-Allow-Headers") == "authorization,x-stainless-os") != want {
			t.Errorf("%v: preflight of %s: %d %v", c.origins, c.origin, preflight.status, preflight.header)
		}
		for _, a := range []answer{preflight, r.call("GET", "/v1/models", "", "Origin", c.origin), r.call("GET", "/v1/none", "", "Origin", c.origin)} {
			if got := a.header.Get("Access-Control-Allow-Origin"); got != c.allow || a.header.Get("Access-Control-Allow-Credentials") != "" ||
				(a.header.Get("Access-Control-Expose-Headers") == "*") != (c.allow != "") || (len(a.header.Values("Vary")) > 0) != (c.origins != nil) {
				t.Errorf("%v: %s may read %d: %v, want %q", c.origins, c.origin, a.status, a.header, c.allow)
			}
		}
	}
}

func TestModelsRoute(t *testing.T) {
	r := newRig(t, queue.Pool{}, nil)
	if a := r.call("GET", "/v1/models", ""); a.status != 200 || !strings.Contains(a.body, `{"id":"gpt-4o","object":"model","created":0,"owned_by":"openai"}`) {
		t.Errorf("got %d %.300s, want 200 and gpt-4o", a.status, a.body)
	}
	if a := r.call("GET", "/v1/models/gpt-4o", ""); a.status != 200 {
		t.Errorf("got status %d, %s; want 200", a.status, a.body)
	}
	r.call("GET", "/v1/models/no-such", "").fails(t, 404, "model_not_found")
}
