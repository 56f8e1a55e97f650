package responses

import (
	"bytes"
	"strconv"

	"github.com/llmguard/llmguard/internal/wire"
)

// item holds the parsed members of a conversation item, raw.
type item struct {
	kind, role, content, id         []byte
	callID, name, arguments, output []byte
}

func readItem(raw []byte) (it item, err error) {
	err = wire.EachMember(raw, func(key, value []byte) error {
		var at *[]byte
		switch string(key) {
		case "type":
			at = &it.kind
		case "role":
			at = &it.role
		case "content":
			at = &it.content
		case "id":
			at = &it.id
		case "call_id":
			at = &it.callID
		case "name":
			at = &it.name
		case "arguments":
			at = &it.arguments
		case "output":
			at = &it.output
		default:
			return nil
		}
		*at = value
		return nil
	})
	return it, err
}

// list writes items as messages.
func (w *writer) list(items []byte) error {
	err := wire.EachItem(items, func(i int, raw []byte) error {
		param := w.at
		if param == "" {
			param = "input[" + strconv.Itoa(i) + "]"
		}
		return w.item(param, raw)
	})
	return asRefusal(err, "input")
}

func (w *writer) item(param string, raw []byte) error {
	it, err := readItem(raw)
	if err != nil {
		return err
	}
	switch kind := wire.Word(it.kind); {
	case kind == "message", kind == "" && it.role != nil:
		return w.said(param, it)
	case kind == "function_call":
		return w.called(param, it)
	case kind == "function_call_output":
		return w.returned(param, it)
	case kind == "reasoning":
		return nil
	case kind == "item_reference", kind == "" && it.id != nil:
		return w.reference(param, it)
	}
	return refuse(param+".type", "An item of type "+shorten(it.kind))
}

// reference writes the item that an id refers to.
func (w *writer) reference(param string, it item) error {
	id := wire.Word(it.id)
	raw, ok := w.items[id]
	if !ok {
		return wire.NotFound(param+".id", "item_not_found",
			"No such item: %.100q. It must have been created through this proxy by the same organization", id)
	}
	it, err := readItem(raw)
	if err != nil || wire.Word(it.kind) == "item_reference" {
		return refuse(param+".id", "This item")
	}
	return w.item(param, raw)
}

// roles maps roles of Responses to those of chat. Few servers know developer.
var roles = map[string]string{"user": "user", "assistant": "assistant", "system": "system", "developer": "system"}

func (w *writer) said(param string, it item) error {
	role, ok := roles[wire.Word(it.role)]
	if !ok {
		return wire.BadRequest(param+".role", "invalid_value", "Invalid value for '%s.role': %s.", param, shorten(it.role))
	}
	w.flush()
	if role == "assistant" {
		content, err := w.parts(nil, param+".content", it.content, "")
		w.pending, w.content = true, content
		return err
	}
	w.message(role)
	w.text(`,"content":`)
	var err error
	w.buf, err = w.parts(w.buf, param+".content", it.content, `\n`)
	w.text("}")
	return err
}

// called buffers a call, together with what the assistant said before it.
func (w *writer) called(param string, it item) error {
	for _, m := range []struct {
		name  string
		value []byte
	}{{"call_id", it.callID}, {"name", it.name}, {"arguments", it.arguments}} {
		if !wire.IsString(m.value) {
			return wire.BadRequest(param+"."+m.name, "missing_required_parameter", "Missing required parameter: '%s.%s'.", param,
				m.name)
		}
	}
	w.pending = true
	if len(w.calls) > 0 {
		w.calls = append(w.calls, ',')
	}
	w.calls = append(append(w.calls, `{"id":`...), it.callID...)
	w.calls = append(append(w.calls, `,"type":"function","function":{"name":`...), it.name...)
	w.calls = append(append(append(w.calls, `,"arguments":`...), it.arguments...), "}}"...)
	return nil
}

func (w *writer) returned(param string, it item) error {
	if !wire.IsString(it.callID) {
		return wire.BadRequest(param+".call_id", "missing_required_parameter", "Missing required parameter: '%s.call_id'.",
			param)
	}
	w.flush()
	w.message("tool")
	w.member("tool_call_id", it.callID)
	w.text(`,"content":`)
	var err error
	w.buf, err = w.parts(w.buf, param+".output", it.output, `\n`)
	if err != nil {
		return err
	}
	if bytes.HasSuffix(w.buf, []byte("]")) {
		return refuse(param+".output", "The output of a function that is more than text")
	}
	w.text("}")
	return nil
}
