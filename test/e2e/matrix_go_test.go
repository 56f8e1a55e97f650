package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	official "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	openai "github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/redistest"
)

// connection describes where a call of the matrix goes, and its content.
type connection struct {
	baseURL, key, content, model string
	attempts                     atomic.Int32
	waited                       atomic.Bool
}

// RoundTrip implements http.RoundTripper and counts attempts.
func (c *connection) RoundTrip(r *http.Request) (*http.Response, error) {
	c.attempts.Add(1)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && resp.Header.Get("X-Llmguard-Job-Id") != "" {
		c.waited.Store(true)
	}
	return resp, err
}

const (
	matrixLimit = 50
	matrixTries = 60
)

// goKinds are the calls that a Go client offers: they return a text and the tokens.
type goKinds struct {
	kinds    map[string]func(context.Context, *connection) (string, int64, error)
	describe func(error, *outcome)
}

// golang runs the rows with a Go client.
func (m *matrixRun) golang(client goKinds) []outcome {
	var mu sync.Mutex
	var outcomes []outcome
	var running sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, row := range m.rows {
		for _, kind := range row.Kinds {
			for _, via := range []string{"direct", "through"} {
				if client.kinds[kind] == nil {
					continue
				}
				slots <- struct{}{}
				running.Go(func() {
					defer func() { redistest.Came(m.t, slots) }()
					o := m.once(client, row, kind, via)
					mu.Lock()
					defer mu.Unlock()
					outcomes = append(outcomes, o)
				})
			}
		}
	}
	redistest.Wait(m.t, running.Wait)
	return outcomes
}

// once runs one trial. On a busy machine a call may wait in the queue and end like a job, which
// is not what is tested, so it is repeated.
func (m *matrixRun) once(client goKinds, row trial, kind, via string) (o outcome) {
	for try := range matrixTries {
		c := &connection{baseURL: m.s.fake.BaseURL(), key: providerKey, model: row.Model}
		limit := time.Duration(row.DirectMS) * time.Millisecond
		if via == "through" {
			c.baseURL, c.key, limit = m.p.URL, m.s.keys[m.client.user], 0
		}
		c.content = fmt.Sprintf("[fake: text=one+two+three+four+five+six %s] %s %s %s %s %d", row.Fake, m.client.user, row.Name, kind, via[:1], try)
		ctx, cancel := context.WithCancel(m.t.Context())
		defer cancel()
		if limit > 0 {
			ctx, cancel = context.WithTimeout(ctx, limit)
			defer cancel()
		}
		o = outcome{Row: row.Name, Kind: kind, Via: via, client: m.client.name}
		var err error
		if o.Text, o.Usage, err = client.kinds[kind](ctx, c); err != nil {
			o.Text, o.Usage = "", 0
			client.describe(err, &o)
		}
		o.OK, o.Attempts = err == nil, int(c.attempts.Load())
		if row.Busy || !c.waited.Load() {
			break
		}
	}
	return o
}

var goOpenAI = goKinds{
	kinds: map[string]func(context.Context, *connection) (string, int64, error){
		"chat": func(ctx context.Context, c *connection) (string, int64, error) {
			resp, err := c.sashabaranov().CreateChatCompletion(ctx, c.request())
			if err != nil {
				return "", 0, err
			}
			return resp.Choices[0].Message.Content, int64(resp.Usage.TotalTokens), nil
		},
		"stream": func(ctx context.Context, c *connection) (text string, usage int64, err error) {
			stream, err := c.sashabaranov().CreateChatCompletionStream(ctx, c.request())
			if err != nil {
				return "", 0, err
			}
			defer stream.Close()
			for {
				chunk, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					return text, 0, nil
				}
				if err != nil {
					return "", 0, err
				}
				for _, choice := range chunk.Choices {
					text += choice.Delta.Content
				}
				text += strings.Repeat("(empty)", max(0, 1-len(chunk.Choices)))
			}
		},
	},
	describe: func(err error, o *outcome) {
		o.Class, o.Message = reflect.TypeOf(err).String(), err.Error()
		var api *openai.APIError
		if errors.As(err, &api) {
			o.Status, o.Type, o.Message = api.HTTPStatusCode, api.Type, api.Message
			if api.Code != nil {
				o.Code = fmt.Sprint(api.Code)
			}
			if api.Param != nil {
				o.Param = *api.Param
			}
		}
		var request *openai.RequestError
		if errors.As(err, &request) {
			o.Status, o.Message = request.HTTPStatusCode, string(request.Body)
		}
	},
}

func (c *connection) sashabaranov() *openai.Client {
	config := openai.DefaultConfig(c.key)
	config.BaseURL, config.HTTPClient = c.baseURL, &http.Client{Timeout: client.Timeout, Transport: c}
	return openai.NewClientWithConfig(config)
}

func (c *connection) request() openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{
		Model: c.model, MaxTokens: matrixLimit, Messages: []openai.ChatCompletionMessage{{Role: "user", Content: c.content}},
	}
}

var openaiGo = goKinds{
	kinds: map[string]func(context.Context, *connection) (string, int64, error){
		"chat": func(ctx context.Context, c *connection) (string, int64, error) {
			resp, err := c.official().Chat.Completions.New(ctx, c.chatParams())
			if err != nil {
				return "", 0, err
			}
			return resp.Choices[0].Message.Content, resp.Usage.TotalTokens, nil
		},
		"stream": func(ctx context.Context, c *connection) (text string, usage int64, err error) {
			stream := c.official().Chat.Completions.NewStreaming(ctx, c.chatParams())
			defer stream.Close()
			for stream.Next() {
				chunk := stream.Current()
				for _, choice := range chunk.Choices {
					text += choice.Delta.Content
				}
				text += strings.Repeat("(empty)", max(0, 1-len(chunk.Choices)))
			}
			return text, 0, stream.Err()
		},
		"response": func(ctx context.Context, c *connection) (string, int64, error) {
			resp, err := c.official().Responses.New(ctx, c.responseParams())
			if err != nil {
				return "", 0, err
			}
			return resp.OutputText(), resp.Usage.TotalTokens, nil
		},
		"events": func(ctx context.Context, c *connection) (text string, usage int64, err error) {
			stream := c.official().Responses.NewStreaming(ctx, c.responseParams())
			defer stream.Close()
			for stream.Next() {
				event := stream.Current()
				text += event.Type + " " + event.Delta + " "
			}
			return text, 0, stream.Err()
		},
	},
	describe: func(err error, o *outcome) {
		o.Class, o.Message = reflect.TypeOf(err).String(), err.Error()
		var api *official.Error
		if errors.As(err, &api) {
			o.Status, o.Type, o.Code, o.Param, o.Message = api.StatusCode, api.Type, api.Code, api.Param, api.Message
		}
	},
}

func (c *connection) official() *official.Client {
	client := official.NewClient(option.WithAPIKey(c.key), option.WithBaseURL(c.baseURL), option.WithHTTPClient(&http.Client{Timeout: client.Timeout, Transport: c}))
	return &client
}

func (c *connection) chatParams() official.ChatCompletionNewParams {
	return official.ChatCompletionNewParams{
		Model: c.model, MaxTokens: official.Int(matrixLimit),
		Messages: []official.ChatCompletionMessageParamUnion{official.UserMessage(c.content)},
	}
}

func (c *connection) responseParams() responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: c.model, MaxOutputTokens: official.Int(matrixLimit),
		Input: responses.ResponseNewParamsInputUnion{OfString: official.String(c.content)},
	}
}
