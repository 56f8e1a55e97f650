package fakeprovider

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sashabaranov/go-openai"
)

// Request is one request as passed to a script.
type Request struct {
	Seq          int64 // order of arrival, from 1
	Method, Path string
	Header       http.Header
	Body         []byte
	Model        string
	Stream       bool
	IncludeUsage bool
	MaxTokens    int64 // output limit; -1 if absent
	N            int   // choices
	ServiceTier  string
	Effort       string // reasoning_effort
	UserText     string // text of the user's messages or of embedding inputs
	// Requested is what counts against tokens per minute: the larger of the output limit and a
	// quarter of the characters of text, at least 1. Token ids in embedding input count
	// individually. For the Messages API: the input tokens that are not read from the cache.
	Requested int64

	hash       string // sha256 of the body, hex
	fields     map[string]json.RawMessage
	messages   []message
	tools      []tool
	toolChoice json.RawMessage
	format     responseFormat
	inputs     []input // embeddings
	dimensions int
	base64     bool
	creation   creation
	items      []json.RawMessage // input items of a Responses request
	hidden     int64             // tokens of the response or conversation that it continues
	spoken     *thing            // the conversation that the output is added to
	bestOf     int
	claude     *claudeRequest // of the Messages API, otherwise nil
}

type message struct {
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Name      string          `json:"name"`
	ToolCalls []toolCall      `json:"tool_calls"`

	texts  []string
	images []openai.ChatMessageImageURL
}

// part is a content part of a message, or of an item of Responses.
type part struct {
	Type     string                `json:"type"`
	Text     string                `json:"text"`
	Refusal  string                `json:"refusal"`
	ImageURL json.RawMessage       `json:"image_url"` // a string in Responses
	Detail   openai.ImageURLDetail `json:"detail"`
}

type tool struct {
	Type     string   `json:"type"`
	Function function `json:"function"`
}

type function struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

type responseFormat struct {
	Type       string      `json:"type"`
	JSONSchema namedSchema `json:"json_schema"`
}

type namedSchema struct {
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

func newRequest(r *http.Request, seq int64, body []byte) *Request {
	sum := sha256.Sum256(body)
	return &Request{
		Seq: seq, Method: r.Method, Path: r.URL.Path, Header: r.Header, Body: body,
		MaxTokens: -1, N: 1, hash: hex.EncodeToString(sum[:]),
	}
}

// open parses the top level of the body: names must match exactly, and the last duplicate wins.
func (q *Request) open() error {
	if err := json.Unmarshal(q.Body, &q.fields); err != nil || q.fields == nil {
		return invalid("", "", "We could not parse the JSON body of your request. (HINT: This likely means you aren't "+
			"using your HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)")
	}
	if !utf8.Valid(q.Body) {
		return invalid("", "", "The body of your request is not valid UTF-8.")
	}
	if err := q.field("model", &q.Model); err != nil {
		return err
	}
	if q.Model == "" && strings.HasPrefix(q.Path, "/v1/messages") {
		return invalid("", "", "model: Field required")
	}
	if q.Model == "" {
		return invalid("", "", "you must provide a model parameter")
	}
	return nil
}

// read decodes top-level fields, in the order of their names.
func (q *Request) read(fields map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := q.field(name, fields[name]); err != nil {
			return err
		}
	}
	return nil
}

// field decodes a top-level field into v; null and absent fields leave v unchanged.
func (q *Request) field(name string, v any) error {
	raw, ok := q.fields[name]
	if !ok || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return invalid(name, "invalid_type", "Invalid type for '%s': %v.", name, err)
	}
	return nil
}

// has reports whether a field is present and not null.
func (q *Request) has(name string) bool {
	raw, ok := q.fields[name]
	return ok && !bytes.Equal(raw, []byte("null"))
}

