package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/bench/budget/mock"
	"github.com/llmguard/llmguard/bench/budget/price"
)

// Verdict is how a call ended.
type Verdict string

// The verdicts.
const (
	Served  Verdict = "served"
	Refused Verdict = "refused" // by the budget
	HungUp  Verdict = "hung up" // by the caller
	Outage  Verdict = "outage"  // refused or broken in an outage
	Failed  Verdict = "failed"  // any other error
)

// Call is one call of a user.
type Call struct {
	User, Key, Replica int
	Endpoint           string // below /v1/; default chat/completions
	Model              string // default gpt-4o
	Input              int    // words in addition to the marker, each one token
	Output             int    // output limit; 0: none
	Images, Seconds    int    // of endpoints for images and audio
	Stream             bool
	HangUp             int           // hangs up after this many tokens of a stream; 0: never
	Timeout            time.Duration // hangs up after this time; 0: a minute
	Headers            map[string]string
	Mock               func(attempt int) mock.Behaviour
}

// Outcome is what the caller saw.
type Outcome struct {
	Verdict Verdict
	Status  int
	Body    []byte // of plain answers
}

// ChatOverhead is how many tokens a chat's prompt has in addition to Input.
const ChatOverhead = mock.MarkerWords + 7

// Most is the most that a call can cost.
func (c Call) Most() price.Nano {
	m, _ := price.Of(c.model())
	if c.Images > 0 || c.Seconds > 0 {
		return m.Cost(price.Usage{Images: c.Images, Seconds: c.Seconds})
	}
	return m.Cost(price.Usage{Input: c.Input + ChatOverhead, Output: c.Output})
}

func (c Call) model() string {
	if c.Model == "" {
		return "gpt-4o"
	}
	return c.Model
}

// Call makes a call and returns when it has ended.
func (a *Arena) Call(c Call) Outcome {
	marker := a.marker(c.User)
	if c.Mock != nil {
		a.Mock.On(marker, c.Mock)
	}
	if c.Endpoint == "" {
		c.Endpoint = "chat/completions"
	}
	kind, body := c.body(marker, a.Gateway.Manifest.Call.ModelPrefix)
	out := a.Send(c, http.MethodPost, c.Endpoint, kind, body)
	if out.Verdict != Served && a.outage.Load() {
		out.Verdict = Outage
	}
	a.count(c.User, out.Verdict)
	return out
}

// Send sends a request of a user and judges its answer. It counts nothing.
func (a *Arena) Send(c Call, method, path, kind string, body []byte) Outcome {
	limit := c.Timeout
	if limit == 0 {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeout(a.Ctx, limit)
	defer cancel()
	base, headers, err := a.Gateway.Target(c.User, c.Key, c.Replica)
	if err != nil {
		return Outcome{Verdict: Failed, Body: []byte(err.Error())}
	}
	r, err := http.NewRequestWithContext(ctx, method, base+"/"+path, bytes.NewReader(body))
	if err != nil {
		return Outcome{Verdict: Failed, Body: []byte(err.Error())}
	}
	r.Header.Set("Content-Type", kind)
	for _, more := range []map[string]string{headers, c.Headers} {
		for name, value := range more {
			r.Header.Set(name, value)
		}
	}
	answer, err := a.client.Do(r)
	if err != nil {
		if c.Timeout > 0 && ctx.Err() != nil {
			return Outcome{Verdict: HungUp}
		}
		return Outcome{Verdict: Failed, Body: []byte(err.Error())}
	}
	defer answer.Body.Close()
	return a.read(c, answer, cancel)
}

func (a *Arena) read(c Call, answer *http.Response, hangUp func()) Outcome {
	out := Outcome{Verdict: Served, Status: answer.StatusCode}
	rules := a.Gateway.Manifest.Call
	switch {
	case slices.Contains(rules.Refused, answer.StatusCode):
		out.Verdict = Refused
	case slices.Contains(rules.Unavailable, answer.StatusCode), answer.StatusCode >= 300:
		out.Verdict = Failed
	case c.Stream:
		out.Verdict = readStream(answer.Body, c.HangUp, hangUp)
		return out
	}
	text, err := io.ReadAll(answer.Body)
	out.Body = text
	if err != nil && out.Verdict == Served {
		out.Verdict = Failed
		if c.Timeout > 0 {
			out.Verdict = HungUp
		}
	}
	return out
}

func readStream(body io.Reader, most int, hangUp func()) Verdict {
	lines := bufio.NewScanner(body)
	tokens, done := 0, false
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.Contains(line, `"content":" hello"`) || strings.Contains(line, `"content": " hello"`):
			tokens++
			if most > 0 && tokens >= most {
				hangUp()
				return HungUp
			}
		case line == "data: [DONE]":
			done = true
		}
	}
	if !done || lines.Err() != nil {
		return Failed
	}
	return Served
}

func (c Call) body(marker, prefix string) (kind string, body []byte) {
	text := marker + strings.Repeat(" hello", c.Input)
	if c.Seconds > 0 {
		return c.form(text, prefix)
	}
	in := map[string]any{"model": prefix + c.model()}
	switch c.Endpoint {
	case "embeddings":
		in["input"] = text
	case "images/generations":
		in["prompt"], in["n"], in["size"] = text, c.Images, "1024x1024"
	case "responses":
		in["input"] = text
		if c.Output > 0 {
			in["max_output_tokens"] = c.Output
		}
	default:
		in["messages"] = []any{map[string]any{"role": "user", "content": text}}
		if c.Output > 0 {
			name := "max_tokens"
			if strings.HasPrefix(c.model(), "o4") {
				name = "max_completion_tokens"
			}
			in[name] = c.Output
		}
	}
	if c.Stream {
		in["stream"] = true
		in["stream_options"] = map[string]any{"include_usage": true}
	}
	body, err := json.Marshal(in)
	if err != nil {
		panic(err) // of texts and numbers
	}
	return "application/json", body
}

func (c Call) form(text, prefix string) (kind string, body []byte) {
	var out bytes.Buffer
	form := multipart.NewWriter(&out)
	_ = form.WriteField("model", prefix+c.model())
	_ = form.WriteField("prompt", text)
	file, err := form.CreateFormFile("file", "recording.wav")
	if err == nil {
		_, err = file.Write(mock.Recording(c.Seconds))
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		panic(err) // into memory
	}
	return form.FormDataContentType(), out.Bytes()
}
