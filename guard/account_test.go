package guard

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// These name our account in the tests below and must not be visible outside.
const (
	accountKey     = "sk-vendor/Zx9+0123456789abcdUILO"
	accountOrg     = "org-ours"
	accountProject = "proj-ours"
	deployment     = "swedencentral-4o"
	gatewayAccount = "0123456789abcdef0123"
	otherHeader    = "team-credential-77"
	learnedOrg     = "acme-incorporated-x1"
)

func accountNames(base *url.URL) []string {
	return []string{
		accountKey, url.QueryEscape(accountKey), "sk-vendor/Zx", "UILO", accountOrg, accountProject, deployment, gatewayAccount,
		otherHeader, learnedOrg, base.Host, base.Hostname(), "org-AbCdEfGh12345678XyZ",
	}
}

// gossip is a provider that includes all it knows of our account in its answers.
type gossip struct {
	base   *url.URL
	status int
	kind   string
	form   func(message string) string
	gzip   bool
	pieces int // bytes written at a time; 0 writes all
	breaks bool
}

// message names the account in all ways.
func (g *gossip) message() string {
	return fmt.Sprintf("No: key %s, also %s and %s..., masked sk-vend*******UILO; Organization %s in %s; project %s; deployment %s at %s/chat, host %s (%s), "+
		"account %s, team %s, organization org-AbCdEfGh12345678XyZ, the deployment named '%s'",
		accountKey, url.QueryEscape(accountKey), accountKey[:14], accountOrg, learnedOrg, accountProject, deployment, g.base, g.base.Host,
		strings.ToUpper(g.base.Hostname()), gatewayAccount, otherHeader, strings.ToUpper(deployment))
}

func (g *gossip) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", g.kind)
	h.Set("X-Request-Id", "req_"+accountKey)
	h.Set("X-Should-Retry", deployment)
	h.Set("Openai-Organization", learnedOrg)
	h.Set("Openai-Project", accountProject)
	h.Set("Openai-Model", deployment)
	h.Set("Openai-Endpoint", g.base.Host)
	text := []byte(g.form(g.message()))
	if g.gzip {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write(text)
		_ = z.Close()
		text = packed.Bytes()
		h.Set("Content-Encoding", "gzip")
	}
	w.WriteHeader(g.status)
	if g.breaks {
		text = text[:len(text)/3] // often in the middle of a name
	}
	for size := g.pieces; size > 0 && len(text) > size; text = text[size:] {
		_, _ = w.Write(text[:size])
		w.(http.Flusher).Flush()
	}
	_, _ = w.Write(text)
	if g.breaks {
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}

// start makes the rig call the gossip.
func (g *gossip) start(t *testing.T, r *rig) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	base, err := url.Parse(server.URL + "/v1/" + gatewayAccount + "/openai")
	if err != nil {
		t.Fatal(err)
	}
	g.base = base
	r.vendor(t, &vendor{}, func(p *providers.Provider) {
		p.BaseURL, p.APIKey = base, accountKey
		p.Headers = http.Header{"Openai-Organization": {accountOrg}, "Openai-Project": {accountProject}, "X-Team": {otherHeader}}
		p.Deployments = map[string]string{"m": deployment}
	})
	return server
}

func quotedJSON(s string) string {
	text, _ := json.Marshal(s)
	return string(text)
}

