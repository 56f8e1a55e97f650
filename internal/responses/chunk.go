package responses

import (
	"bytes"
	"net/http"
	"strconv"

	"github.com/llmguard/llmguard/internal/wire"
)

// reader parses chunks of a chat stream, and complete answers, which have the same members. Its
// member readers are created once, because a stream has thousands of chunks.
type reader struct {
	c *composer

	top, choice, delta, call, function, part func(key, value []byte) error

	choices, failure, usage               []byte
	message, finish                       []byte
	content, refusal, thought, list       []byte
	callID, callIndex, callName, callArgs []byte
	kind, text, thinking                  []byte
}

func (r *reader) init(c *composer) {
	r.c = c
	r.top = r.onTop
	r.choice = r.onChoice
	r.delta = r.onDelta
	r.call = r.onCall
	r.function = r.onFunction
	r.part = r.onPart
}

func (r *reader) onTop(key, value []byte) error {
	if !given(value) {
		return nil
	}
	switch string(key) {
	case "choices":
		r.choices = value
	case "error":
		r.failure = value
	case "usage":
		r.usage = value
	case "model":
		if r.c.model == nil && wire.IsString(value) {
			r.c.model = bytes.Clone(value)
		}
	case "service_tier":
		if wire.IsString(value) {
			r.c.tier = append(r.c.tier[:0], value...)
		}
	case "created":
		if n, err := strconv.ParseInt(string(value), 10, 42); err == nil && n > 0 && !r.c.begun {
			r.c.made = n
		}
	}
	return nil
}

func (r *reader) onChoice(key, value []byte) error {
	if !given(value) {
		return nil
	}
	switch string(key) {
	case "delta", "message":
		r.message = value
	case "finish_reason":
		r.finish = value
	case "usage":
		if r.usage == nil {
			r.usage = value
		}
	}
	return nil
}

func (r *reader) onDelta(key, value []byte) error {
	if !given(value) {
		return nil
	}
	switch string(key) {
	case "content":
		r.content = value
	case "refusal":
		r.refusal = value
	case "reasoning_content", "reasoning": // some servers send the same text under both names
		if wire.IsString(value) {
			r.thought = value
		}
	case "tool_calls":
		r.list = value
	}
	return nil
}

func (r *reader) onCall(key, value []byte) error {
	if !given(value) {
		return nil
	}
	switch string(key) {
	case "index":
		r.callIndex = value
	case "id":
		if len(value) > 2 && wire.IsString(value) {
			r.callID = value
		}
	case "function":
		if value[0] == '{' {
			return wire.EachMember(value, r.function)
		}
	}
	return nil
}

func (r *reader) onFunction(key, value []byte) error {
	switch {
	case string(key) == "name" && len(value) > 2 && wire.IsString(value):
		r.callName = value
	case string(key) == "arguments" && given(value):
		r.callArgs = value
	}
	return nil
}

func (r *reader) onPart(key, value []byte) error {
	switch string(key) {
	case "type":
		r.kind = value
	case "text":
		r.text = value
	case "thinking":
		r.thinking = value
	}
	return nil
}

// read parses one chunk, or one complete answer.
func (r *reader) read(data []byte) error {
	r.choices = nil
	r.failure = nil
	r.usage = nil
	document := wire.EventJSON(data)
	if err := wire.EachMember(document, r.top); err != nil {
		return err
	}
	c := r.c
	if r.usage != nil {
		c.usage = append(c.usage[:0], r.usage...)
	}
	empty := r.choices == nil && r.usage == nil
	if empty || r.failure != nil {
		if chunk, _ := wire.ScanChunk(document, nil); chunk.Error {
			c.fail(failure(data))
			return nil
		}
	}
	if empty {
		return nil
	}
	c.begin()
	if r.choices == nil || r.choices[0] != '[' {
		return nil
	}
	return wire.EachItem(r.choices, func(i int, value []byte) error {
		if i > 0 { // only one was requested
			return nil
		}
		r.message, r.finish = nil, nil
		if err := wire.EachMember(value, r.choice); err != nil {
			return err
		}
		return r.said()
	})
}

