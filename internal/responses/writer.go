package responses

import (
	"errors"

	"github.com/llmguard/llmguard/internal/wire"
)

// writer writes a chat request.
type writer struct {
	buf   []byte
	items map[string][]byte // that may be referenced
	at    string            // param of all items; "" if each has its own

	begun bool // a message has been written
	// What the assistant said and called is one chat message but several items of Responses, so
	// it is buffered until it is complete.
	pending bool
	content []byte // raw, nil if there is none
	calls   []byte
}

func (w *writer) text(s string)  { w.buf = append(w.buf, s...) }
func (w *writer) raw(raw []byte) { w.buf = append(w.buf, raw...) }

// member adds a member to an object that already has one.
func (w *writer) member(name string, value []byte) {
	w.text(",")
	w.buf = wire.AppendQuoted(w.buf, name)
	w.text(":")
	w.raw(value)
}

// message starts a message.
func (w *writer) message(role string) {
	if w.begun {
		w.text(",")
	}
	w.begun = true
	w.text(`{"role":"`)
	w.text(role)
	w.text(`"`)
}

// flush writes the buffered message.
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

// given reports whether a member is present and not null.
func given(raw []byte) bool { return len(raw) > 0 && string(raw) != "null" }

// shorten shortens a raw value for an error message.
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

// asRefusal converts the error for a value of the wrong kind.
func asRefusal(err error, param string) error {
	var public *wire.Error
	if err == nil || errors.As(err, &public) {
		return err
	}
	return wire.BadRequest(param, "invalid_type", "Invalid type for '%s'.", param)
}
