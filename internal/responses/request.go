package responses

import (
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// reader reads a request into its neutral form.
type reader struct {
	neutral.Options
	*neutral.Request
	at string // param of all items; "" if each has its own
}

// Request reads a Responses request, whose bytes the neutral one aliases. Everything it references must
// be in o. The error is a *wire.Error for the caller.
func Request(r *wire.Request, o neutral.Options) (*neutral.Request, error) {
	q := &neutral.Request{
		Model: r.Member("model"), Effort: r.ReasoningEffort, Limit: r.OutputLimit, Stream: r.Member("stream"),
		Temperature: r.Member("temperature"), TopP: r.Member("top_p"), User: r.Member("user"),
		ServiceTier: r.Member("service_tier"),
	}
	d := &reader{Options: o, Request: q}
	for _, read := range []func(*wire.Request) error{d.conversation, d.tools, d.text, d.unsupported, q.Pass} {
		if err := read(r); err != nil {
			return nil, err
		}
	}
	return q, nil
}

func (d *reader) conversation(r *wire.Request) error {
	if instructions := r.Member("instructions"); instructions != nil {
		d.Say(neutral.RoleSystem, neutral.Part{Text: instructions})
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
		return neutral.Required("", "input")
	case input == nil:
	case wire.IsString(input):
		d.Say(neutral.RoleUser, neutral.Part{Text: input})
	default:
		return d.items(input)
	}
	return nil
}

// tools reads the functions that the model may call. tool_choice without any is ignored.
func (d *reader) tools(r *wire.Request) error {
	if err := neutral.Each(r.Member("tools"), "tools", d.tool); err != nil {
		return err
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
		return d.Lacks.Refuse("tool_choice", "The tool_choice "+neutral.Shorten(choice))
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
	Tools       raw `json:"tools"` // of a namespace
}

func (d *reader) tool(param string, t *tool) error {
	if string(t.Type) == `"namespace"` {
		space := t.Name
		return neutral.Each(t.Tools, param+".tools", func(param string, t *tool) error {
			t.Name = joined(space, t.Name)
			return d.tool(param, t)
		})
	}
	if string(t.Type) != `"function"` {
		return d.Lacks.Refuse(param+".type", "The tool type "+neutral.Shorten(t.Type))
	}
	d.Tools = append(d.Tools, neutral.Tool{
		Name: t.Name, Description: t.Description, Parameters: t.Parameters, Strict: string(t.Strict) == "true",
	})
	return neutral.NeedsStrings(param, "name", t.Name)
}

func (d *reader) text(r *wire.Request) error {
	var text struct {
		Format    raw `json:"format"`
		Verbosity raw `json:"verbosity"`
	}
	_ = neutral.Read(r.Member("text"), &text) // it was scanned before
	d.Verbosity = text.Verbosity
	if d.Verbosity != nil && d.Lacks.Verbosity {
		return d.Lacks.Refuse("text.verbosity", "verbosity")
	}
	if text.Format == nil {
		return nil
	}
	format := struct {
		Type   raw `json:"type"`
		Schema raw `json:",embed"`
	}{Schema: raw("{}")}
	if err := json.Unmarshal(text.Format, &format, neutral.AsSent); err != nil {
		return neutral.WrongType(err, "text.format")
	}
	switch kind := wire.Word(format.Type); kind {
	case "text":
	case "json_object":
		d.Format.Type = kind
		if d.Lacks.AnyJSON {
			return d.Lacks.Refuse("text.format.type", "The format "+neutral.Shorten(format.Type))
		}
	case "json_schema":
		d.Format = neutral.Format{Type: kind, Schema: format.Schema}
	default:
		return d.Lacks.Refuse("text.format.type", "The format "+neutral.Shorten(format.Type))
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
		return d.Lacks.Refuse("truncation", "truncation "+neutral.Shorten(t))
	}
	if err := d.Lacks.Tier(r.ServiceTier); err != nil {
		return err
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
			return d.Lacks.Refuse("include["+strconv.Itoa(i)+"]", neutral.Shorten(value))
		}
		return nil
	})
	return neutral.WrongType(err, "include")
}