// chat reads the fields of a chat completion.
func (q *Request) chat() error {
	var maxTokens, maxCompletion *int64
	var options *openai.StreamOptions
	err := q.read(map[string]any{
		"messages": &q.messages, "stream": &q.Stream, "stream_options": &options, "max_tokens": &maxTokens,
		"max_completion_tokens": &maxCompletion, "n": &q.N, "service_tier": &q.ServiceTier, "reasoning_effort": &q.Effort,
		"tools": &q.tools, "tool_choice": &q.toolChoice, "response_format": &q.format,
	})
	if err != nil {
		return err
	}
	if options != nil {
		q.IncludeUsage = options.IncludeUsage
		if !q.Stream {
			return invalid("stream_options", "", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
		}
	}
	if err := q.limit(maxTokens, maxCompletion); err != nil {
		return err
	}
	if err := q.checkChat(); err != nil {
		return err
	}
	return q.readMessages()
}

// limit determines the output limit from its two names.
func (q *Request) limit(maxTokens, maxCompletion *int64) error {
	switch {
	case maxTokens != nil && maxCompletion != nil:
		return invalid("max_tokens", "invalid_parameter_combination",
			"Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
	case maxTokens != nil && reasons(q.Model):
		return invalid("max_tokens", "unsupported_parameter",
			"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.")
	case maxTokens != nil:
		q.MaxTokens = *maxTokens
	case maxCompletion != nil:
		q.MaxTokens = *maxCompletion
	}
	if (maxTokens != nil || maxCompletion != nil) && q.MaxTokens < 1 {
		return invalid("max_tokens", "integer_below_min_value",
			"Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got %d instead.", q.MaxTokens)
	}
	return nil
}

func (q *Request) checkChat() error {
	switch {
	case len(q.messages) == 0:
		return invalid("messages", "missing_required_parameter", "Missing required parameter: 'messages'.")
	case q.N < 1 || q.N > 128:
		return invalid("n", "integer_out_of_range", "Invalid 'n': expected an integer between 1 and 128, but got %d instead.",
			q.N)
	}
	switch q.ServiceTier {
	case "", "auto", "default", "flex", "scale", "priority", "fast":
		return nil
	}
	return invalid("service_tier", "invalid_value",
		"Invalid value: '%s'. Supported values are: 'auto', 'default', 'flex', 'scale', 'priority', and 'fast'.",
		q.ServiceTier)
}

// readMessages collects the texts and images, and what counts for the quota.
func (q *Request) readMessages() error {
	var user strings.Builder
	chars := 0
	for i := range q.messages {
		m := &q.messages[i]
		if err := m.read(); err != nil {
			return err
		}
		for _, t := range m.texts {
			chars += utf8.RuneCountInString(t)
			if m.Role == "user" {
				user.WriteString(t)
				user.WriteByte('\n')
			}
		}
	}
	q.UserText = user.String()
	q.Requested = max(q.MaxTokens, int64(chars+3)/4, 1)
	return nil
}

func (m *message) read() error {
	switch m.Role {
	case "system", "developer", "user", "assistant", "tool", "function":
	default:
		return invalid("messages", "invalid_value",
			"Invalid value: '%s'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.",
			m.Role)
	}
	var text *string
	if json.Unmarshal(m.Content, &text) == nil || len(m.Content) == 0 {
		if text != nil {
			m.texts = []string{*text}
		}
		return nil
	}
	var parts []part
	if err := json.Unmarshal(m.Content, &parts); err != nil {
		return invalid("messages", "invalid_type",
			"Invalid type for 'messages.content': expected one of a string or array of objects.")
	}
	for _, p := range parts {
		switch p.Type {
		case "text", "input_text", "output_text":
			m.texts = append(m.texts, p.Text)
		case "refusal":
			m.texts = append(m.texts, p.Refusal)
		case "image_url", "input_image":
			img := openai.ChatMessageImageURL{Detail: p.Detail}
			if json.Unmarshal(p.ImageURL, &img.URL) != nil {
				_ = json.Unmarshal(p.ImageURL, &img) // the image stays empty if it is neither
			}
			m.images = append(m.images, img)
		}
	}
	return nil
}

// tier returns the service tier of the response.
func (q *Request) tier() string {
	if q.claude != nil {
		if q.Header.Get("X-Fake-Batch") != "" {
			return "batch"
		}
		return "standard"
	}
	switch q.ServiceTier {
	case "", "auto":
		return "default"
	case "fast":
		return "priority"
	}
	return q.ServiceTier
}

// reasons reports whether a model uses reasoning tokens.
func reasons(model string) bool {
	if strings.Contains(model, "chat") {
		return false
	}
	return slices.ContainsFunc([]string{"o1", "o3", "o4", "gpt-5", "gpt-6"}, func(prefix string) bool {
		return strings.HasPrefix(model, prefix)
	})
}
