package neutral

import (
	"bytes"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
)

// Reply holds what an answer is built from, in addition to the provider's bytes.
type Reply struct {
	// Request is the caller's request.
	Request *wire.Request
	// ID is the id of the answer; "" for the provider's, or a new one.
	ID string
	// Final, if set, is called with the complete answer, unless it failed, before its last byte is
	// sent. Only wires whose answers are stored use it.
	Final func(answer []byte)
}

// Draft is what the writers of answers have in common. It has the methods of a Writer that repeats nothing at the end
// of a stream but Write.
type Draft struct {
	Reply
	Streams bool
	Head    Head
	Begun   bool
	Over    bool
	// Stop is why and how the answer ended, and Calls how many calls it has so far.
	Stop  Event
	Calls int
	// Parts are the content of a whole answer, of the kinds of an assistant's message and Refusal. Document is the
	// answer after its end.
	Parts    []Part
	Document []byte

	out bytes.Buffer
}

// NewDraft returns the draft of an answer that begins now.
func NewDraft(r Reply, streams bool) Draft {
	return Draft{Reply: r, Streams: streams, Head: Head{Created: time.Now().Unix()}}
}

// Out implements Writer.
func (d *Draft) Out() *bytes.Buffer { return &d.out }

// Full implements Writer.
func (d *Draft) Full() bool { return false }

// Answer implements Writer.
func (d *Draft) Answer() []byte { return d.Document }

// Held implements Writer.
func (d *Draft) Held() int { return 0 }

// Fail ends the answer with an error. number is that of the event in a stream whose events have numbers.
func (d *Draft) Fail(e *wire.Error, number int64) {
	d.out.Write(e.Frame(d.Request.Endpoint, number))
	d.Over = true
}

// Begin notes what is known of the answer, and reports whether that is news. prefix is what a new id begins with.
func (d *Draft) Begin(h Head, prefix string) bool {
	first := !d.Begun
	d.Begun = true
	if h.Created == 0 || !first {
		h.Created = d.Head.Created
	}
	switch {
	case !first:
		h.ID = d.Head.ID
	case d.ID != "":
		h.ID = wire.AppendQuoted(nil, d.ID)
	case len(Inside(h.ID)) == 0:
		h.ID = wire.AppendQuoted(nil, NewID(prefix))
	}
	if h.Model == nil {
		h.Model = d.Request.Member("model")
	}
	d.Head = h
	return first
}

// Called returns the event of a call with an id and a name. prefix is what a new id begins with.
func (d *Draft) Called(e Event, prefix string) Event {
	d.Calls++
	e.ID, e.Name = bytes.Clone(e.ID), bytes.Clone(e.Name)
	if e.ID == nil {
		e.ID = wire.AppendQuoted(nil, NewID(prefix))
	}
	if e.Name == nil {
		e.Name = Raw(`""`)
	}
	return e
}

// Keep adds an event of the content to Parts. A call has to be Called before.
func (d *Draft) Keep(e Event) {
	last := &Part{Kind: -1}
	if n := len(d.Parts); n > 0 {
		last = &d.Parts[n-1]
	}
	switch e.Kind {
	case Text, Refusal, Reasoning:
		if last.Kind != e.Kind || last.Signature != nil {
			d.Parts = append(d.Parts, Part{Kind: e.Kind})
			last = &d.Parts[len(d.Parts)-1]
		}
		last.Text = Grow(last.Text, e.Text)
	case Signature:
		if last.Kind != Reasoning || last.Signature != nil {
			d.Parts = append(d.Parts, Part{Kind: Reasoning})
			last = &d.Parts[len(d.Parts)-1]
		}
		last.Signature = bytes.Clone(e.Text)
	case Redacted:
		d.Parts = append(d.Parts, Part{Kind: Redacted, Data: bytes.Clone(e.Text)})
	case Call:
		d.Parts = append(d.Parts, Part{Kind: Call, CallID: e.ID, Name: e.Name, Arguments: Raw(`""`)})
	case Arguments:
		if call := d.call(e.Call); call != nil {
			call.Arguments = Grow(call.Arguments, e.Text)
		}
	}
}

// call returns a call by its number, or nil.
func (d *Draft) call(number int) *Part {
	for i := range d.Parts {
		if d.Parts[i].Kind != Call {
			continue
		}
		if number == 0 {
			return &d.Parts[i]
		}
		number--
	}
	return nil
}

// Grow returns a string with a piece added. It may change the string; nil is an empty one.
func Grow(text, piece Raw) Raw {
	if text == nil {
		text = Raw(`""`)
	}
	return append(append(text[:len(text)-1], Inside(piece)...), '"')
}

// Quote encloses a copy of the inside of a string in quotes.
func Quote[T ~string | ~[]byte](inside T) Raw { return append(append(Raw(`"`), inside...), '"') }
