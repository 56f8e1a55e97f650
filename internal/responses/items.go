package responses

import (
	"bytes"
	"cmp"

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
	Namespace raw `json:"namespace"`
	Arguments raw `json:"arguments"`
	Output    raw `json:"output"`
	Encrypted raw `json:"encrypted_content"`
}

func (d *reader) items(list []byte) error {
	return neutral.Each(list, "input", func(param string, it *inputItem) error { return d.item(cmp.Or(d.at, param), it) })
}

func (d *reader) item(param string, it *inputItem) error {
	switch kind := wire.Word(it.Type); {
	case kind == "message", kind == "" && it.Role != nil:
		return d.message(param, it)
	case kind == "function_call":
		return d.call(param, it)
	case kind == "function_call_output":
		return d.result(param, it)
	case kind == "reasoning":
		return d.reasoning(param, it)
	case kind == "item_reference", kind == "" && it.ID != nil:
		return d.reference(param, wire.Word(it.ID))
	}
	return d.Lacks.Refuse(param+".type", "An item of type "+neutral.Shorten(it.Type))
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
	return d.item(param, &it)
}

// roles are the neutral roles. Few servers know developer.
var roles = map[string]neutral.Role{
	"user": neutral.RoleUser, "assistant": neutral.RoleAssistant,
	"system": neutral.RoleSystem, "developer": neutral.RoleSystem,
}

func (d *reader) message(param string, it *inputItem) error {
	role, ok := roles[wire.Word(it.Role)]
	if !ok {
		return neutral.Invalid(param+".role", it.Role)
	}
	parts, err := d.parts(param+".content", it.Content)
	d.Say(role, parts...)
	return err
}

// call adds a call to what the assistant said before it.
func (d *reader) call(param string, it *inputItem) error {
	last := d.Answers()
	it.Name = joined(it.Namespace, it.Name)
	last.Parts = append(last.Parts,
		neutral.Part{Kind: neutral.Call, CallID: it.CallID, Name: it.Name, Arguments: it.Arguments})
	return neutral.NeedsStrings(param, "call_id", it.CallID, "name", it.Name, "arguments", it.Arguments)
}

// reasoning adds a reasoning that a provider of another API signed, as Writer wrote it. Others are dropped: only
// their own API can read them.
func (d *reader) reasoning(param string, it *inputItem) error {
	part := neutral.Part{Kind: neutral.Redacted}
	sealed := neutral.Inside(it.Encrypted)
	if data, ok := bytes.CutPrefix(sealed, []byte(redactedMark)); ok {
		part.Data = neutral.Quote(data)
	} else if signature, ok := bytes.CutPrefix(sealed, []byte(signatureMark)); ok {
		parts, err := d.parts(param+".content", it.Content)
		if err != nil {
			return err
		}
		part = neutral.Part{Kind: neutral.Reasoning, Signature: neutral.Quote(signature)}
		for _, p := range parts {
			part.Text = neutral.Grow(part.Text, p.Text)
		}
	} else {
		return nil
	}
	last := d.Answers()
	last.Parts = append(last.Parts, part)
	return nil
}

func (d *reader) result(param string, it *inputItem) error {
	parts, err := d.parts(param+".output", it.Output)
	if err != nil {
		return err
	}
	if d.Lacks.ResultMedia && neutral.HasMedia(parts) {
		return d.Lacks.Refuse(param+".output", "The output of a function that is more than text")
	}
	d.Messages = append(d.Messages, neutral.Message{Role: neutral.RoleTool, CallID: it.CallID, Parts: parts})
	return neutral.NeedsStrings(param, "call_id", it.CallID)
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

func (d *reader) parts(param string, content raw) ([]neutral.Part, error) {
	if wire.IsString(content) {
		return []neutral.Part{{Text: content}}, nil
	}
	var list []neutral.Part
	err := neutral.Each(content, param, func(param string, p *inputPart) error {
		part, err := d.part(param, p)
		list = append(list, part)
		return err
	})
	return list, err
}

// part reads a part. A model's refusal counts as text when a conversation continues.
func (d *reader) part(param string, p *inputPart) (neutral.Part, error) {
	kind, text := wire.Word(p.Type), p.Text
	if text == nil {
		text = p.Refusal
	}
	switch kind {
	case "input_text", "output_text", "reasoning_text", "text", "refusal":
		if wire.IsString(text) {
			return neutral.Part{Text: text}, nil
		}
	}
	switch {
	case p.FileID != nil:
		return neutral.Part{}, d.Lacks.Refuse(param+".file_id", "A file_id")
	case kind == "input_image" && wire.IsString(p.ImageURL):
		return neutral.Part{Kind: neutral.Image, URL: p.ImageURL, Detail: p.Detail}, nil
	case kind == "input_file" && wire.IsString(p.FileData):
		return neutral.Part{Kind: neutral.File, Data: p.FileData, Name: p.Filename}, nil
	case p.FileURL != nil && d.Lacks.FileURL:
		return neutral.Part{}, d.Lacks.Refuse(param+".file_url", "A file_url")
	case kind == "input_file" && wire.IsString(p.FileURL):
		return neutral.Part{Kind: neutral.File, URL: p.FileURL}, nil
	case kind == "input_audio" && d.Lacks.Audio:
		return neutral.Part{}, d.Lacks.Refuse(param+".input_audio", "Audio")
	case kind == "input_audio" && p.Audio != nil:
		return neutral.Part{Kind: neutral.Audio, Data: p.Audio}, nil
	}
	return neutral.Part{}, d.Lacks.Refuse(param+".type", "Content of type "+neutral.Shorten(p.Type))
}
