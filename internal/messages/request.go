package messages

import (
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// asked reads a request into its neutral form.
type asked struct {
	neutral.Options
	*neutral.Request
}

// Request reads a Messages request, whose bytes the neutral one aliases. The error is a *wire.Error for the
// caller.
func Request(r *wire.Request, o neutral.Options) (*neutral.Request, error) {
	q := &neutral.Request{
		Model: r.Member("model"), Limit: r.OutputLimit, Stream: r.Member("stream"),
		Temperature: r.Member("temperature"), TopP: r.Member("top_p"), TopK: r.Member("top_k"),
		Stop: r.Member("stop_sequences"),
	}
	d := &asked{Options: o, Request: q}
	for _, read := range []func(*wire.Request) error{
		d.unsupported, d.conversation, d.tools, d.choice, d.thinking, d.output, d.account,
	} {
		if err := read(r); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// unsupported rejects the members that the neutral form has no place for. It accepts edits of the context that only
// remove thinking, which agents always send.
func (d *asked) unsupported(r *wire.Request) error {
	for _, name := range []string{"fallbacks", "inference_geo", "mcp_servers", "container"} {
		if v := r.Member(name); v != nil && string(v) != "[]" {
			return d.Lacks.Refuse(name, name)
		}
	}
	switch {
	case d.TopK != nil && d.Lacks.TopK:
		return d.Lacks.Refuse("top_k", "top_k")
	case r.Speed != "" && r.Speed != "standard":
		return d.Lacks.Refuse("speed", "speed "+neutral.Shorten(r.Member("speed")))
	case r.OutputLimit == 0: // which only fills a cache
		return d.Lacks.Refuse("max_tokens", "max_tokens 0")
	}
	edits := neutral.Member(r.Member("context_management"), "edits")
	return neutral.Each(edits, "context_management.edits", func(param string, edit *typed) error {
		if strings.HasPrefix(wire.Word(edit.Type), "clear_thinking_") {
			return nil
		}
		return d.Lacks.Refuse(param+".type", "An edit of type "+neutral.Shorten(edit.Type))
	})
}

// typed is an object of which only the type matters.
type typed struct {
	Type raw `json:"type"`
}

// conversation reads the messages and the system prompt before them.
func (d *asked) conversation(r *wire.Request) error {
	if system := r.Member("system"); system != nil {
		if err := d.turn("system", neutral.RoleSystem, system); err != nil {
			return err
		}
	}
	return neutral.Each(r.Member("messages"), "messages", func(param string, m *struct {
		Role    raw `json:"role"`
		Content raw `json:"content"`
	},
	) error {
		switch role := neutral.Role(wire.Word(m.Role)); role {
		case neutral.RoleUser, neutral.RoleAssistant, neutral.RoleSystem:
			return d.turn(param+".content", role, m.Content)
		}
		return neutral.Invalid(param+".role", m.Role)
	})
}

// turn adds a message. The results of tools in it are messages of their own.
func (d *asked) turn(param string, role neutral.Role, content raw) error {
	before := len(d.Messages)
	if wire.IsString(content) {
		d.Say(role, neutral.Part{Text: content})
		return nil
	}
	open := false // there is a message to add to
	err := neutral.Each(content, param, func(at string, b *inputBlock) error {
		if wire.Word(b.Type) == "tool_result" {
			open = false
			return d.result(at, b)
		}
		part, err := d.block(at, b)
		if !open {
			d.Say(role)
			open = true
		}
		last := &d.Messages[len(d.Messages)-1]
		last.Parts = append(last.Parts, part)
		return err
	})
	if len(d.Messages) == before {
		d.Say(role)
	}
	return err
}

// inputBlock is a block of content.
type inputBlock struct {
	Type      raw `json:"type"`
	Text      raw `json:"text"`
	Source    raw `json:"source"`
	Title     raw `json:"title"`
	Context   raw `json:"context"`
	Citations raw `json:"citations"`
	Thinking  raw `json:"thinking"`
	Signature raw `json:"signature"`
	Data      raw `json:"data"`
	ID        raw `json:"id"`
	Name      raw `json:"name"`
	Input     raw `json:"input"`
	CallID    raw `json:"tool_use_id"`
	Content   raw `json:"content"`
	Failed    raw `json:"is_error"`
	ToolName  raw `json:"tool_name"` // of a reference to a tool, which is among the request's tools
	Cache     raw `json:"cache_control"`
}

func (d *asked) result(param string, b *inputBlock) error {
	in := asked{d.Options, &neutral.Request{}} // of the result
	if err := in.turn(param+".content", neutral.RoleTool, b.Content); err != nil {
		return err
	}
	m := in.Messages[0]
	m.CallID, m.Failed, m.Cache = b.CallID, string(b.Failed) == "true", b.Cache
	d.Messages = append(d.Messages, m)
	if d.Lacks.ResultMedia && neutral.HasMedia(m.Parts) {
		return d.Lacks.Refuse(param+".content", "The result of a tool that is more than text")
	}
	return neutral.NeedsStrings(param, "tool_use_id", b.CallID)
}

func (d *asked) block(param string, b *inputBlock) (neutral.Part, error) {
	p := neutral.Part{Cache: b.Cache}
	switch kind := wire.Word(b.Type); {
	case kind == textBlock && wire.IsString(b.Text):
		p.Text = b.Text
	case kind == "tool_reference" && wire.IsString(b.ToolName):
		p.Text = b.ToolName
	case kind == "image", kind == "document":
		return d.media(param, &p, b)
	case kind == thinkingBlock && wire.IsString(b.Thinking):
		p.Kind, p.Text, p.Signature = neutral.Reasoning, b.Thinking, b.Signature
	case kind == redactedBlock && wire.IsString(b.Data):
		p.Kind, p.Data = neutral.Redacted, b.Data
	case kind == callBlock:
		p.Kind, p.CallID, p.Name, p.Arguments = neutral.Call, b.ID, b.Name, wire.AppendQuoted(nil, string(b.Input))
		return p, neutral.NeedsStrings(param, "id", b.ID, "name", b.Name)
	default:
		return p, d.Lacks.Refuse(param+".type", "Content of type "+neutral.Shorten(b.Type))
	}
	return p, nil
}

// source is what an image or a document is made of.
type source struct {
	Type      raw `json:"type"`
	MediaType raw `json:"media_type"`
	Data      raw `json:"data"`
	URL       raw `json:"url"`
}

func (s *source) dataURL() raw {
	url := make(raw, 0, len(s.Data)+len(s.MediaType)+16)
	url = append(append(url, `"data:`...), neutral.Inside(s.MediaType)...)
	return append(append(append(url, ";base64,"...), neutral.Inside(s.Data)...), '"')
}

// media reads an image or a document. A document's title is the name of its file.
func (d *asked) media(param string, p *neutral.Part, b *inputBlock) (neutral.Part, error) {
	var s source
	_ = neutral.Read(b.Source, &s) // what is no object has no type
	kind, image := wire.Word(s.Type), string(b.Type) == `"image"`
	switch {
	case string(neutral.Member(b.Citations, "enabled")) == "true":
		return *p, d.Lacks.Refuse(param+".citations", "citations")
	case b.Context != nil:
		return *p, d.Lacks.Refuse(param+".context", "The context of a document")
	case kind == "base64" && image:
		p.Kind, p.URL = neutral.Image, s.dataURL()
	case kind == "base64":
		p.Kind, p.Data, p.Name = neutral.File, s.dataURL(), b.Title
	case kind == "url" && image:
		p.Kind, p.URL = neutral.Image, s.URL
	case kind == "url" && !d.Lacks.FileURL:
		p.Kind, p.URL, p.Name = neutral.File, s.URL, b.Title
	case kind == "text" && wire.IsString(s.Data):
		p.Text = s.Data
	default:
		return *p, d.Lacks.Refuse(param+".source.type", "A source of type "+neutral.Shorten(s.Type))
	}
	return *p, nil
}

// tools reads the functions that the model may call.
func (d *asked) tools(r *wire.Request) error {
	return neutral.Each(r.Member("tools"), "tools", func(param string, t *struct {
		Type        raw `json:"type"`
		Name        raw `json:"name"`
		Description raw `json:"description"`
		Schema      raw `json:"input_schema"`
		Strict      raw `json:"strict"`
		Cache       raw `json:"cache_control"`
	},
	) error {
		switch {
		case t.Type != nil && string(t.Type) != `"custom"`:
			return d.Lacks.Refuse(param+".type", "The tool type "+neutral.Shorten(t.Type))
		case !wire.IsString(t.Name):
			return neutral.Required(param, "name")
		}
		d.Tools = append(d.Tools, neutral.Tool{
			Name: t.Name, Description: t.Description, Parameters: t.Schema, Strict: string(t.Strict) == "true", Cache: t.Cache,
		})
		return nil
	})
}

// choices are the neutral modes of a choice.
var choices = map[string]string{"auto": "auto", "any": "required", "none": "none"}

// choice reads which of the tools to call. It means nothing without any.
func (d *asked) choice(r *wire.Request) error {
	given := r.Member("tool_choice")
	if given == nil || len(d.Tools) == 0 {
		return nil
	}
	var c struct {
		Type   raw `json:"type"`
		Name   raw `json:"name"`
		Single raw `json:"disable_parallel_tool_use"`
	}
	_ = neutral.Read(given, &c) // what is no object has no type
	mode := choices[wire.Word(c.Type)]
	switch {
	case mode != "":
		d.Choice.Mode = neutral.Quote(mode)
	case string(c.Type) == `"tool"` && wire.IsString(c.Name):
		d.Choice.Name = c.Name
	default:
		return d.Lacks.Refuse("tool_choice", "The tool_choice "+neutral.Shorten(given))
	}
	if string(c.Single) == "true" {
		d.Parallel = raw("false")
	}
	return nil
}

// thinking reads how much to think. Thinking that is adaptive without an effort has the default of the API.
func (d *asked) thinking(r *wire.Request) error {
	var t struct {
		Type   raw `json:"type"`
		Budget raw `json:"budget_tokens"`
	}
	_ = neutral.Read(r.Member("thinking"), &t) // it was scanned before
	d.Effort = r.ReasoningEffort
	switch wire.Word(t.Type) {
	case "disabled":
		d.Effort = ""
	case "adaptive":
		if d.Effort == "" {
			d.Effort = "high"
		}
	case "enabled":
		n, err := strconv.ParseInt(string(t.Budget), 10, 32)
		if err != nil || n <= 0 {
			return wire.BadRequest("thinking.budget_tokens", "invalid_type", "Invalid type for 'thinking.budget_tokens'.")
		}
		d.Budget = n
	}
	return nil
}

func (d *asked) output(r *wire.Request) error {
	format := neutral.Member(r.Member("output_config"), "format")
	if format == nil {
		return nil
	}
	var f struct {
		Type   raw `json:"type"`
		Schema raw `json:"schema"`
	}
	_ = neutral.Read(format, &f)
	if string(f.Type) != `"json_schema"` || f.Schema == nil {
		return d.Lacks.Refuse("output_config.format.type", "The format "+neutral.Shorten(f.Type))
	}
	schema := neutral.With(neutral.With(nil, "name", neutral.Quote("output")), "strict", raw("true"))
	d.Format = neutral.Format{Type: "json_schema", Schema: neutral.With(schema, "schema", f.Schema)}
	return nil
}

// tiers are the neutral names of service tiers.
var tiers = map[string]string{"auto": "auto", "standard_only": "default"}

// account reads whose the request is, and in which service tier.
func (d *asked) account(r *wire.Request) error {
	d.User = neutral.Member(r.Member("metadata"), "user_id")
	given := r.Member("service_tier")
	if given == nil {
		return nil
	}
	tier := tiers[wire.Word(given)]
	if tier == "" {
		return d.Lacks.Refuse("service_tier", "The service_tier "+neutral.Shorten(given))
	}
	d.ServiceTier = neutral.Quote(tier)
	return nil
}
