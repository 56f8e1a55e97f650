package guard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/providers/dialect"
	"github.com/llmguard/llmguard/providers/openai"
)

// zed is a dialect that no other file knows: it has a path, a credential, a body, an answer, a usage, a stream and an error
// of its own.
type zed struct{ openai.Dialect }

func (zed) Name() string { return "zed" }

func (zed) Request(r *http.Request, c dialect.Call) error {
	openai.Join(r.URL, "/talk/"+dialect.Segment(c.Model))
	r.Header["X-Zed"] = []string{c.Account.Key}
	var chat struct {
		Messages  []struct{ Content string }
		MaxTokens int `json:"max_tokens"`
		Stream    bool
	}
	if err := json.NewDecoder(r.Body).Decode(&chat); err != nil {
		return err
	}
	body := fmt.Sprintf(`{"say":%q,"words":%d,"bit_by_bit":%t}`, chat.Messages[0].Content, chat.MaxTokens, chat.Stream)
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	return nil
}

func (zed) Response(resp *http.Response, _ dialect.Call) error {
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	renamed := strings.NewReplacer(
		`"oops"`, `"error"`,
		`"said":"hi"`, `"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]`,
		`"bit":"hi"`, `"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]`,
		`data: over`, `data: [DONE]`,
	).Replace(string(body))
	resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(renamed)), -1
	return nil
}

func (zed) Usage(_ wire.Endpoint, doc []byte, a *wire.Answer) {
	var own struct{ Consumed struct{ Read, Wrote int64 } }
	if !bytes.Contains(doc, []byte(`"consumed"`)) || json.Unmarshal(doc, &own) != nil {
		return
	}
	a.Usage.Input, a.Usage.Output, a.HasUsage, a.Fault = own.Consumed.Read, own.Consumed.Wrote, true, ""
}

// TestDialect: a dialect needs only its package to be spoken, plain and streamed.
func TestDialect(t *testing.T) {
	r := newRig(t, roomy()...)
	const used = `"consumed":{"read":9,"wrote":3}`
	for _, x := range []struct {
		kind, body, extra, sent, shown string
		status                         int
	}{
		{"application/json", `{"said":"hi",` + used + `}`, "", `{"say":"hello","words":7,"bit_by_bit":false}`, `"content":"hi"`, 200},
		{
			"text/event-stream", "data: {\"bit\":\"hi\"}\n\ndata: {" + used + "}\n\ndata: over\n\n", `,"stream":true`,
			`{"say":"hello","words":7,"bit_by_bit":true}`, "data: [DONE]", 200,
		},
		{"application/json", `{"oops":{"message":"you are mute","type":"mute"}}`, "", `"words":7`, `"you are mute"`, 403},
	} {
		v := &vendor{status: x.status, kind: x.kind, body: x.body}
		r.vendor(t, v, func(p *providers.Provider) { p.Dialect = zed{} })
		c, w, err := r.run(t.Context(), prompt("m", "hello", `"max_tokens":7`+x.extra))
		if err != nil || !strings.Contains(v.sent, x.sent) || !strings.Contains(w.Body.String(), x.shown) || w.Code != x.status {
			t.Errorf("%v: sent %s, answered %d %s", err, v.sent, w.Code, w.Body)
		}
		if v.path != "/v1/talk/m" || v.got.Get("X-Zed") != "sk-vendor" || v.got.Get("Authorization") != "" {
			t.Errorf("sent to %s with %v", v.path, v.got)
		}
		u := c.Result.Usage
		if x.status == 200 && (c.Result.Outcome != Completed || c.Result.Estimated || u.Input != 9 || u.Output != 3) {
			t.Errorf("%s: %+v, fault %q", x.kind, c.Result, c.Result.Fault)
		}
	}
}
