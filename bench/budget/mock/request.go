package mock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"time"

	"github.com/llmguard/llmguard/bench/budget/price"
)

// request is one request that is sold.
type request struct {
	marker, path string
	at           time.Time
	behaviour    Behaviour
	model        price.Model
	limit        int // of the output
	stream       bool
	tellUsage    bool
	used         price.Usage
}

// read finds the model, the input and the output limit.
func (q *request) read(r *http.Request, body []byte) error {
	kind, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == "multipart/form-data" {
		return q.readForm(multipart.NewReader(bytes.NewReader(body), params["boundary"]))
	}
	var in struct {
		Model     string          `json:"model"`
		Messages  []message       `json:"messages"`
		Input     json.RawMessage `json:"input"`
		Prompt    string          `json:"prompt"`
		N         int             `json:"n"`
		Stream    bool            `json:"stream"`
		Tokens    int             `json:"max_tokens"`
		Complete  int             `json:"max_completion_tokens"`
		Responses int             `json:"max_output_tokens"`
		Options   struct {
			Usage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return err
	}
	q.stream, q.tellUsage = in.Stream, in.Options.Usage
	q.limit = max(in.Tokens, in.Complete, in.Responses)
	switch q.path {
	case "images/generations":
		q.used.Images = max(1, in.N)
	case "embeddings":
		q.used.Input = len(strings.Fields(string(in.Input)))
	default:
		q.used.Input = inputTokens(in.Messages, in.Input)
	}
	q.used.Cached = min(q.behaviour.Cached, q.used.Input)
	return q.choose(in.Model)
}

func (q *request) choose(name string) error {
	if q.behaviour.Model != "" {
		name = q.behaviour.Model
	}
	var ok bool
	q.model, ok = price.Of(name)
	if !ok {
		return fmt.Errorf("the mock has no model %q", name)
	}
	return nil
}

func (q *request) readForm(form *multipart.Reader) error {
	var model string
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return q.choose(model)
		}
		if err != nil {
			return err
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return err
		}
		switch part.FormName() {
		case "model":
			model = string(value)
		case "file":
			q.used.Seconds = max(1, (len(value)-wavHead)/wavRate)
		}
	}
}

type message struct {
	Content json.RawMessage `json:"content"`
}

// inputTokens follows OpenAI's formula for chats: three tokens for each message and one for its role,
// three for the answer's start. Prompts of the suite have one token a word.
func inputTokens(messages []message, input json.RawMessage) int {
	n := 3
	if len(input) > 0 {
		return n + 4 + len(strings.Fields(string(input)))
	}
	for _, m := range messages {
		n += 4 + len(strings.Fields(string(m.Content)))
	}
	return n
}

func (q *request) serve(w http.ResponseWriter, r *http.Request) {
	switch q.path {
	case "chat/completions", "responses":
		q.generate(w, r)
	case "embeddings":
		answer(w, map[string]any{
			"object": "list", "model": q.model.Name,
			"data":  []any{map[string]any{"object": "embedding", "index": 0, "embedding": []float64{0.5, 0.5}}},
			"usage": map[string]any{"prompt_tokens": q.used.Input, "total_tokens": q.used.Input},
		})
	case "images/generations":
		images := make([]any, q.used.Images)
		for i := range images {
			images[i] = map[string]any{"url": "https://images.invalid/one.png"}
		}
		answer(w, map[string]any{"created": q.at.Unix(), "data": images})
	case "audio/transcriptions":
		answer(w, map[string]any{
			"text": "hello hello", "usage": map[string]any{"type": "duration", "seconds": q.used.Seconds},
		})
	}
}

