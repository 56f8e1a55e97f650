package responses

import (
	"strconv"

	"github.com/llmguard/llmguard/internal/wire"
)

// Options hold what a translation needs in addition to the request.
type Options struct {
	// LimitField is the provider's name for the output limit: "max_tokens" or
	// "max_completion_tokens".
	LimitField string
	// Turns are the conversation so far, oldest first.
	Turns []Turn
	// Items are the items that the request references, by id.
	Items map[string][]byte
}

// Request translates a Responses request to a chat request. Everything it references must be in
// o. The error is a *wire.Error for the caller.
func Request(r *wire.Request, o Options) ([]byte, error) {
	size := len(r.Body) + 256
	for _, t := range o.Turns {
		size += len(t.Input) + len(t.Output)
	}
	w := &writer{buf: make([]byte, 0, size+size/8), items: o.Items}
	w.text(`{"model":`)
	w.raw(r.Member("model"))
	if err := w.conversation(r, o.Turns); err != nil {
		return nil, err
	}
	for _, add := range []func(*wire.Request) error{w.tools, w.format, w.reasoning, w.rest} {
		if err := add(r); err != nil {
			return nil, err
		}
	}
	if r.OutputLimit >= 0 {
		w.member(o.LimitField, strconv.AppendInt(nil, r.OutputLimit, 10))
	}
	w.text("}")
	return w.buf, nil
}

// conversation writes the messages.
func (w *writer) conversation(r *wire.Request, turns []Turn) error {
	w.text(`,"messages":[`)
	if instructions := r.Member("instructions"); instructions != nil {
		w.message("system")
		w.text(`,"content":`)
		w.raw(instructions)
		w.text("}")
	}
	for _, t := range turns {
		for _, list := range [][]byte{t.Input, t.Output} {
			w.at = "previous_response_id"
			if err := w.list(list); err != nil {
				return err
			}
		}
	}
	w.at = ""
	switch input := r.Member("input"); {
	case input == nil && len(turns) == 0:
		return wire.BadRequest("input", "missing_required_parameter", "Missing required parameter: 'input'.")
	case input == nil:
	case wire.IsString(input):
		w.flush()
		w.message("user")
		w.text(`,"content":`)
		w.raw(input)
		w.text("}")
	default:
		if err := w.list(input); err != nil {
			return err
		}
	}
	w.flush()
	w.text("]")
	return nil
}

// tools writes the functions that the model may call.
func (w *writer) tools(r *wire.Request) error {
	list, n := r.Member("tools"), 0
	if list != nil {
		err := wire.EachItem(list, func(i int, tool []byte) error {
			n++
			if n == 1 {
				w.text(`,"tools":[`)
			} else {
				w.text(",")
			}
			return w.tool("tools["+strconv.Itoa(i)+"]", tool)
		})
		if err != nil {
			return asRefusal(err, "tools")
		}
	}
	if n == 0 {
		return nil // chat rejects the other tool settings without tools
	}
	w.text("]")
	if parallel := r.Member("parallel_tool_calls"); parallel != nil {
		w.member("parallel_tool_calls", parallel)
	}
	return w.choice(r.Member("tool_choice"))
}

