package responses

import (
	"strconv"

	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// inputItem is an item of a conversation.
type inputItem struct {
	Type      raw `json:"type"`
	Role      raw `json:"role"`
	Content   raw `json:"content"`
	ID        raw `json:"id"`
	CallID    raw `json:"call_id"`
	Name      raw `json:"name"`
	Arguments raw `json:"arguments"`
	Output    raw `json:"output"`
}

// items reads a list of items.
func (d *reader) items(list []byte) error {
	err := wire.EachItem(list, func(i int, raw []byte) error {
		param := d.at
		if param == "" {
			param = "input[" + strconv.Itoa(i) + "]"
		}
		return d.item(param, raw)
	})
	return wrongType(err, "input")
}

func (d *reader) item(param string, raw []byte) error {
	var it inputItem
	if err := neutral.Read(raw, &it); err != nil {
		return err
	}
	switch kind := wire.Word(it.Type); {
	case kind == "message", kind == "" && it.Role != nil:
		return d.message(param, &it)
	case kind == "function_call":
		return d.call(param, &it)
	case kind == "function_call_output":
		return d.result(param, &it)
	case kind == "reasoning":
		return nil
	case kind == "item_reference", kind == "" && it.ID != nil:
		return d.reference(param, wire.Word(it.ID))
	}
	return d.Lacks.Refuse(param+".type", "An item of type "+shorten(it.Type))
}

// reference reads the item that an id refers to.
func (d *reader) reference(param, id string) error {
	raw, ok := d.Items[id]
	if !ok {
		return wire.NotFound(param+".id", "item_not_found",
			"No such item: %.100q. It must have been created through this proxy by the same organization", id)
	}
	var it inputItem
	if err := neutral.Read(raw, &it); err != nil || wire.Word(it.Type) == "item_reference" {
		return d.Lacks.Refuse(param+".id", "This item")
	}
	return d.item(param, raw)
}

// roles are the neutral roles. Few servers know developer.
var roles = map[string]neutral.Role{
	"user": neutral.RoleUser, "assistant": neutral.RoleAssistant,
	"system": neutral.RoleSystem, "developer": neutral.RoleSystem,
}

func (d *reader) message(param string, it *inputItem) error {
	role, ok := roles[wire.Word(it.Role)]
	if !ok {
		return wire.BadRequest(param+".role", "invalid_value", "Invalid value for '%s.role': %s.", param, shorten(it.Role))
	}
	parts, err := d.parts(param+".content", it.Content)
	d.say(role, parts...)
	return err
}

// call adds a call to what the assistant said before it.
func (d *reader) call(param string, it *inputItem) error {
	for _, m := range []struct {
		name  string
		value raw
	}{{"call_id", it.CallID}, {"name", it.Name}, {"arguments", it.Arguments}} {
		if !wire.IsString(m.value) {
			return required(param, m.name)
		}
	}
	n := len(d.Messages)
	if n == 0 || d.Messages[n-1].Role != neutral.RoleAssistant {
		d.say(neutral.RoleAssistant)
		n++
	}
	last := &d.Messages[n-1]
	last.Parts = append(last.Parts,
		neutral.Part{Kind: neutral.Call, CallID: it.CallID, Name: it.Name, Arguments: it.Arguments})
	return nil
}

func (d *reader) result(param string, it *inputItem) error {
	if !wire.IsString(it.CallID) {
		return required(param, "call_id")
	}
	parts, err := d.parts(param+".output", it.Output)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if p.Kind != neutral.Text {
			return d.Lacks.Refuse(param+".output", "The output of a function that is more than text")
		}
	}
	d.Messages = append(d.Messages, neutral.Message{Role: neutral.RoleTool, CallID: it.CallID, Parts: parts})
	return nil
}

// inputPart is a part of the content of an item.
type inputPart struct {
	Type     raw `json:"type"`
	Text     raw `json:"text"`
	Refusal  raw `json:"refusal"`
	ImageURL raw `json:"image_url"`
	Detail   raw `json:"detail"`
	FileData raw `json:"file_data"`
	Filename raw `json:"filename"`
	FileID   raw `json:"file_id"`
	FileURL  raw `json:"file_url"`
	Audio    raw `json:"input_audio"`
}

// parts reads content: a string, or parts.
func (d *reader) parts(param string, content raw) ([]neutral.Part, error) {
	if wire.IsString(content) {
		return []neutral.Part{{Text: content}}, nil
	}
	var list []neutral.Part
	err := wire.EachItem(content, func(i int, raw []byte) error {
		part, err := d.part(param, i, raw)
		list = append(list, part)
		return err
	})
	return list, wrongType(err, param)
}

// part reads a part. A model's refusal counts as text when a conversation continues.
func (d *reader) part(param string, i int, raw []byte) (neutral.Part, error) {
	var p inputPart
	if err := neutral.Read(raw, &p); err != nil {
		return neutral.Part{}, err
	}
	kind, text := wire.Word(p.Type), p.Text
	if text == nil {
		text = p.Refusal
	}
	switch kind {
	case "input_text", "output_text", "text", "refusal":
		if wire.IsString(text) {
			return neutral.Part{Text: text}, nil
		}
	}
	param += "[" + strconv.Itoa(i) + "]"
	switch {
	case p.FileID != nil:
		return neutral.Part{}, d.Lacks.Refuse(param+".file_id", "A file_id")
	case kind == "input_image" && wire.IsString(p.ImageURL):
		return neutral.Part{Kind: neutral.Image, URL: p.ImageURL, Detail: p.Detail}, nil
	case kind == "input_file" && wire.IsString(p.FileData):
		return neutral.Part{Kind: neutral.File, Data: p.FileData, Name: p.Filename}, nil
	case p.FileURL != nil:
		return neutral.Part{}, d.Lacks.Refuse(param+".file_url", "A file_url")
	case kind == "input_audio" && p.Audio != nil:
		return neutral.Part{Kind: neutral.Audio, Data: p.Audio}, nil
	}
	return neutral.Part{}, d.Lacks.Refuse(param+".type", "Content of type "+shorten(p.Type))
}