// said processes the content of the choice.
func (r *reader) said() error {
	c := r.c
	r.content = nil
	r.refusal = nil
	r.thought = nil
	r.list = nil
	if r.message != nil && r.message[0] == '{' {
		if err := wire.EachMember(r.message, r.delta); err != nil {
			return err
		}
	}
	c.say("reasoning", "reasoning_text", inside(r.thought))
	if err := r.contents(); err != nil {
		return err
	}
	c.say("message", "refusal", inside(r.refusal))
	if r.list != nil && r.list[0] == '[' {
		if err := wire.EachItem(r.list, r.oneCall); err != nil {
			return err
		}
	}
	if r.finish != nil {
		c.finish = wire.Word(r.finish)
	}
	return nil
}

// contents processes a string, or Mistral's parts of reasoning and text.
func (r *reader) contents() error {
	switch {
	case wire.IsString(r.content):
		r.c.say("message", "output_text", inside(r.content))
	case r.content != nil && r.content[0] == '[':
		return wire.EachItem(r.content, func(_ int, value []byte) error {
			r.kind = nil
			r.text = nil
			r.thinking = nil
			if err := wire.EachMember(value, r.part); err != nil {
				return err
			}
			if r.thinking != nil && r.thinking[0] == '[' {
				return wire.EachItem(r.thinking, func(_ int, thought []byte) error {
					r.text = nil
					err := wire.EachMember(thought, r.part)
					r.c.say("reasoning", "reasoning_text", inside(r.text))
					return err
				})
			}
			r.c.say("reasoning", "reasoning_text", inside(r.thinking))
			r.c.say("message", "output_text", inside(r.text))
			return nil
		})
	}
	return nil
}

// oneCall processes a piece of a function call.
func (r *reader) oneCall(_ int, value []byte) error {
	r.callID = nil
	r.callIndex = nil
	r.callName = nil
	r.callArgs = nil
	if err := wire.EachMember(value, r.call); err != nil {
		return err
	}
	c, at := r.c, r.known()
	if at < 0 {
		at = c.newCall(r.callID, r.callName, r.callIndex)
	}
	if c.calls[at].done {
		c.fail(wire.BadGateway("The provider continued a function call that it had already finished", nil))
		return nil
	}
	c.argue(r.callArgs)
	return nil
}

// known returns the call that the current piece continues, or -1. A piece starts a new call if
// its index is new, or if it has a name and either another id or the previous call already has
// arguments. Some servers number all calls 0; others give every piece its own id, or none.
func (r *reader) known() int {
	c := r.c
	for i := len(c.calls) - 1; i >= 0; i-- {
		f := &c.calls[i]
		last := i == len(c.calls)-1
		here := sameRaw(f.index, r.callIndex) || r.callIndex == nil && last && r.callName == nil
		named := r.callName != nil && (r.callID != nil || f.argued)
		if sameRaw(f.id, r.callID) || here && !named {
			return i
		}
	}
	return -1
}

// newCall adds a function call.
func (c *composer) newCall(id, name, index []byte) int {
	f := call{id: bytes.Clone(id), name: bytes.Clone(name), index: bytes.Clone(index)}
	if f.id == nil {
		f.id = wire.AppendQuoted(nil, NewID("call_"))
	}
	if f.name == nil {
		f.name = []byte(`""`)
	}
	c.close("completed")
	c.calls = append(c.calls, f)
	at := len(c.calls) - 1
	c.open = opened{kind: "function_call", id: NewID("fc_"), call: at, text: c.open.text[:0], parts: c.open.parts[:0]}
	c.event("response.output_item.added")
	c.putInt("output_index", c.count)
	c.out = c.item(append(c.out, `,"item":`...), "in_progress")
	c.end()
	return at
}

// argue appends to the arguments of the open call. Ollama may send them as an object.
func (c *composer) argue(raw []byte) {
	inner := inside(raw)
	if len(raw) > 0 && raw[0] == '{' {
		inner = inside(wire.AppendQuoted(nil, string(raw)))
	}
	if len(inner) == 0 || c.over {
		return
	}
	c.grow(inner)
	c.calls[c.open.call].argued = true
	c.event("response.function_call_arguments.delta")
	c.place()
	c.putText("delta", inner)
	c.end()
}

// inside returns what is between the quotes of a raw string, or nil for any other value.
func inside(raw []byte) []byte {
	if !wire.IsString(raw) {
		return nil
	}
	return raw[1 : len(raw)-1]
}

// failure reads an event that replaces the rest of a stream. Its code says what a number said.
func failure(event []byte) *wire.Error {
	e := wire.ParseErrorEvent(event)
	if e.Code == "upstream_error" && e.Status != http.StatusBadGateway {
		e.Code = strconv.Itoa(e.Status)
	}
	return e
}
