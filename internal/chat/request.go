// Package chat is the wire of chat completions, for providers that have no other: it writes requests
// from the neutral form and reads answers to it. The other two directions, for callers of chat
// completions whose provider has another wire, would be here too.
package chat

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/sashabaranov/go-openai"

	"github.com/llmguard/llmguard/internal/neutral"
)

// Lacks refuses what chat completions cannot express.
const Lacks neutral.Lacks = "supports only chat completions, which have no equivalent"

// The types below are go-openai's where those lose nothing: it has no files, sound or unknown members,
// omits empty strings, and reads numbers as float32 and texts twice.
type (
	raw = neutral.Raw

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
		User           raw       `json:"user,omitzero"`
		ServiceTier    raw       `json:"service_tier,omitzero"`
		MaxTokens      int64     `json:"max_tokens,omitzero"`
		MaxCompletion  int64     `json:"max_completion_tokens,omitzero"`
		More           raw       `json:",embed"`
	}
	message struct {
		Role      neutral.Role `json:"role"`
		CallID    raw          `json:"tool_call_id,omitzero"`
		Content   any          `json:"content"` // raw, or []part
		ToolCalls []toolCall   `json:"tool_calls,omitzero"`
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
		ID       raw             `json:"id"`
		Type     openai.ToolType `json:"type"`
		Function called          `json:"function"`
	}
	called struct {
		Name      raw `json:"name"`
		Arguments raw `json:"arguments"`
	}
	tool struct {
		Type     openai.ToolType `json:"type"`
		Function function        `json:"function"`
	}
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

// Body returns the body of a chat completion. limitField is the provider's name for the output limit,
// "max_tokens" or "max_completion_tokens", and size about how many bytes the body will have.
func Body(r *neutral.Request, limitField string, size int) ([]byte, error) {
	q := request{
		Model: r.Model, Verbosity: r.Verbosity, Effort: r.Effort, Stream: r.Stream, Temperature: r.Temperature,
		TopP: r.TopP, User: r.User, ServiceTier: r.ServiceTier, More: r.More,
	}
	for _, m := range r.Messages {
		q.Messages = append(q.Messages, messageOf(m))
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
	switch limit := max(r.Limit, 0); limitField {
	case "max_tokens":
		q.MaxTokens = limit
	default:
		q.MaxCompletion = limit
	}
	body := bytes.NewBuffer(make([]byte, 0, size+size/3)) // a buffer with less room left would grow
	err := json.MarshalWrite(body, &q, neutral.AsSent)
	return body.Bytes(), err
}

func tools(list []neutral.Tool) []tool {
	out := make([]tool, len(list))
	for i, t := range list {
		out[i] = tool{openai.ToolTypeFunction, function(t)}
	}
	return out
}

func messageOf(m neutral.Message) message {
	out := message{Role: m.Role, CallID: m.CallID}
	said := m.Parts
	if i := slices.IndexFunc(m.Parts, func(p neutral.Part) bool { return p.Kind == neutral.Call }); i >= 0 {
		said = m.Parts[:i]
		for _, p := range m.Parts[i:] {
			out.ToolCalls = append(out.ToolCalls, toolCall{p.CallID, openai.ToolTypeFunction, called{p.Name, p.Arguments}})
		}
		if len(said) == 0 { // null, not ""
			out.Content = raw(nil)
			return out
		}
	}
	out.Content = content(said, m.Role)
	return out
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

// Param returns the member of the neutral request that a provider's error is about, given chat's: "Messages" or
// the like, or what is given if it is the same in every wire. Indexes of messages differ between
// wires, so they are dropped.
func Param(param string) string {
	name, _, _ := strings.Cut(strings.ReplaceAll(param, "[", "."), ".")
	return cmp.Or(fields[name], param)
}

var fields = map[string]string{
	"messages": neutral.ParamMessages, "max_tokens": neutral.ParamLimit, "max_completion_tokens": neutral.ParamLimit,
	"response_format": neutral.ParamFormat, "reasoning_effort": neutral.ParamEffort,
}