// generate counts each token before it is sent. It stops when the connection is gone.
func (q *request) generate(w http.ResponseWriter, r *http.Request) {
	want := q.behaviour.Output
	if q.limit > 0 && (want == 0 || want > q.limit) {
		want = q.limit
	}
	if want == 0 {
		want = 16
	}
	flush := func() {}
	if q.stream {
		w.Header().Set("Content-Type", "text/event-stream")
		flush = func() { _ = http.NewResponseController(w).Flush() }
	}
	if !pause(r.Context(), q.behaviour.First) {
		return
	}
	hidden := min(q.behaviour.Reasoning, want)
	for i := range want {
		if i > 0 && !pause(r.Context(), q.behaviour.Pace) || r.Context().Err() != nil {
			return
		}
		if q.behaviour.Break > 0 && i == q.behaviour.Break {
			flush()
			panic(http.ErrAbortHandler)
		}
		q.used.Output++
		if i < hidden {
			q.used.Reasoning++
			continue
		}
		if q.stream {
			if _, err := fmt.Fprintf(w, "data: %s\n\n", q.chunk(" hello", "")); err != nil {
				return
			}
			if q.behaviour.Pace > 0 {
				flush()
			}
		}
	}
	q.end(w)
}

func (q *request) end(w http.ResponseWriter) {
	text := strings.Repeat(" hello", q.used.Output-q.used.Reasoning)
	usage := q.usage()
	switch {
	case q.stream:
		fmt.Fprintf(w, "data: %s\n\n", q.chunk("", "stop"))
		if q.tellUsage && usage != nil {
			fmt.Fprintf(w, "data: %s\n\n", encode(map[string]any{
				"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": q.at.Unix(), "model": q.model.Name,
				"choices": []any{}, "usage": usage,
			}))
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	case q.path == "responses":
		answer(w, q.response(text))
	default:
		out := map[string]any{
			"id": "chatcmpl-1", "object": "chat.completion", "created": q.at.Unix(), "model": q.model.Name,
			"choices": []any{map[string]any{
				"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": text},
			}},
		}
		if usage != nil {
			out["usage"] = usage
		}
		answer(w, out)
	}
}

func (q *request) chunk(text, finish string) []byte {
	choice := map[string]any{"index": 0, "delta": map[string]any{}, "finish_reason": nil}
	if finish != "" {
		choice["finish_reason"] = finish
	} else {
		choice["delta"] = map[string]any{"role": "assistant", "content": text}
	}
	return encode(map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": q.at.Unix(), "model": q.model.Name,
		"choices": []any{choice},
	})
}

// usage is what the answer reports; nil if it reports none.
func (q *request) usage() map[string]any {
	if q.behaviour.NoUsage {
		return nil
	}
	u := q.used
	if q.behaviour.Lie != nil {
		q.behaviour.Lie(&u)
	}
	return map[string]any{
		"prompt_tokens": u.Input, "completion_tokens": u.Output, "total_tokens": u.Input + u.Output,
		"prompt_tokens_details":     map[string]any{"cached_tokens": u.Cached},
		"completion_tokens_details": map[string]any{"reasoning_tokens": u.Reasoning},
	}
}

func (q *request) response(text string) map[string]any {
	return map[string]any{
		"id": "resp_1", "object": "response", "created_at": q.at.Unix(), "status": "completed", "model": q.model.Name,
		"output": []any{map[string]any{
			"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
			"content": []any{map[string]any{"type": "output_text", "text": text, "annotations": []any{}}},
		}},
		"usage": map[string]any{
			"input_tokens": q.used.Input, "output_tokens": q.used.Output, "total_tokens": q.used.Input + q.used.Output,
			"input_tokens_details":  map[string]any{"cached_tokens": q.used.Cached},
			"output_tokens_details": map[string]any{"reasoning_tokens": q.used.Reasoning},
		},
	}
}

// Recordings of the suite are WAV files of 8 bits, mono, 8000 samples a second.
const (
	wavHead = 44
	wavRate = 8000
)

// Recording returns a silent recording.
func Recording(seconds int) []byte {
	le := func(n, v int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(v >> (8 * i))
		}
		return b
	}
	size := seconds * wavRate
	parts := [][]byte{
		[]byte("RIFF"), le(4, size+36), []byte("WAVEfmt "), le(4, 16), le(2, 1), le(2, 1), le(4, wavRate), le(4, wavRate),
		le(2, 1), le(2, 8), []byte("data"), le(4, size), bytes.Repeat([]byte{128}, size),
	}
	return bytes.Join(parts, nil)
}

func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}