// escaped returns a JSON string in which every letter, digit and slash is escaped.
func escaped(s string) string {
	var b strings.Builder
	for _, c := range s {
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return `"` + b.String() + `"`
}

// errorForms are the ways in which providers word an error.
var errorForms = map[string]func(string) string{
	"OpenAI's": func(m string) string {
		return `{"error":{"message":` + quotedJSON(m) + `,"type":"x","param":null,"code":"y"}}`
	},
	"in code": func(m string) string {
		return `{"error":{"message":"no","type":"x","param":` + quotedJSON(m) + `,"code":` + quotedJSON(m) + `}}`
	},
	"escaped": func(m string) string {
		return `{"error":{"message":` + escaped(m) + `,"type":"x","param":null,"code":null}}`
	},
	"slashes": func(m string) string {
		return strings.ReplaceAll(`{"error":{"message":`+quotedJSON(m)+`,"type":"x"}}`, "/", `\/`)
	},
	"JSON in it": func(m string) string {
		return `{"error":{"message":` + quotedJSON(`{"error":`+escaped(m)+`}`) + `,"type":"x"}}`
	},
	"Gemini's":  func(m string) string { return `[{"error":{"code":400,"message":` + quotedJSON(m) + `,"status":"NO"}}]` },
	"FastAPI's": func(m string) string { return `{"detail":` + quotedJSON(m) + `}` },
	"a number":  func(m string) string { return `{"error":{"message":` + quotedJSON(m) + `,"type":"x","code":400}}` },
	"text":      func(m string) string { return m },
	"a page":    func(m string) string { return "<html><body>" + m + "</body></html>" },
	"none":      func(string) string { return "" },
}

// seen returns everything of a call that its caller, the log or a job may show.
func seen(c *Call, w *httptest.ResponseRecorder, err error) string {
	var b strings.Builder
	fmt.Fprintln(&b, w.Header(), w.Body, err, c.Result.Refusal, c.Result.Ending, c.Result.UpstreamID, c.Result.Model)
	var public *wire.Error
	if errors.As(err, &public) {
		fmt.Fprintln(&b, string(public.JSON()), public.Header)
	}
	var busy *BusyError
	if errors.As(err, &busy) {
		fmt.Fprintln(&b, string(busy.Answer), busy.Header.Values("X-Should-Retry"), busy.Header.Values("X-Request-Id"))
	}
	return b.String()
}

func nameless(t *testing.T, base *url.URL, text string) {
	t.Helper()
	var plain string
	for line := range strings.SplitSeq(text, "\n") { // escaped text is decoded as a client would
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), new(any)) == nil {
			var doc any
			_ = json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &doc)
			plain += fmt.Sprint(doc)
		}
	}
	for _, name := range accountNames(base) {
		if strings.Contains(strings.ToLower(text+plain), strings.ToLower(name)) {
			t.Errorf("%s is named in %.3000s", name, text)
		}
	}
}

// TestErrorsNameNoAccount checks that what a provider says about our account in an error
// appears neither in the caller's answer nor in the log or the job's record.
func TestErrorsNameNoAccount(t *testing.T) {
	r := newRig(t, roomy()...)
	for name, form := range errorForms {
		for _, status := range []int{302, 400, 401, 403, 404, 429, 500, 503} {
			for _, g := range []gossip{{}, {gzip: true}, {pieces: 7}, {breaks: true}} {
				g.status, g.form, g.kind = status, form, "application/json"
				t.Run(fmt.Sprintf("%s/%d/gzip=%v,pieces=%d,breaks=%v", name, status, g.gzip, g.pieces, g.breaks), func(t *testing.T) {
					g.start(t, r)
					c, w, err := r.run(t.Context(), prompt("m", "hello", ""))
					nameless(t, g.base, seen(c, w, err))
				})
			}
		}
	}
}

// TestErrorsInAnswersNameNoAccount checks the same for failures with a success status, in a
// whole answer and in a stream event.
func TestErrorsInAnswersNameNoAccount(t *testing.T) {
	const delta = `data: {"model":"m","choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":null}]}` + "\n\n"
	event := func(head, data, rest string) func(string) string {
		return func(m string) string { return delta + head + "data: " + fmt.Sprintf(data, quotedJSON(m)) + rest }
	}
	r := newRig(t, roomy()...)
	for name, form := range map[string]func(string) string{
		"whole":          errorForms["OpenAI's"],
		"escaped":        errorForms["escaped"],
		"event":          event("", `{"error":{"message":%s,"type":"x"}}`, "\n\n"),
		"named event":    event("event: error\n", `{"message":%s}`, "\n\n"),
		"CRLF":           event("", `{"error":{"message":%s}}`, "\r\n\r\n"),
		"last":           event("", `{"error":{"message":%s}}`, ""),
		"then done":      event("", `{"error":{"message":%s}}`, "\n\ndata: [DONE]\n\n"),
		"in a choice":    event("", `{"choices":[{"index":0,"delta":{},"error":{"message":%s},"finish_reason":"error"}]}`, "\n\ndata: [DONE]\n\n"),
		"object":         event("", `{"object":"error","message":%s}`, "\n\n"),
		"text event":     event("", `Internal error: %s`, "\n\ndata: [DONE]\n\n"),
		"comment":        func(m string) string { return ": " + m + "\n\n" + delta + "data: [DONE]\n\n" },
		"escaped, event": func(m string) string { return delta + `data: {"error":{"message":` + escaped(m) + "}}\n\n" },
	} {
		stream := name != "whole" && name != "escaped"
		for _, pieces := range []int{0, 7} {
			t.Run(fmt.Sprintf("%s/%d", name, pieces), func(t *testing.T) {
				g := gossip{status: 200, form: form, pieces: pieces, kind: "application/json"}
				if stream {
					g.kind = "text/event-stream"
				}
				g.start(t, r)
				c, w, err := r.run(t.Context(), prompt("m", "hello", fmt.Sprintf(`"stream":%v`, stream)))
				nameless(t, g.base, seen(c, w, err))
				if !strings.Contains(w.Body.String(), providers.Redacted) {
					t.Errorf("the error was not passed on: %s, %v", w.Body, err)
				}
			})
		}
	}
}

