package e2e

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
)

const roomy = "[{name: w, subject: user, amount: $1000, window: 1h}]"

// TestWire: what crosses the wire unchanged, what is added and removed, and what is refused, at one proxy.
func TestWire(t *testing.T) {
	t.Parallel()
	s := newStack(t, fakeprovider.Options{KeepBodies: true}, simple(roomy)+
		"headers: {standard: both, retry_jitter: off}\nrequests: {max_body: 100KB}\n")
	p := s.proxy()
	for _, part := range []struct {
		name string
		test func(*testing.T, *stack, *process)
	}{
		{"bytes", sameBytes},
		{"usage chunk", usageChunk},
		{"secrets", secrets},
		{"tells", tells},
		{"refused", refusals},
		{"smuggling", smuggled},
		{"unprefixed", unprefixed},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, s, p) })
	}
}

// sameBytes: bytes that no rule changes reach the provider unchanged, and a rule changes
// nothing else.
func sameBytes(t *testing.T, s *stack, p *process) {
	same := []string{
		"{ \"seed\":9007199254740993 ,\"max_tokens\" : 5,\n\t\"messages\":[{\"content\":\"\\u00e9\\uD83D\\uDE00 <&>\",\"role\":\"user\"}], \"model\":\"gpt-4o\",\"chat_template_kwargs\":{\"a\":1.50e+00}}",
		chat("gpt-4o", "stream", `"max_tokens":5,"stream":true,"stream_options":{"include_usage":true,"other":1}`),
		chat("gpt-4o", "tools", `"max_tokens":5,"tools":[{"type":"function","function":{"name":"f","parameters":{"b":1,"a":2}}}]`),
		`{"input":"embed me","model":"text-embedding-3-small","encoding_format":"base64"}`,
	}
	for _, body := range same {
		path := "/chat/completions"
		if strings.Contains(body, "embedding") {
			path = "/embeddings"
		}
		if a := post(p.URL+path+"?beta=true&include%5B%5D=%2F", s.keys["alice"], body); a.status != http.StatusOK {
			t.Fatalf("status %d: %s", a.status, a.body)
		}
		log := s.fake.Log()
		last := log[len(log)-1]
		sum := sha256.Sum256([]byte(body))
		if last.BodySHA256 != hex.EncodeToString(sum[:]) {
			t.Errorf("the body was changed:\n sent %s\n got  %s", body, last.Body)
		}
		if last.Query != "include%5B%5D=%2F" || last.Path != "/v1"+path {
			t.Errorf("forwarded to %s?%s", last.Path, last.Query)
		}
	}
	body := chat("gpt-4o", "spliced", `"stream":true,"max_tokens":5`)
	post(p.URL+"/chat/completions", s.keys["alice"], body)
	log := s.fake.Log()
	got := string(log[len(log)-1].Body)
	if rest := strings.Replace(got, `,"stream_options":{"include_usage":true}`, "", 1); rest != body || got == body {
		t.Errorf("splice changed more than stream_options:\n sent %s\n got  %s", body, got)
	}
}

// usageChunk: include_usage is forced upstream, and its chunk is removed unless the caller
// requested it (docs/wire.md, Usage and charges).
func usageChunk(t *testing.T, s *stack, p *process) {
	for _, asked := range []bool{false, true} {
		extra := `"stream":true,"max_tokens":5`
		if asked {
			extra += `,"stream_options":{"include_usage":true}`
		}
		a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hello", extra))
		if got := strings.Contains(a.body, `"choices":[]`); got != asked {
			t.Errorf("asked %v: the stream holds a usage chunk: %v\n%s", asked, got, a.body)
		}
		if !strings.HasSuffix(a.body, "data: [DONE]\n\n") {
			t.Errorf("the stream does not end in [DONE]: %q", a.body)
		}
	}
}

