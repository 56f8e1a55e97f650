package chat

import (
	"strconv"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// asked reads a request into its neutral form.
type asked struct {
	neutral.Options
	*neutral.Request
}

// Request reads a chat completion request, whose bytes the neutral one aliases. It drops hints for caches,
// predicted outputs and metadata, which change no answer, and names of authors. The error is a *wire.Error for
// the caller.
func Request(r *wire.Request, o neutral.Options) (*neutral.Request, error) {
	q := &neutral.Request{
		Model: r.Member("model"), Effort: r.ReasoningEffort, Limit: r.OutputLimit, Stream: r.Member("stream"),
		Temperature: r.Member("temperature"), TopP: r.Member("top_p"), User: r.Member("user"),
		ServiceTier: r.Member("service_tier"), Verbosity: r.Member("verbosity"), Stop: r.Member("stop"),
		Parallel: r.Member("parallel_tool_calls"),
	}
	if id := r.Member("safety_identifier"); id != nil {
		q.User = id
	}
	if wire.IsString(q.Stop) {
		q.Stop = append(append(raw("["), q.Stop...), ']')
	}
	d := &asked{Options: o, Request: q}
	if err := neutral.Each(r.Member("messages"), "messages", d.turn); err != nil {
		return nil, err
	}
	for _, read := range []func(*wire.Request) error{d.unsupported, d.tools, d.format, q.Pass} {
		if err := read(r); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// harmless are the values of members without an equivalent that ask for nothing.
var harmless = map[string]string{
	"logprobs": "false", "top_logprobs": "0", "store": "false", "frequency_penalty": "0", "presence_penalty": "0",
	"logit_bias": "{}", "modalities": `["text"]`, "n": "1", "best_of": "1", "functions": "[]",
}

// unsupported rejects the members that the neutral form has no place for.
func (d *asked) unsupported(r *wire.Request) error {
	for _, name := range []string{
		"n", "best_of", "logprobs", "top_logprobs", "store", "frequency_penalty", "presence_penalty", "logit_bias", "seed",
		"modalities", "audio", "web_search_options", "functions", "function_call", "moderation",
	} {
		v, nothing := r.Member(name), harmless[name]
		zero := nothing == "0" && isZero(v)
		if v != nil && string(v) != nothing && !zero {
			return d.Lacks.Refuse(name, name)
		}
	}
	if d.Verbosity != nil && d.Lacks.Verbosity {
		return d.Lacks.Refuse("verbosity", "verbosity")
	}
	for _, name := range []string{"inference_geo", "cache_control"} { // OpenAI does not define them
		if v := r.Member(name); v != nil {
			d.More = neutral.With(d.More, name, v)
		}
	}
	return d.Lacks.Tier(r.ServiceTier)
}

// isZero reports whether a value is the number 0, however it is written.
func isZero(value raw) bool {
	n, err := strconv.ParseFloat(string(value), 64)
	return err == nil && n == 0
}

// turn is a message of a conversation.
type turn struct {
	Role      raw `json:"role"`
	Content   raw `json:"content"`
	Refusal   raw `json:"refusal"`
	ToolCalls raw `json:"tool_calls"`
	CallID    raw `json:"tool_call_id"`
	Details   raw `json:"reasoning_details"`
	Audio     raw `json:"audio"`
	Called    raw `json:"function_call"`
	Cache     raw `json:"cache_control"`
}

// roles are the neutral roles.
var roles = map[string]neutral.Role{
	"user": neutral.RoleUser, "assistant": neutral.RoleAssistant, "tool": neutral.RoleTool,
	"system": neutral.RoleSystem, "developer": neutral.RoleSystem,
}

func (d *asked) turn(param string, t *turn) error {
	role, ok := roles[wire.Word(t.Role)]
	switch {
	case !ok:
		return neutral.Invalid(param+".role", t.Role)
	case t.Audio != nil:
		return d.Lacks.Refuse(param+".audio", "Audio of an earlier answer")
	case t.Called != nil:
		return d.Lacks.Refuse(param+".function_call", "function_call")
	case role == neutral.RoleTool && !wire.IsString(t.CallID):
		return neutral.Required(param, "tool_call_id")
	}
	m := neutral.Message{Role: role, Cache: t.Cache}
	if role == neutral.RoleTool {
		m.CallID = t.CallID
	}
	if role == neutral.RoleAssistant {
		err := neutral.Each(t.Details, param+".reasoning_details", func(_ string, t *detail) error {
			m.Parts = append(m.Parts, t.parts()...)
			return nil
		})
		if err != nil {
			return err
		}
	}
	if err := d.parts(param+".content", t.Content, &m); err != nil {
		return err
	}
	if wire.IsString(t.Refusal) { // counts as text when a conversation continues
		m.Parts = append(m.Parts, neutral.Part{Text: t.Refusal})
	}
	err := neutral.Each(t.ToolCalls, param+".tool_calls", func(param string, c *inputCall) error {
		return d.call(param, c, &m)
	})
	d.Messages = append(d.Messages, m)
	return err
}

// detail is a piece of reasoning in the form of OpenRouter, which clients send back.
type detail struct {
	Type      raw `json:"type"`
	Text      raw `json:"text"`
	Signature raw `json:"signature"`
	Data      raw `json:"data"`
	Format    raw `json:"format"`
}

// parts returns a reasoning that a provider signed. What has no signature, or one of another API, is dropped.
func (t *detail) parts() []neutral.Part {
	switch {
	case wire.Word(t.Format) != signedFormat:
	case wire.Word(t.Type) == encryptedType && wire.IsString(t.Data):
		return []neutral.Part{{Kind: neutral.Redacted, Data: t.Data}}
	case nonEmpty(t.Signature) != nil:
		return []neutral.Part{{Kind: neutral.Reasoning, Text: t.Text, Signature: t.Signature}}
	}
	return nil
}

// inputCall is a tool call.
type inputCall struct {
	ID       raw `json:"id"`
	Type     raw `json:"type"`
	Function raw `json:"function"`
}

func (d *asked) call(param string, c *inputCall, m *neutral.Message) error {
	if c.Type != nil && string(c.Type) != `"function"` {
		return d.Lacks.Refuse(param+".type", "A call of type "+neutral.Shorten(c.Type))
	}
	var f called
	_ = neutral.Read(c.Function, &f) // what is no object has no members
	m.Parts = append(m.Parts, neutral.Part{Kind: neutral.Call, CallID: c.ID, Name: f.Name, Arguments: f.Arguments})
	return neutral.NeedsStrings(param, "id", c.ID, "function.name", f.Name, "function.arguments", f.Arguments)
}

// inputPart is a part of the content of a message.
type inputPart struct {
	Type     raw `json:"type"`
	Text     raw `json:"text"`
	Refusal  raw `json:"refusal"`
	ImageURL raw `json:"image_url"`
	File     raw `json:"file"`
	Audio    raw `json:"input_audio"`
	Cache    raw `json:"cache_control"`
}

// parts reads content: a string, or parts. A refusal counts as text.
func (d *asked) parts(param string, content raw, m *neutral.Message) error {
	if wire.IsString(content) {
		if len(content) > len(`""`) || m.Role != neutral.RoleAssistant {
			m.Parts = append(m.Parts, neutral.Part{Text: content})
		}
		return nil
	}
	err := neutral.Each(content, param, func(param string, p *inputPart) error {
		part, err := d.part(param, p)
		part.Cache = p.Cache
		m.Parts = append(m.Parts, part)
		return err
	})
	if err == nil && m.Role == neutral.RoleTool && d.Lacks.ResultMedia && neutral.HasMedia(m.Parts) {
		return d.Lacks.Refuse(param, "The result of a tool that is more than text")
	}
	return err
}

func (d *asked) part(param string, p *inputPart) (neutral.Part, error) {
	switch kind := wire.Word(p.Type); {
	case kind == "text" && wire.IsString(p.Text):
		return neutral.Part{Text: p.Text}, nil
	case kind == "refusal" && wire.IsString(p.Refusal):
		return neutral.Part{Text: p.Refusal}, nil
	case kind == "image_url" && wire.IsString(p.ImageURL):
		return neutral.Part{Kind: neutral.Image, URL: p.ImageURL}, nil
	case kind == "image_url":
		var i image
		if err := neutral.Read(p.ImageURL, &i); err != nil || !wire.IsString(i.URL) {
			return neutral.Part{}, neutral.Required(param, "image_url.url")
		}
		return neutral.Part{Kind: neutral.Image, URL: i.URL, Detail: i.Detail}, nil
	case kind == "file":
		var f file
		if err := neutral.Read(p.File, &f); err != nil || !wire.IsString(f.Data) {
			return neutral.Part{}, d.Lacks.Refuse(param+".file", "A file without file_data")
		}
		return neutral.Part{Kind: neutral.File, Data: f.Data, Name: f.Name}, nil
	case kind == "input_audio" && p.Audio != nil && !d.Lacks.Audio:
		return neutral.Part{Kind: neutral.Audio, Data: p.Audio}, nil
	}
	return neutral.Part{}, d.Lacks.Refuse(param+".type", "Content of type "+neutral.Shorten(p.Type))
}

// inputTool is a tool, and the choice of one.
type inputTool struct {
	Type     raw `json:"type"`
	Function raw `json:"function"`
	Cache    raw `json:"cache_control"`
}

func (d *asked) function(param string, t *inputTool) (neutral.Tool, error) {
	if string(t.Type) != `"function"` {
		return neutral.Tool{}, d.Lacks.Refuse(param+".type", "The tool type "+neutral.Shorten(t.Type))
	}
	var f struct {
		Name        raw `json:"name"`
		Description raw `json:"description"`
		Parameters  raw `json:"parameters"`
		Strict      raw `json:"strict"`
	}
	_ = neutral.Read(t.Function, &f) // what is no object has no name
	tool := neutral.Tool{
		Name: f.Name, Description: f.Description, Parameters: f.Parameters, Strict: string(f.Strict) == "true",
		Cache: t.Cache,
	}
	return tool, neutral.NeedsStrings(param, "function.name", f.Name)
}

// tools reads the functions that the model may call, and which of them. tool_choice without any is ignored.
func (d *asked) tools(r *wire.Request) error {
	err := neutral.Each(r.Member("tools"), "tools", func(param string, t *inputTool) error {
		tool, err := d.function(param, t)
		d.Tools = append(d.Tools, tool)
		return err
	})
	if err != nil {
		return err
	}
	choice := r.Member("tool_choice")
	switch {
	case len(d.Tools) == 0 || choice == nil:
		return nil
	case wire.IsString(choice):
		d.Choice.Mode = choice
		return nil
	}
	var t inputTool
	_ = neutral.Read(choice, &t) // what is no object has no type
	tool, err := d.function("tool_choice", &t)
	d.Choice.Name = tool.Name
	return err
}

func (d *asked) format(r *wire.Request) error {
	given := r.Member("response_format")
	if given == nil {
		return nil
	}
	var f struct {
		Type   raw `json:"type"`
		Schema raw `json:"json_schema"`
	}
	_ = neutral.Read(given, &f) // it was scanned before
	switch kind := wire.Word(f.Type); {
	case kind == "text":
	case kind == "json_schema" && f.Schema != nil:
		d.Format = neutral.Format{Type: kind, Schema: f.Schema}
	case kind == "json_object" && !d.Lacks.AnyJSON:
		d.Format.Type = kind
	default:
		return d.Lacks.Refuse("response_format.type", "The format "+neutral.Shorten(f.Type))
	}
	return nil
}
