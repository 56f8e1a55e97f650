package proxy

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers/anthropic"
	"github.com/llmguard/llmguard/queue"
)

// message is a request of Messages with more members.
func message(more string) string {
	return `{"model":"gpt-4o","max_tokens":20,"messages":[{"role":"user","content":"hi"}]` + more + `}`
}

// TestMessages: callers of Messages are known by their key in either header, and read answers, errors and lists of
// models in Anthropic's form.
func TestMessages(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil, window(roomy, time.Hour))
	r.org.Models = []string{"gpt-*"}
	for _, header := range [][]string{
		{"Authorization", "", "X-Api-Key", r.key}, {"X-Api-Key", r.key}, {"Anthropic-Version", "2026-10-21"},
	} {
		a := r.call("POST", "/v1/messages?beta=true", message(""), header...)
		if a.status != 200 || !strings.Contains(a.body, `"type":"message"`) || a.header.Get(guard.HeaderCost) == "" ||
			a.header.Get("Anthropic-Ratelimit-Unified-Status") != "allowed" {
			t.Errorf("%v: %d %s, %v", header, a.status, a.body, a.header)
		}
	}
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
		want               string
	}{
		{"POST", "/v1/messages", message(""), []string{"X-Api-Key", "sk-other"}, 401, `{"type":"error","error":{"type":"authentication_error","message":"Exactly one API key`},
		{"POST", "/v1/messages", `{"model":"gpt-4o"}`, nil, 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Missing required parameter: 'max_tokens'."`},
		{"POST", "/v1/messages", strings.Replace(message(""), "gpt-4o", "none", 1), nil, 404, `{"type":"error","error":{"type":"not_found_error","message":"The model \"none\" does not exist`},
		{"GET", "/v1/models/none", "", []string{"Anthropic-Version", "2023-06-01"}, 404, `{"type":"error","error":{"type":"not_found_error"`},
		{"POST", "/v1/messages/count_tokens", message(""), nil, 200, `{"input_tokens":`},
		{"GET", "/v1/models/gpt-4o", "", []string{"Anthropic-Version", "2023-06-01"}, 200, `{"type":"model","id":"gpt-4o","display_name":"gpt-4o","created_at":"1970-01-01T00:00:00Z"}`},
		{"GET", "/v1/models/gpt-4o", "", nil, 200, `{"id":"gpt-4o","object":"model"`},
		{"GET", "/api/hello", "", []string{"Authorization", ""}, 200, `{"object":"llmguard"}`},
	} {
		if a := r.call(c.method, c.path, c.body, c.header...); a.status != c.status || !strings.HasPrefix(a.body, c.want) {
			t.Errorf("%s %s %v: %d %s\nwant %d %s", c.method, c.path, c.header, a.status, a.body, c.status, c.want)
		}
	}
	a := r.call("GET", "/v1/models?limit=1000", "", "Anthropic-Version", "2023-06-01")
	if !strings.Contains(a.body, `"has_more":false`) || !strings.Contains(a.body, `"first_id":"`) || strings.Contains(a.body, `"object"`) {
		t.Errorf("got %s", a.body)
	}
	stopped := *r.guard.Policy()
	stopped.Stopped = true
	r.guard.SetPolicy(&stopped)
	a = r.call("POST", "/v1/messages", message(""))
	if want := `{"type":"error","error":{"type":"billing_error","message":"An operator has stopped`; a.status != 402 || !strings.HasPrefix(a.body, want) {
		t.Errorf("a stop is %d %s", a.status, a.body)
	}
	r.chat(prompt("hi", `"max_tokens":5`)).fails(t, 403, "spending_stopped")
}

// TestMessagesCountsAtOnce: an agent that counts 25 times in parallel is not refused.
func TestMessagesCountsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil)
	statuses := make(chan answer, 25)
	for range cap(statuses) {
		go func() { statuses <- r.do(t.Context(), "POST", "/v1/messages/count_tokens?beta=true", message("")) }()
	}
	for range cap(statuses) {
		if a := redistest.Came(t, statuses); a.status != 200 {
			t.Errorf("got %d %s", a.status, a.body)
		}
	}
}

// TestMessagesWait: a stream that waits in the queue hears of it in the first second, although other streams hear
// nothing for longer; what ends it is an event of its API, or for Claude Code a last text.
func TestMessagesWait(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int // of the provider
		header []string
		want   string // the end of the stream
	}{
		{0, nil, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"},
		{400, nil, `"code":"bad_thing","param":null}}` + "\n\n"},
		{400, []string{wire.HeaderClaudeSession, "s1"}, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"},
	} {
		r := newRig(t, single, func(o *Options) { o.KeepAlive = time.Hour })
		r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
			return fakeprovider.Behaviour{Status: c.status, Code: "bad_thing", Message: "the reason"}
		})
		r.worker(nil)
		release := r.occupy()
		s := r.openAt(t.Context(), "/v1/messages", message(`,"stream":true`), c.header...)
		s.expect(wire.Ping)
		release()
		a := s.rest()
		if a.status != http.StatusOK || !strings.HasSuffix(a.body, c.want) {
			t.Errorf("%d %v: got %d %s", c.status, c.header, a.status, a.body)
		}
		if closes := strings.Contains(a.body, `"text":"llmguard: the reason"`); closes != (c.header != nil) || closes == strings.Contains(a.body, "event: error") && c.status > 0 {
			t.Errorf("%d %v: got %s", c.status, c.header, a.body)
		}
	}
}

// TestStrictBetas: a strict provider is not sent a beta of unknown cost, neither immediately nor from the queue.
func TestStrictBetas(t *testing.T) {
	t.Parallel()
	r := newRig(t, single, nil)
	strict := r.guard.Policy().Providers.Get("openai")
	strict.Dialect = anthropic.Dialect{}
	r.worker(nil)
	release := r.occupy()
	const unknown = `"message":"Unknown beta: 'free-lunch-2027-01-01'. Its cost is unknown. Remove it from anthropic-beta`
	s := r.openAt(t.Context(), "/v1/messages", message(`,"stream":true`), "Anthropic-Beta", "effort-2025-11-24,free-lunch-2027-01-01")
	s.expect(wire.Ping)
	strict.Strict = true
	release()
	if a := s.rest(); !strings.Contains(a.body, `{"type":"error","error":{"type":"invalid_request_error",`+unknown) {
		t.Errorf("from the queue: %s", a.body)
	}
	seen := len(r.fake.Log())
	a := r.call("POST", "/v1/messages", message(""), "Anthropic-Beta", "effort-2025-11-24,free-lunch-2027-01-01")
	if a.status != 400 || !strings.HasPrefix(a.body, `{"type":"error","error":{"type":"invalid_request_error",`+unknown) || len(r.fake.Log()) > seen {
		t.Errorf("got %d %s", a.status, a.body)
	}
	a = r.call("POST", "/v1/messages/count_tokens", message(""), "Anthropic-Beta", "free-lunch-2027-01-01")
	if a.status != 400 {
		t.Errorf("a count is %d %s", a.status, a.body)
	}
	strict.AllowFields = []string{"free-lunch-*"}
	for _, beta := range []string{"effort-2025-11-24,free-lunch-2027-01-01", "claude-code-20250219,context-management-2025-06-27"} {
		if a := r.call("POST", "/v1/messages", message(""), "Anthropic-Beta", beta); strings.Contains(a.body, "Unknown beta") {
			t.Errorf("%s: %d %s", beta, a.status, a.body)
		}
	}
}
