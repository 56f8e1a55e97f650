package responses

import (
	"errors"

	"github.com/llmguard/llmguard/internal/wire"
)

// writer writes a chat request.
type writer struct {
	buf   []byte
	items map[string][]byte // that may be referred to
	at    string            // the param all items belong to; "" when each has its own

	first bool // a message is written
	// What the assistant said and called is one message of chat and several items
	// of Responses: it is held back until it is whole.
	pending bool
	content []byte // raw, nil for none
	calls   []byte
}

func (w *writer) text(s string)  { w.buf = append(w.buf, s...) }
func (w *writer) raw(raw []byte) { w.buf = append(w.buf, raw...) }

// member adds a member to an object that has one already.
func (w *writer) member(name string, value []byte) {
	w.text(",")
	w.buf = wire.AppendQuoted(w.buf, name)
	w.text(":")
	w.raw(value)
}

// message begins a message.
func (w *writer) message(role string) {
	if w.first {
		w.text(",")
	}
	w.first = true
	w.text(`{"role":"`)
	w.text(role)
	w.text(`"`)
}

// flush writes what is held back.
func (w *writer) flush() {
	if !w.pending {
		return
	}
	w.message("assistant")
	w.text(`,"content":`)
	if w.content == nil {
		w.text("null")
	}
	w.raw(w.content)
	if len(w.calls) > 0 {
		w.text(`,"tool_calls":[`)
		w.raw(w.calls)
		w.text("]")
	}
	w.text("}")
	w.pending = false
	w.content = nil
	w.calls = w.calls[:0]
}

// given reports whether a member is there and not null.
func given(raw []byte) bool { return len(raw) > 0 && string(raw) != "null" }

// shorten makes a raw value fit into a message.
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

// asRefusal makes a refusal of a value that is not of the kind it must be.
func asRefusal(err error, param string) error {
	var public *wire.Error
	if err == nil || errors.As(err, &public) {
		return err
	}
	return wire.BadRequest(param, "invalid_type", "Invalid type for '%s'.", param)
}