// secrets: neither side's key crosses over, and nothing about the provider's account is
// returned.
func secrets(t *testing.T, s *stack, p *process) {
	key := s.keys["alice"]
	a := post(p.URL+"/chat/completions", key, chat("gpt-4o", "prompt-canary-93f1", `"max_tokens":5`),
		"OpenAI-Organization", "org-mine", "OpenAI-Project", "proj", "Cookie", "a=b", "Idempotency-Key", "idem", "X-Forwarded-For", "9.9.9.9")
	if a.status != http.StatusOK {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	log := s.fake.Log()
	for name, values := range log[len(log)-1].Header {
		if strings.Contains(fmt.Sprint(values), key) {
			t.Errorf("the caller's key reached the provider in %s", name)
		}
		switch name {
		case "Openai-Organization", "Openai-Project", "Cookie", "Idempotency-Key", "X-Forwarded-For":
			t.Errorf("%s reached the provider", name)
		}
	}
	for name := range a.header {
		if name == "Openai-Organization" || name == "Openai-Project" {
			t.Errorf("%s came back", name)
		}
	}
	for what, text := range map[string]string{"log": p.log(), "metrics": p.metrics()} {
		for _, canary := range []string{key, providerKey, "prompt-canary-93f1"} {
			if strings.Contains(text, canary) {
				t.Errorf("%s holds the secret %q", what, canary)
			}
		}
	}
}

// tells: responses carry the cost, the limits and an id.
func tells(t *testing.T, s *stack, p *process) {
	for _, extra := range []string{`"max_tokens":5`, `"max_tokens":5,"stream":true`} {
		a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hello", extra))
		for _, name := range []string{
			"X-Request-Id", "X-Llmguard-Call-Id", "X-Llmguard-Held-Usd", "X-Llmguard-Limits",
			"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests",
			"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens",
			"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", "X-Ratelimit-Resource",
			"Ratelimit", "Ratelimit-Policy",
		} {
			if a.header.Get(name) == "" {
				t.Errorf("%s: no %s in %v", extra, name, a.header)
			}
		}
		if !strings.Contains(extra, "stream") && a.header.Get("X-Llmguard-Cost-Usd") == "" {
			t.Errorf("no X-Llmguard-Cost-Usd in %v", a.header)
		}
	}
}

// refusals: malformed and unknown requests get a clear error in OpenAI's form and never
// reach the provider.
func refusals(t *testing.T, s *stack, p *process) {
	before := len(s.fake.Log())
	good := chat("gpt-4o", "x", `"max_tokens":5`)
	cases := []struct {
		name, path, body string
		status           int
		says             string
	}{
		{"unknown route", "/assistants", good, 404, "POST /v1/chat/completions"},
		{"traversal", "/../admin/keys", good, 404, "serves"},
		{"encoded traversal", "/chat/completions/%2e%2e/%2e%2e/files", good, 404, "serves"},
		{"duplicate name", "/chat/completions", `{"model":"gpt-4o-mini","model":"gpt-4o","messages":[]}`, 400, "model"},
		{"escaped duplicate", "/chat/completions", `{"model":"gpt-4o-mini","mod\u0065l":"gpt-4o","messages":[]}`, 400, "twice"},
		{"case variant", "/chat/completions", `{"model":"gpt-4o-mini","MODEL":"gpt-4o","messages":[{"role":"user","content":"x"}]}`, 400, "MODEL"},
		{"bad UTF-8", "/chat/completions", chat("gpt-4o", "x", "\"user\":\"\xff\""), 400, "UTF-8"},
		{"trailing data", "/chat/completions", good + "{}", 400, ""},
		{"not JSON", "/chat/completions", "hello", 400, ""},
		{"empty", "/chat/completions", "", 400, ""},
		{"array", "/chat/completions", "[]", 400, ""},
		{"no model", "/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`, 400, "model"},
		{"unknown model", "/chat/completions", chat("gpt-99-secret", "x", ""), 400, "price"},
		{"negative limit", "/chat/completions", chat("gpt-4o", "x", `"max_tokens":-5`), 400, "max_tokens"},
		{"huge limit", "/chat/completions", chat("gpt-4o", "x", `"max_tokens":99999999999999999999`), 400, "max_tokens"},
		{"n zero", "/chat/completions", chat("gpt-4o", "x", `"n":0`), 400, "n"},
		{"string n", "/chat/completions", chat("gpt-4o", "x", `"n":"2"`), 400, "n"},
		{"built-in tool", "/chat/completions", chat("gpt-4o", "x", `"web_search_options":{}`), 400, "allow_builtin_tools"},
		{"vendor's field", "/chat/completions", chat("gpt-4o", "x", `"models":["gpt-5"]`), 400, "allow_fields"},
		{"vendor's field in responses", "/responses", `{"model":"gpt-4o","input":"x","plugins":[{"id":"web"}]}`, 400, "allow_fields"},
		{"unknown field", "/embeddings", `{"model":"text-embedding-3-small","input":"x","x_future":1}`, 400, "allow_fields"},
		{"too large", "/chat/completions", chat("gpt-4o", strings.Repeat("x", 200_000), ""), 413, ""},
		{"deep", "/chat/completions", chat("gpt-4o", "x", `"metadata":`+strings.Repeat("[", 5000)+strings.Repeat("]", 5000)), 400, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a := post(p.URL+c.path, s.keys["alice"], c.body)
			_, _, message := errorOf(t, a)
			if a.status != c.status || !strings.Contains(message, c.says) {
				t.Errorf("status %d, want %d; message %q should mention %q", a.status, c.status, message, c.says)
			}
		})
	}
	t.Run("upgrade", func(t *testing.T) {
		a := post(p.URL+"/responses", s.keys["alice"], "", "Connection", "Upgrade", "Upgrade", "websocket")
		if a.status != http.StatusBadRequest {
			t.Errorf("status %d: %s", a.status, a.body)
		}
	})
	t.Run("keys", func(t *testing.T) {
		for _, key := range []string{"", "sk-wrong", s.keys["alice"] + "x", providerKey} {
			a := post(p.URL+"/chat/completions", key, good)
			if _, code, _ := errorOf(t, a); a.status != 401 || code != "invalid_api_key" {
				t.Errorf("key %q: status %d, code %q", key, a.status, code)
			}
		}
	})
	if n := len(s.fake.Log()) - before; n != 0 {
		t.Errorf("%d refused requests reached the provider", n)
	}
}

// smuggled sends requests that no HTTP library would send. Each must be refused, or reach
// the provider once and complete.
func smuggled(t *testing.T, s *stack, p *process) {
	before := len(s.fake.Log())
	addr := strings.TrimSuffix(strings.TrimPrefix(p.URL, "http://"), "/v1")
	body := chat("gpt-4o", "x", `"max_tokens":5`)
	head := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + s.keys["alice"] + "\r\n"
	n := fmt.Sprint(len(body))
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	cases := []struct {
		name, raw string
		status    int
	}{
		{"two lengths", head + "Content-Length: " + n + "\r\nContent-Length: 5\r\n\r\n" + body, 400},
		{"unknown coding", head + "Transfer-Encoding: xchunked\r\n\r\n" + body, 400},
		{"two equal lengths", head + "Content-Length: " + n + "\r\nContent-Length: " + n + "\r\n\r\n" + body, 400},
		{"length and chunks", head + "Content-Length: " + n + "\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, 400},
		{"chunks and length", head + "Transfer-Encoding: chunked\r\nContent-Length: " + n + "\r\n\r\n" + chunked, 400},
		{"folded line", head + "X-A: b\r\n c\r\nContent-Length: " + n + "\r\n\r\n" + body, 400},
		{"bare line feeds", head + "X-A: b\nContent-Length: " + n + "\r\n\r\n" + body, 400},
		{"two keys", head + "Authorization: Bearer other\r\nContent-Length: " + n + "\r\n\r\n" + body, 401},
		{"bad chunk", head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + body, 400},
		{"space before colon", head + "Content-Length : " + n + "\r\n\r\n" + body, 400},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			if _, err := io.Copy(conn, bytes.NewBufferString(c.raw)); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != c.status {
				t.Errorf("status %d, want %d", resp.StatusCode, c.status)
			}
		})
	}
	if got := len(s.fake.Log()) - before; got != 0 {
		t.Errorf("%d of them reached the provider", got)
	}
}

// unprefixed: base URLs work with and without /v1.
func unprefixed(t *testing.T, s *stack, p *process) {
	bare := strings.TrimSuffix(p.URL, "/v1")
	for _, url := range []string{p.URL, bare} {
		if a := post(url+"/chat/completions", s.keys["alice"], chat("gpt-4o", "x", `"max_tokens":5`)); a.status != 200 {
			t.Errorf("%s: status %d: %s", url, a.status, a.body)
		}
		if a := get(url+"/models/gpt-4o", s.keys["alice"]); a.status != 200 || !strings.Contains(a.body, `"gpt-4o"`) {
			t.Errorf("%s: status %d: %s", url, a.status, a.body)
		}
		if a := get(url+"/models", s.keys["alice"]); a.status != 200 || !strings.Contains(a.body, `"gpt-4o-mini"`) {
			t.Errorf("%s: status %d: %s", url, a.status, a.body)
		}
	}
	if a := get(bare+"/", ""); a.status != 200 {
		t.Errorf("health probe of the base URL: status %d", a.status)
	}
}