func (w *writer) tool(param string, tool []byte) error {
	var kind, name, description, parameters, strict []byte
	err := wire.EachMember(tool, func(key, value []byte) error {
		switch string(key) {
		case "type":
			kind = value
		case "name":
			name = value
		case "description":
			description = value
		case "parameters":
			parameters = value
		case "strict":
			strict = value
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case string(kind) != `"function"`:
		return refuse(param+".type", "The tool type "+shorten(kind))
	case !wire.IsString(name):
		return wire.BadRequest(param+".name", "missing_required_parameter", "Missing required parameter: '%s.name'.", param)
	}
	w.text(`{"type":"function","function":{"name":`)
	w.raw(name)
	for _, m := range []struct {
		name  string
		value []byte
	}{{"description", description}, {"parameters", parameters}} {
		if given(m.value) {
			w.member(m.name, m.value)
		}
	}
	if string(strict) == "true" { // false is chat's default, and some servers do not know the member
		w.member("strict", strict)
	}
	w.text("}}")
	return nil
}

// choice writes which tools to call.
func (w *writer) choice(choice []byte) error {
	switch {
	case choice == nil:
		return nil
	case wire.IsString(choice):
		w.member("tool_choice", choice)
		return nil
	}
	var kind, name []byte
	err := wire.EachMember(choice, func(key, value []byte) error {
		switch string(key) {
		case "type":
			kind = value
		case "name":
			name = value
		}
		return nil
	})
	if err != nil || string(kind) != `"function"` || !wire.IsString(name) {
		return refuse("tool_choice", "The tool_choice "+shorten(choice))
	}
	w.text(`,"tool_choice":{"type":"function","function":{"name":`)
	w.raw(name)
	w.text("}}")
	return nil
}

// format writes the format of the output.
func (w *writer) format(r *wire.Request) error {
	text := r.Member("text")
	if text == nil {
		return nil
	}
	return wire.EachMember(text, func(key, value []byte) error {
		switch {
		case string(key) == "format" && given(value):
			return w.textFormat(value)
		case string(key) == "verbosity" && given(value):
			w.member("verbosity", value)
		}
		return nil
	})
}

func (w *writer) textFormat(format []byte) error {
	var kind []byte
	members := make([]byte, 0, len(format))
	err := wire.EachMember(format, func(key, value []byte) error {
		if string(key) == "type" {
			kind = value
			return nil
		}
		if len(members) > 0 {
			members = append(members, ',')
		}
		members = append(append(wire.AppendQuoted(members, string(key)), ':'), value...)
		return nil
	})
	switch {
	case err != nil:
		return asRefusal(err, "text.format")
	case string(kind) == `"text"`:
	case string(kind) == `"json_object"`:
		w.text(`,"response_format":{"type":"json_object"}`)
	case string(kind) == `"json_schema"`:
		w.text(`,"response_format":{"type":"json_schema","json_schema":{`)
		w.raw(members)
		w.text("}}")
	default:
		return refuse("text.format.type", "The format "+shorten(kind))
	}
	return nil
}

// reasoning writes the reasoning effort. Chat has no summaries; reasoning that the provider
// shows is passed on.
func (w *writer) reasoning(r *wire.Request) error {
	if r.ReasoningEffort != "" {
		w.member("reasoning_effort", wire.AppendQuoted(nil, r.ReasoningEffort))
	}
	return nil
}

// same are the members with the same name in chat.
var same = []string{"stream", "temperature", "top_p", "user", "service_tier"}

// missing are the members that chat has no equivalent for.
var missing = []string{"conversation", "prompt", "context_management", "moderation"}

// rest writes members that are the same, and rejects those without an equivalent. Members that
// OpenAI does not define are passed on unchanged, as for every provider. Members that only chat
// defines are rejected, because the provider would interpret them.
func (w *writer) rest(r *wire.Request) error {
	for _, name := range missing {
		if r.Member(name) != nil {
			return refuse(name, name)
		}
	}
	if t := r.Member("truncation"); t != nil && string(t) != `"disabled"` {
		return refuse("truncation", "truncation "+shorten(t))
	}
	if n := r.Member("top_logprobs"); n != nil && string(n) != "0" {
		return refuse("top_logprobs", "top_logprobs")
	}
	if err := w.include(r.Member("include")); err != nil {
		return err
	}
	for _, name := range same {
		if v := r.Member(name); v != nil {
			w.member(name, v)
		}
	}
	for _, name := range r.Unknown {
		if wire.OfChat(name) {
			return wire.BadRequest(name, "unknown_parameter", "Unknown parameter: '%s'. It is a parameter of chat "+
				"completions.", name)
		}
		if v := r.Member(name); v != nil {
			w.member(name, v)
		}
	}
	return nil
}

// include rejects what a caller would wait for in vain. It accepts encrypted reasoning, because
// some SDKs always request it.
func (w *writer) include(list []byte) error {
	if list == nil {
		return nil
	}
	err := wire.EachItem(list, func(i int, value []byte) error {
		if string(value) == `"message.output_text.logprobs"` {
			return refuse("include["+strconv.Itoa(i)+"]", shorten(value))
		}
		return nil
	})
	return asRefusal(err, "include")
}