// TestAnswersAreNotRedacted checks that generated text is forwarded byte for byte, even if
// it mentions the provider's address.
func TestAnswersAreNotRedacted(t *testing.T) {
	r := newRig(t, roomy()...)
	const said = `say {\"error\": null} or \"error\": at `
	for _, stream := range []bool{false, true} {
		g := gossip{status: 200, kind: "application/json", form: func(string) string { return "" }}
		g.start(t, r)
		answer := `{"model":"m","error":null,"choices":[{"index":0,"message":{"content":"` + said + g.base.Host + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`
		if stream {
			g.kind = "text/event-stream"
			answer = "data: " + strings.ReplaceAll(answer, "message", "delta") + "\n\ndata: [DONE]\n\n"
		}
		g.form = func(string) string { return answer }
		_, w, err := r.run(t.Context(), prompt("m", "hello", fmt.Sprintf(`"stream":%v,"stream_options":{"include_usage":true}`, stream)))
		if err != nil || w.Body.String() != answer {
			t.Errorf("%v, %s\nwant %s", err, w.Body, answer)
		}
	}
}

// TestFetchesNameNoAccount checks the same for requests about a response that the provider
// stores.
func TestFetchesNameNoAccount(t *testing.T) {
	r := newRig(t, roomy()...)
	for name, g := range map[string]gossip{
		"refused": {status: 404, kind: "application/json", form: errorForms["OpenAI's"]},
		"foreign": {status: 500, kind: "text/plain", form: errorForms["text"]},
		"failed response": {status: 200, kind: "application/json", form: func(m string) string {
			return `{"id":"resp_1","status":"failed","error":{"code":"x","message":` + quotedJSON(m) + `}}`
		}},
		"failed event": {status: 200, kind: "text/event-stream", pieces: 7, form: func(m string) string {
			return "event: response.created\ndata: {\"type\":\"response.created\"}\n\nevent: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"message\":" + quotedJSON(m) + "}}}\n\n"
		}},
		"broken off": {status: 200, kind: "application/json", breaks: true, form: errorForms["OpenAI's"]},
	} {
		t.Run(name, func(t *testing.T) {
			g.start(t, r)
			w := httptest.NewRecorder()
			status, err := r.guard.Passthrough.Relay(t.Context(), w, Fetch{Org: r.org, Note: ownership.Note{Provider: "vendor"}, Request: providers.Request{Method: http.MethodGet, Path: "/responses/resp_1"}})
			nameless(t, g.base, seen(&Call{}, w, err))
			if status == 200 && !strings.Contains(w.Body.String(), "resp") {
				t.Errorf("%d, %s", status, w.Body)
			}
		})
	}
}

// TestUnreachedProviderIsNotNamed checks the same for what the log says about an
// unreachable provider.
func TestUnreachedProviderIsNotNamed(t *testing.T) {
	r := newRig(t, roomy()...)
	g := gossip{}
	g.start(t, r).Close()
	c, w, err := r.run(t.Context(), prompt("m", "hello", ""))
	if err == nil {
		t.Fatal("it was reached")
	}
	text := seen(c, w, err)
	if strings.Contains(text, "127.0.0.1") {
		t.Errorf("the address is named in %s", text)
	}
}
