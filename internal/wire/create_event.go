package wire

import (
	"bytes"
	"strconv"
)

// CreateEvent is a message on a WebSocket of the Responses API: a request, with members that only a WebSocket has. It
// shares memory with its text.
type CreateEvent struct {
	Type     string // "response.create", or of another message
	Previous string // the response to continue from, or ""
	Warms    bool   // nothing is to be generated; the input gets an id to continue from
	Stores   bool   // the response is stored, not only remembered on the connection

	input    []byte
	previous []byte
	members  [][]byte // names and values of all other members
}

// ParseCreateEvent reads a message. The error is a syntax error.
func ParseCreateEvent(text []byte) (CreateEvent, error) {
	e := CreateEvent{Stores: true}
	err := EachMember(text, func(name, value []byte) error {
		switch string(name) {
		case "type":
			e.Type = Word(value)
		case "generate":
			e.Warms = string(value) == "false"
		case "stream", "background": // a WebSocket always streams
		case "previous_response_id":
			e.Previous, e.previous = Word(value), value
		case "input":
			e.input = value
		case "store":
			e.Stores = string(value) != "false"
			fallthrough
		default:
			e.members = append(e.members, appendMember([]byte{}, string(name), nil), value)
		}
		return nil
	})
	return e, err
}

// Items returns the items of the input, separated by commas.
func (e *CreateEvent) Items() []byte {
	if IsString(e.input) {
		return append(append([]byte(`{"type":"message","role":"user","content":`), e.input...), '}')
	}
	return bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimPrefix(e.input, []byte("[")), []byte("]")))
}

// Body returns the body of the HTTP request. Items of the conversation so far, separated by commas, replace the id of
// the previous response unless they are nil.
func (e *CreateEvent) Body(earlier []byte) Body {
	parts := append([][]byte{[]byte(`{"stream":true`)}, e.members...)
	if earlier != nil {
		items, comma := e.Items(), []byte(nil)
		if len(earlier) > 0 && len(items) > 0 {
			comma = []byte{','}
		}
		parts = append(parts, []byte(`,"input":[`), earlier, comma, items, []byte{']'})
		return Body{parts: append(parts, []byte{'}'})}
	}
	switch {
	case e.Warms: // Codex warms with instructions only, which other wires refuse; the next request has them, too
		parts = append(parts, []byte(`,"input":"-"`))
	case e.input != nil:
		parts = append(parts, []byte(`,"input":`), e.input)
	}
	if e.previous != nil {
		parts = append(parts, []byte(`,"previous_response_id":`), e.previous)
	}
	return Body{parts: append(parts, []byte{'}'})}
}

// PlainBody returns a body that was not read.
func PlainBody(text []byte) Body { return Body{parts: [][]byte{text}} }

// InputItem returns an item of an answer as input of a later request: without an id, because the item is not stored.
// It is nil for reasoning without its content.
func InputItem(item []byte) []byte {
	out, reasoning, encrypted := []byte{}, false, false
	err := EachMember(item, func(name, value []byte) error {
		switch string(name) {
		case "id":
			return nil
		case "type":
			reasoning = Word(value) == "reasoning"
		case "encrypted_content":
			encrypted = IsString(value)
		}
		out = appendMember(out, string(name), value)
		return nil
	})
	if err != nil || len(out) == 0 || reasoning && !encrypted {
		return nil
	}
	out[0] = '{' // in place of the comma
	return append(out, '}')
}

// Warmed returns the response to a request for which nothing was generated. made is a Unix time in seconds.
func Warmed(request []byte, id string, made int64) []byte {
	dst := append([]byte(`{"object":"response","status":"completed","background":false,"id":`), appendQuoted(nil, id)...)
	dst = strconv.AppendInt(append(dst, `,"created_at":`...), made, 10)
	dst = AppendEcho(append(dst, `,"error":null`...), request)
	return append(dst, `,"incomplete_details":null,"output":[],"usage":{"input_tokens":0,"input_tokens_details":`+
		`{"cached_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}}`...)
}
