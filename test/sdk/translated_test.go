package sdk

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"

	"github.com/llmguard/llmguard/internal/chat"
	"github.com/llmguard/llmguard/internal/messages"
	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// translator serves a wire by translating requests for another one, and the answers that it is given.
type translator struct {
	t             *testing.T
	endpoint      wire.Endpoint
	lacks         neutral.Lacks
	request       func(*wire.Request, neutral.Options) (*neutral.Request, error)
	body          func(*neutral.Request, neutral.Form) ([]byte, error)
	reader        func(neutral.Writer) neutral.Reader
	writer        func(neutral.Reply, bool) neutral.Writer
	whole, stream string
	sent          []string // the bodies for the provider
}

func (s *translator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	asked, err := wire.Scan(s.endpoint, body, wire.Limits{})
	if err != nil {
		s.t.Error(err)
		return
	}
	n, err := s.request(asked, neutral.Options{Lacks: s.lacks})
	if err != nil {
		s.t.Error(err)
		return
	}
	sent, err := s.body(n, neutral.Form{Limit: 4096})
	if err != nil {
		s.t.Error(err)
	}
	s.sent = append(s.sent, string(sent))
	to := s.writer(neutral.Reply{Request: asked}, asked.Stream)
	from := s.reader(to)
	if !asked.Stream {
		out, err := neutral.Whole([]byte(s.whole), from, to)
		if err != nil {
			s.t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	stream := neutral.Stream{From: from, To: to}
	for event := range strings.SplitAfterSeq(s.stream, "\n\n") {
		out, _ := stream.Event([]byte(event))
		_, _ = w.Write(out)
	}
	_, _ = w.Write(stream.Close())
}

func (s *translator) start() string {
	server := httptest.NewServer(s)
	s.t.Cleanup(server.Close)
	return server.URL
}

// TestTranslatedMessages: Anthropic's client reads answers and streams of chat completions as messages, which are the same,
// and sends back what it has read.
func TestTranslatedMessages(t *testing.T) {
	const head = `{"id":"c1","created":5,"model":"gpt","choices":[{"index":0,`
	s := &translator{
		t: t, endpoint: wire.Messages, lacks: chat.Lacks, request: messages.Request, body: chat.Body, reader: chat.NewReader,
		writer: messages.NewWriter,
		whole: head + `"message":{"role":"assistant","reasoning_content":"hm","content":"it is","tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Ulm\"}"}}]},
			"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4}}}`,
		stream: "data: " + head + `"delta":{"role":"assistant","content":""}}]}` + "\n\ndata: " + head + `"delta":{"reasoning_content":"hm"}}]}` + "\n\ndata: " + head + `"delta":{"content":"it"}}]}` + "\n\ndata: " + head + `"delta":{"content":" is"}}]}` +
			"\n\ndata: " + head + `"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":""}}]}}]}` + "\n\ndata: " + head + `"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]}}]}` +
			"\n\ndata: " + head + `"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"Ulm\"}"}}]}}]}` + "\n\ndata: " + head + `"delta":{},"finish_reason":"tool_calls"}]}` +
			"\n\ndata: " + `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":4}}}` + "\n\ndata: [DONE]\n\n",
	}
	client := anthropic.NewClient(option.WithBaseURL(s.start()), option.WithAPIKey("k"), option.WithMaxRetries(0))
	params := anthropic.MessageNewParams{
		Model: "m", MaxTokens: 1000, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hi"))},
	}
	plain, err := client.Messages.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	var streamed anthropic.Message
	events := client.Messages.NewStreaming(t.Context(), params)
	for events.Next() {
		if err := streamed.Accumulate(events.Current()); err != nil {
			t.Fatal(err)
		}
	}
	if events.Err() != nil {
		t.Fatal(events.Err())
	}
	for _, m := range []anthropic.Message{*plain, streamed} {
		if m.ID != "c1" || m.Model != "gpt" || m.StopReason != "tool_use" || m.Usage.InputTokens != 6 || m.Usage.CacheReadInputTokens != 4 ||
			m.Usage.OutputTokens != 7 || len(m.Content) != 3 || m.Content[0].Thinking != "hm" || m.Content[1].Text != "it is" ||
			m.Content[2].ID != "call_1" || string(m.Content[2].Input) != `{"city":"Ulm"}` {
			t.Errorf("got %+v", m)
		}
	}
	params.Messages = append(params.Messages, streamed.ToParam(), anthropic.NewUserMessage(anthropic.NewToolResultBlock("call_1", "sunny", false)))
	if _, err := client.Messages.New(t.Context(), params); err != nil {
		t.Fatal(err)
	}
	var body struct{ Messages json.RawMessage }
	if err := json.Unmarshal([]byte(s.sent[len(s.sent)-1]), &body); err != nil {
		t.Fatal(err)
	}
	const want = `[{"role":"user","content":"hi"},{"role":"assistant","content":"it is","tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Ulm\"}"}}]},` +
		`{"role":"tool","tool_call_id":"call_1","content":"sunny"}]`
	if string(body.Messages) != want {
		t.Errorf("got  %s\nwant %s", body.Messages, want)
	}
}

// TestTranslatedChat: OpenAI's client reads messages and their streams as chat completions, which are the same.
func TestTranslatedChat(t *testing.T) {
	s := &translator{
		t: t, endpoint: wire.ChatCompletions, lacks: messages.Lacks, request: chat.Request, body: messages.Body, reader: messages.NewReader,
		writer: chat.NewWriter,
		whole: `{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"text","text":"it is"},{"type":"tool_use","id":"toolu_1","name":"weather","input":{"city":"Ulm"}}],
			"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":6,"cache_read_input_tokens":4,"cache_creation_input_tokens":0,"output_tokens":7}}`,
		stream: strings.Join([]string{
			`data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude","content":[],"usage":{"input_tokens":6,"cache_read_input_tokens":4,"output_tokens":1}}}`,
			`data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
			`data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`, `data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}}`,
			`data: {"type":"content_block_stop","index":0}`, `data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}`,
			`data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"it is"}}`, `data: {"type":"content_block_stop","index":1}`,
			`data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"weather","input":{}}}`,
			`data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"city\":"}}`, `data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"Ulm\"}"}}`,
			`data: {"type":"content_block_stop","index":2}`, `data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":7}}`, `data: {"type":"message_stop"}`, ``,
		}, "\n\n"),
	}
	client := openai.NewClient(openaioption.WithBaseURL(s.start()), openaioption.WithAPIKey("k"), openaioption.WithMaxRetries(0))
	params := openai.ChatCompletionNewParams{
		Model: "m", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	plain, err := client.Chat.Completions.New(t.Context(), params)
	if err != nil {
		t.Fatal(err)
	}
	var streamed openai.ChatCompletionAccumulator
	events := client.Chat.Completions.NewStreaming(t.Context(), params)
	for events.Next() {
		if !streamed.AddChunk(events.Current()) {
			t.Fatalf("the client does not accept %s", events.Current().RawJSON())
		}
	}
	if events.Err() != nil {
		t.Fatal(events.Err())
	}
	for _, c := range []openai.ChatCompletion{*plain, streamed.ChatCompletion} {
		if len(c.Choices) != 1 || len(c.Choices[0].Message.ToolCalls) != 1 {
			t.Fatalf("got %+v", c)
		}
		m := c.Choices[0].Message
		if c.ID != "msg_1" || c.Model != "claude" || c.Choices[0].FinishReason != "tool_calls" || c.Usage.PromptTokens != 10 ||
			c.Usage.PromptTokensDetails.CachedTokens != 4 || c.Usage.CompletionTokens != 7 || m.Content != "it is" ||
			m.ToolCalls[0].ID != "toolu_1" || m.ToolCalls[0].Function.Arguments != `{"city":"Ulm"}` {
			t.Errorf("got %+v", c)
		}
	}
}
