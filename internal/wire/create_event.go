package wire

import (
	"bytes"
	"strconv"
)

// CreateEvent is a message on a WebSocket of the Responses API: a request for a response, without members that only
// HTTP needs, and with some that only a WebSocket has. It shares memory with its text.
type CreateEvent struct {
	// Type is "response.create", or the type of another message.
	Type string
	// Previous is the response to continue from, or "".
	Previous string
	// Warms means that nothing is to be generated. The input gets an id for the next request to continue from.
	Warms bool
	// Stores means that the response is stored outside of the connection.
	Stores bool

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
			return nil
		case "generate":
			e.Warms = string(value) == "false"
			return nil
		case "stream", "background": // a WebSocket always streams
			return nil
		case "previous_response_id":
			e.Previous, e.previous = Word(value), value
			return nil
		case "input":
			e.input = value
			return nil
		case "store":
			e.Stores = string(value) != "false"
		}
		e.members = append(e.members, appendMember([]byte{}, string(name), nil), value)
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

// Body returns the body of the HTTP request. If earlier is not nil, it contains the items of the previous response
// and of what that continued from, and takes the place of its id.
func (e *CreateEvent) Body(earlier []byte) Body {
	parts := append(make([][]byte, 0, len(e.members)+8), []byte(`{"stream":true`))
	parts = append(parts, e.members...)
	items := e.Items()
	switch {
	case earlier == nil && e.input != nil:
		parts = append(parts, []byte(`,"input":`), e.input)
	case len(earlier) > 0 && len(items) > 0:
		parts = append(parts, []byte(`,"input":[`), earlier, []byte{','}, items, []byte{']'})
	case earlier != nil:
		parts = append(parts, []byte(`,"input":[`), earlier, items, []byte{']'})
	}
	if earlier == nil && e.previous != nil {
		parts = append(parts, []byte(`,"previous_response_id":`), e.previous)
	}
	return Body{parts: append(parts, []byte{'}'})}
}

// PlainBody returns a body that has not been read.
func PlainBody(text []byte) Body { return Body{parts: [][]byte{text}} }

// InputItem returns an item of an answer as input of a later request. It has no id, because nobody stores the item.
// Reasoning that the answer does not contain is left out: the result is nil.
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
	out[0] = '{'
	return append(out, '}')
}

// Named returns an empty completed response to a request, as JSON. made is a Unix time in seconds.
func Named(request []byte, id string, made int64) []byte {
	dst := append([]byte(`{"id":`), appendQuoted(nil, id)...)
	dst = append(dst, `,"object":"response","created_at":`...)
	dst = strconv.AppendInt(dst, made, 10)
	dst = append(dst, `,"status":"completed","background":false,"error":null`...)
	dst = AppendEcho(dst, request)
	return append(dst, `,"incomplete_details":null,"output":[],"usage":{"input_tokens":0,"input_tokens_details":`+
		`{"cached_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}}`...)
}
