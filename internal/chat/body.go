package chat

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// The types below are go-openai's where those lose nothing: it has no files, sound or unknown members,
// omits empty strings, and reads numbers as float32 and texts twice.
type (
	request struct {
		Model          raw       `json:"model"`
		Messages       []message `json:"messages"`
		Tools          []tool    `json:"tools,omitzero"`
		Parallel       raw       `json:"parallel_tool_calls,omitzero"`
		ToolChoice     any       `json:"tool_choice,omitempty"` // raw, or tool
		ResponseFormat *format   `json:"response_format,omitzero"`
		Verbosity      raw       `json:"verbosity,omitzero"`
		Effort         string    `json:"reasoning_effort,omitzero"`
		Stream         raw       `json:"stream,omitzero"`
		Temperature    raw       `json:"temperature,omitzero"`
		TopP           raw       `json:"top_p,omitzero"`
		Stop           raw       `json:"stop,omitzero"`
		User           raw       `json:"user,omitzero"`
		ServiceTier    raw       `json:"service_tier,omitzero"`
		MaxTokens      int64     `json:"max_tokens,omitzero"`
		MaxCompletion  int64     `json:"max_completion_tokens,omitzero"`
		More           raw       `json:",embed"`
	}
	message struct {
		Role      neutral.Role `json:"role,omitzero"`
		CallID    raw          `json:"tool_call_id,omitzero"`
		Content   any          `json:"content,omitzero"` // raw, or []part
		Refusal   raw          `json:"refusal,omitzero"`
		Reasoning raw          `json:"reasoning_content,omitzero"`
		Details   []thought    `json:"reasoning_details,omitzero"`
		ToolCalls []toolCall   `json:"tool_calls,omitzero"`
	}
	// thought is reasoning that a provider signed, or that only it can read, in the form of OpenRouter.
	thought struct {
		Type      string `json:"type"`
		Text      raw    `json:"text,omitzero"`
		Signature raw    `json:"signature,omitzero"`
		Data      raw    `json:"data,omitzero"`
		Format    string `json:"format"`
		Index     int    `json:"index"`
	}
	part struct {
		Type  string `json:"type"`
		Text  raw    `json:"text,omitzero"`
		Image *image `json:"image_url,omitzero"`
		File  *file  `json:"file,omitzero"`
		Audio raw    `json:"input_audio,omitzero"`
	}
	image struct {
		URL    raw `json:"url"`
		Detail raw `json:"detail,omitzero"`
	}
	file struct {
		Data raw `json:"file_data"`
		Name raw `json:"filename,omitzero"`
	}
	toolCall struct {
		Index    *int            `json:"index,omitzero"` // in a stream
		ID       raw             `json:"id,omitzero"`
		Type     openai.ToolType `json:"type,omitzero"`
		Function called          `json:"function"`
	}
	called struct {
		Name      raw `json:"name,omitzero"`
		Arguments raw `json:"arguments"`
	}
	tool struct {
		Type     openai.ToolType `json:"type"`
		Function function        `json:"function"`
	}
	// function has no place for cache marks.
	function struct {
		Name        raw  `json:"name"`
		Description raw  `json:"description,omitzero"`
		Parameters  raw  `json:"parameters,omitzero"`
		Strict      bool `json:"strict,omitzero"` // false is the default, and some servers do not know the member
	}
	format struct {
		Type   string `json:"type"`
		Schema raw    `json:"json_schema,omitzero"`
	}
)

// Body returns the body of a chat completion. It drops marks for caches, reasoning of earlier turns, and whether
// a tool call failed, which its result says.
func Body(r *neutral.Request, f neutral.Form) ([]byte, error) {
	q := request{
		Model: r.Model, Verbosity: r.Verbosity, Effort: effort(r), Stream: r.Stream, Temperature: r.Temperature,
		TopP: r.TopP, Stop: r.Stop, User: user(r.User), ServiceTier: r.ServiceTier, More: r.More,
	}
	for _, m := range r.Messages {
		shown := slices.DeleteFunc(slices.Clone(m.Parts), hidden)
		if len(shown) > 0 || len(m.Parts) == 0 {
			m.Parts = shown
			q.Messages = append(q.Messages, messageOf(m))
		}
	}
	if len(r.Tools) > 0 { // chat rejects the other tool settings without tools
		q.Tools, q.Parallel, q.ToolChoice = tools(r.Tools), r.Parallel, r.Choice.Mode
		if r.Choice.Name != nil {
			q.ToolChoice = tool{Type: openai.ToolTypeFunction, Function: function{Name: r.Choice.Name}}
		}
	}
	if r.Format.Type != "" {
		q.ResponseFormat = &format{r.Format.Type, r.Format.Schema}
	}
	switch limit := max(r.Limit, 0); f.LimitField {
	case "max_tokens":
		q.MaxTokens = limit
	default:
		q.MaxCompletion = limit
	}
	body := bytes.NewBuffer(make([]byte, 0, f.Size+f.Size/3)) // a buffer with less room left would grow
	err := json.MarshalWrite(body, &q, neutral.AsSent)
	return body.Bytes(), err
}

