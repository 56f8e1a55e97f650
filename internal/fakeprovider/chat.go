package fakeprovider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// completion is an answer, or a chunk of one.
type completion struct {
	ID          string          `json:"id"`
	Object      string          `json:"object"`
	Created     int64           `json:"created"`
	Model       string          `json:"model"`
	Tier        string          `json:"service_tier"`
	Fingerprint string          `json:"system_fingerprint"`
	Choices     any             `json:"choices"` // of plainChoice, chunkChoice or textChoice
	Usage       json.RawMessage `json:"usage,omitempty"`
	Obfuscation string          `json:"obfuscation,omitempty"`
}

// frame returns an answer without choices, or a chunk.
func (a *answer) frame(object string) completion {
	return completion{
		ID: a.id, Object: object, Created: a.created, Model: a.model, Tier: a.tier, Fingerprint: "fp_fake000001",
	}
}

type plainChoice struct {
	Index   int          `json:"index"`
	Message plainMessage `json:"message"`
	Logprob *struct{}    `json:"logprobs"`
	Finish  string       `json:"finish_reason"`
}

type plainMessage struct {
	Role        string     `json:"role"`
	Content     *string    `json:"content"`
	ToolCalls   []toolCall `json:"tool_calls,omitempty"`
	Refusal     *string    `json:"refusal"`
	Annotations []string   `json:"annotations"`
}

var _ = post("/v1/chat/completions", func(x *exchange) error { return generate(x, x.q.chat) })

// generate serves an endpoint that generates text.
func generate(x *exchange, read func() error) error {
	err := x.admit(read)
	if err != nil || x.opening() {
		return err
	}
	a, err := x.s.answerTo(x.q, &x.b)
	if err != nil {
		return err
	}
	x.s.log.update(x.rec, func(rec *Record) {
		rec.AnswerModel, rec.Tier, rec.Others = a.model, a.tier, a.others
		if x.claude {
			rec.Speed, rec.Geo = x.q.claude.Speed, x.q.claude.Geo
		}
	})
	if string(x.q.fields["store"]) == "true" && x.r.URL.Path == "/v1/chat/completions" {
		x.s.rename(x.s.newThing("/v1/chat/completions", map[string]any{"model": a.model}), a.id)
	}
	if x.q.Stream {
		newStream(x, a).run()
	} else {
		answerPlain(x, a)
	}
	x.s.quotas.of(x.key()).generated(x.s.now(), a.usage.Completion)
	return nil
}

// answerPlain writes the answer as one JSON document.
func answerPlain(x *exchange, a *answer) {
	if x.b.Endless {
		x.endless()
		return
	}
	if !x.s.sleep(x.ctx, x.pace(a.usage.Completion)) {
		x.used(Usage{Prompt: a.usage.Prompt, Cached: a.usage.Cached})
		x.abandon()
		return
	}
	x.used(a.usage)
	switch x.r.URL.Path {
	case "/v1/responses":
		answerPlainResponse(x, a)
	case "/v1/completions":
		answerPlainText(x, a)
	case "/v1/messages":
		answerPlainMessage(x, a)
	default:
		answerPlainChat(x, a)
	}
}

func answerPlainChat(x *exchange, a *answer) {
	body := a.frame("chat.completion")
	body.Usage = x.usage(chatUsage(a.usage))
	var choices []plainChoice
	for i, c := range a.choices {
		choices = append(choices, plainChoice{Index: i, Message: c.message(), Finish: c.finish})
	}
	body.Choices = choices
	x.finish(encode(body))
}

func (c *choice) message() plainMessage {
	m := plainMessage{Role: "assistant", Annotations: []string{}, ToolCalls: c.calls}
	if len(c.calls) == 0 {
		m.Content = new(strings.Join(c.pieces, ""))
	}
	return m
}

// finish sends a body, or the part of it before a cut.
func (x *exchange) finish(body []byte) {
	if x.b.Garbage {
		body = body[:len(body)/2]
	}
	switch x.b.Cut {
	case CutReset, CutAbort:
		x.outcome(WasCut)
		x.w.Header().Set("Content-Length", "1000000")
		x.begin(http.StatusOK, "application/json")
		_, _ = x.w.Write(body[:len(body)/2])
		_ = http.NewResponseController(x.w).Flush()
		if x.b.Cut == CutReset {
			x.s.sleep(x.ctx, 20*time.Millisecond) // a reset would overtake bytes in flight
			x.reset()
			return
		}
		panic(http.ErrAbortHandler)
	}
	x.outcome(OK)
	x.write(http.StatusOK, "application/json", body)
}

// endless sends headers and then spaces until the connection ends.
func (x *exchange) endless() {
	x.begin(http.StatusOK, "application/json")
	for x.s.sleep(x.ctx, max(x.b.Gap, 10*time.Millisecond)) {
		_, _ = x.w.Write([]byte(" "))
		_ = http.NewResponseController(x.w).Flush()
	}
	x.abandon()
}

// pace returns how long a non-streamed answer of this many tokens takes.
func (x *exchange) pace(tokens int64) time.Duration {
	first, gap := x.cadence()
	return first + time.Duration(tokens)*gap
}

func (x *exchange) cadence() (first, gap time.Duration) {
	return cmp.Or(x.b.First, x.s.opts.Cadence.First), cmp.Or(x.b.Gap, x.s.opts.Cadence.Token)
}

// encode is json.Marshal without HTML escaping.
func encode(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("fake provider: " + err.Error())
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}
