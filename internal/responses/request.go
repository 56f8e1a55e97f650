package responses

import (
	"errors"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// Options hold what a translation needs in addition to the request.
type Options struct {
	// Lacks refuses what the provider's wire cannot express.
	Lacks neutral.Lacks
	// Turns are the conversation so far, oldest first.
	Turns []Turn
	// Items are the items that the request references, by id.
	Items map[string][]byte
}

// Size returns about how many bytes a request needs, earlier turns included.
func (o *Options) Size(r *wire.Request) int {
	size := len(r.Body) + 256
	for _, t := range o.Turns {
		size += len(t.Input) + len(t.Output)
	}
	return size
}

// reader reads a request into its neutral form.
type reader struct {
	Options
	*neutral.Request
	at string // param of all items; "" if each has its own
}

// Request reads a Responses request, whose bytes the neutral one aliases. Everything it references must
// be in o. The error is a *wire.Error for the caller.
func Request(r *wire.Request, o Options) (*neutral.Request, error) {
	q := &neutral.Request{
		Model: r.Member("model"), Effort: r.ReasoningEffort, Limit: r.OutputLimit, Stream: r.Member("stream"),
		Temperature: r.Member("temperature"), TopP: r.Member("top_p"), User: r.Member("user"),
		ServiceTier: r.Member("service_tier"),
	}
	d := &reader{Options: o, Request: q}
	for _, read := range []func(*wire.Request) error{d.conversation, d.tools, d.text, d.unsupported, d.unknown} {
		if err := read(r); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// say adds a message.
func (d *reader) say(role neutral.Role, parts ...neutral.Part) {
	d.Messages = append(d.Messages, neutral.Message{Role: role, Parts: parts})
}

// conversation reads the messages.
func (d *reader) conversation(r *wire.Request) error {
	if instructions := r.Member("instructions"); instructions != nil {
		d.say(neutral.RoleSystem, neutral.Part{Text: instructions})
	}
	for _, t := range d.Turns {
		for _, list := range [][]byte{t.Input, t.Output} {
			d.at = "previous_response_id"
			if err := d.items(list); err != nil {
				return err
			}
		}
	}
	d.at = ""
	switch input := r.Member("input"); {
	case input == nil && len(d.Turns) == 0:
		return required("", "input")
	case input == nil:
	case wire.IsString(input):
		d.say(neutral.RoleUser, neutral.Part{Text: input})
	default:
		return d.items(input)
	}
	return nil
}

// tools reads the functions that the model may call. tool_choice without any is ignored.
func (d *reader) tools(r *wire.Request) error {
	if list := r.Member("tools"); list != nil {
		err := wire.EachItem(list, func(i int, raw []byte) error { return d.tool("tools["+strconv.Itoa(i)+"]", raw) })
		if err != nil {
			return wrongType(err, "tools")
		}
	}
	d.Parallel = r.Member("parallel_tool_calls")
	choice := r.Member("tool_choice")
	if len(d.Tools) == 0 || choice == nil {
		return nil
	}
	if wire.IsString(choice) {
		d.Choice.Mode = choice
		return nil
	}
	var t tool
	if err := neutral.Read(choice, &t); err != nil || string(t.Type) != `"function"` || !wire.IsString(t.Name) {
		return d.Lacks.Refuse("tool_choice", "The tool_choice "+shorten(choice))
	}
	d.Choice.Name = t.Name
	return nil
}

// tool is a tool, and the choice of one.
type tool struct {
	Type        raw `json:"type"`
	Name        raw `json:"name"`
	Description raw `json:"description"`
	Parameters  raw `json:"parameters"`
	Strict      raw `json:"strict"`
}

func (d *reader) tool(param string, raw []byte) error {
	var t tool
	err := neutral.Read(raw, &t)
	switch {
	case err != nil:
		return err
	case string(t.Type) != `"function"`:
		return d.Lacks.Refuse(param+".type", "The tool type "+shorten(t.Type))
	case !wire.IsString(t.Name):
		return required(param, "name")
	}
	d.Tools = append(d.Tools, neutral.Tool{
		Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: string(t.Strict) == "true",
	})
	return nil
}

// text reads the format and the verbosity of the output.
func (d *reader) text(r *wire.Request) error {
	var text struct {
		Format    raw `json:"format"`
		Verbosity raw `json:"verbosity"`
	}
	_ = neutral.Read(r.Member("text"), &text) // it was scanned before
	d.Verbosity = text.Verbosity
	if text.Format == nil {
		return nil
	}
	format := struct {
		Type   raw `json:"type"`
		Schema raw `json:",embed"`
	}{Schema: raw("{}")}
	if err := json.Unmarshal(text.Format, &format, neutral.AsSent); err != nil {
		return wrongType(err, "text.format")
	}
	switch kind := wire.Word(format.Type); kind {
	case "text":
	case "json_object":
		d.Format.Type = kind
	case "json_schema":
		d.Format = neutral.Format{Type: kind, Schema: format.Schema}
	default:
		return d.Lacks.Refuse("text.format.type", "The format "+shorten(format.Type))
	}
	return nil
}

// unsupported rejects the members that the neutral form has no place for. It accepts encrypted reasoning,
// because some SDKs always request it, and summaries of reasoning: what the provider shows is passed on.
func (d *reader) unsupported(r *wire.Request) error {
	for _, name := range []string{"conversation", "prompt", "context_management", "moderation"} {
		if r.Member(name) != nil {
			return d.Lacks.Refuse(name, name)
		}
	}
	if t := r.Member("truncation"); t != nil && string(t) != `"disabled"` {
		return d.Lacks.Refuse("truncation", "truncation "+shorten(t))
	}
	if n := r.Member("top_logprobs"); n != nil && string(n) != "0" {
		return d.Lacks.Refuse("top_logprobs", "top_logprobs")
	}
	list := r.Member("include")
	if list == nil {
		return nil
	}
	err := wire.EachItem(list, func(i int, value []byte) error {
		if string(value) == `"message.output_text.logprobs"` { // it would be waited for in vain
			return d.Lacks.Refuse("include["+strconv.Itoa(i)+"]", shorten(value))
		}
		return nil
	})
	return wrongType(err, "include")
}

// unknown passes on members that OpenAI does not define, as for every provider. Members that only chat
// defines are rejected, because the provider would interpret them.
func (d *reader) unknown(r *wire.Request) error {
	for _, name := range r.Unknown {
		if wire.OfChat(name) {
			return wire.BadRequest(name, "unknown_parameter", "Unknown parameter: '%s'. It is a parameter of chat "+
				"completions.", name)
		}
		if v := r.Member(name); v != nil {
			d.More = neutral.With(d.More, name, v)
		}
	}
	return nil
}

// required returns the error for a required member of the object at param.
func required(param, name string) error {
	if param != "" {
		name = param + "." + name
	}
	return wire.BadRequest(name, "missing_required_parameter", "Missing required parameter: '%s'.", name)
}

// shorten shortens a raw value for an error message.
func shorten(raw []byte) string {
	const most = 60
	if len(raw) == 0 {
		return "without a type"
	}
	if len(raw) > most {
		return string(raw[:most]) + "..."
	}
	return string(raw)
}

// wrongType converts the error for a value of the wrong type.
func wrongType(err error, param string) error {
	var public *wire.Error
	if err == nil || errors.As(err, &public) {
		return err
	}
	return wire.BadRequest(param, "invalid_type", "Invalid type for '%s'.", param)
}