// effort returns how much to think. A budget becomes the word that is nearest.
func effort(r *neutral.Request) string {
	switch {
	case r.Effort != "" || r.Budget <= 0:
		return r.Effort
	case r.Budget <= 2_048:
		return "low"
	case r.Budget <= 8_192:
		return "medium"
	}
	return "high"
}

// maxUser is how many bytes of a user OpenAI accepts. llmguard adds a prefix of 17.
const maxUser = 64 - 17

// user replaces a user that is too long, as agents send it, by its hash, which identifies them as well.
func user(sent raw) raw {
	if len(neutral.Inside(sent)) <= maxUser {
		return sent
	}
	sum := sha256.Sum256(sent)
	return wire.AppendQuoted(nil, hex.EncodeToString(sum[:16]))
}

// hidden reports whether a part has no place in chat.
func hidden(p neutral.Part) bool { return p.Kind == neutral.Reasoning || p.Kind == neutral.Redacted }

func tools(list []neutral.Tool) []tool {
	out := make([]tool, len(list))
	for i, t := range list {
		out[i] = tool{openai.ToolTypeFunction, function{t.Name, t.Description, t.Parameters, t.Strict}}
	}
	return out
}

// messageOf returns a message of a request, or of an answer, in which reasoning is shown.
func messageOf(m neutral.Message) message {
	out := message{Role: m.Role, CallID: m.CallID}
	said := make([]neutral.Part, 0, len(m.Parts))
	for _, p := range m.Parts {
		switch p.Kind {
		case neutral.Call:
			out.ToolCalls = append(out.ToolCalls, callOf(p.CallID, p.Name, p.Arguments))
		case neutral.Reasoning:
			out.Reasoning = neutral.Grow(out.Reasoning, p.Text)
			if p.Signature != nil {
				out.think(thought{Type: signedType, Text: neutral.Quote(neutral.Inside(p.Text)), Signature: p.Signature})
			}
		case neutral.Redacted:
			out.think(thought{Type: encryptedType, Data: p.Data})
		case neutral.Refusal:
			out.Refusal = p.Text
		default:
			said = append(said, p)
		}
	}
	out.Content = raw(nil) // null, not ""
	if len(said) > 0 || out.ToolCalls == nil && out.Refusal == nil {
		out.Content = content(said, m.Role)
	}
	return out
}

// The types of a thought, and whose signatures these are: no other API accepts them.
const (
	signedType    = "reasoning.text"
	encryptedType = "reasoning.encrypted"
	signedFormat  = "anthropic-claude-v1"
)

func (m *message) think(t thought) {
	t.Index, t.Format = len(m.Details), signedFormat
	m.Details = append(m.Details, t)
}

func callOf(id, name, arguments raw) toolCall {
	return toolCall{ID: id, Type: openai.ToolTypeFunction, Function: called{name, arguments}}
}

// content returns one text if all parts are text, because many servers accept only strings.
func content(parts []neutral.Part, role neutral.Role) any {
	if slices.ContainsFunc(parts, func(p neutral.Part) bool { return p.Kind != neutral.Text }) {
		list := make([]part, len(parts))
		for i, p := range parts {
			list[i] = partOf(p)
		}
		return list
	}
	if len(parts) == 1 {
		return parts[0].Text
	}
	text := raw(`"`)
	for i, p := range parts {
		if i > 0 && role != neutral.RoleAssistant { // an assistant's parts are pieces of one answer
			text = append(text, `\n`...)
		}
		text = append(text, neutral.Inside(p.Text)...)
	}
	return append(text, '"')
}

func partOf(p neutral.Part) part {
	switch p.Kind {
	case neutral.Image:
		return part{Type: "image_url", Image: &image{p.URL, p.Detail}}
	case neutral.File:
		return part{Type: "file", File: &file{p.Data, p.Name}}
	case neutral.Audio:
		return part{Type: "input_audio", Audio: p.Data}
	}
	return part{Type: "text", Text: p.Text}
}
