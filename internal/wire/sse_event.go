package wire

import (
	"bytes"
	"strconv"
)

// eventReader reads one event of a Responses stream.
type eventReader struct {
	answerReader
	kind, delta Span // raw strings
	sequence    Span
	name        Span // of the called tool
	response    bool // the event carries a response
}

// scanResponseEvent reads the data of one Responses event. Its text is that of a delta, and the
// name of a tool whose call begins.
func scanResponseEvent(data, dst []byte) (Chunk, error) {
	r := eventReader{answerReader: answerReader{lexer: lenient(data)}}
	r.space()
	err := r.object(r.member)
	chunk := Chunk{Text: dst}
	if err != nil {
		return chunk, err
	}
	chunk.Sequence, _ = strconv.ParseInt(string(r.buf[r.sequence.Start:r.sequence.End]), 10, 64)
	kind := r.raw(r.kind)
	end := eventEnds[string(kind)]
	switch {
	case r.wrong || len(kind) == 0 && r.message:
		chunk.Error = true
		chunk.Finish = end.failed
		chunk.Framed = end.failed || string(kind) == "error"
	case end.done:
		chunk.Finish, chunk.Error, chunk.Framed = true, end.failed, end.failed
	case string(kind) == "response.output_item.added":
		chunk.Text = appendUnquoted(chunk.Text, r.raw(r.name))
	case bytes.HasSuffix(kind, []byte(".delta")) && string(kind) != "response.audio.delta":
		chunk.Text = appendUnquoted(chunk.Text, r.raw(r.delta))
		chunk.Summary = string(kind) == "response.reasoning_summary_text.delta"
	}
	if r.response {
		chunk.Answer = r.answer(Responses)
	}
	return chunk, nil
}

// raw returns the content of a string.
func (r *eventReader) raw(at Span) []byte {
	if at.Len() < 2 {
		return nil
	}
	return r.buf[at.Start+1 : at.End-1]
}

func (r *eventReader) member(name []byte) error {
	first := r.peek()
	switch {
	case string(name) == "response" && first == '{':
		r.response = true
		return r.object(r.answerReader.member)
	case string(name) == "item" && first == '{':
		return r.object(func(name []byte) error { return r.text(name, "name", &r.name) })
	case string(name) == "sequence_number":
		at, err := r.value()
		r.sequence = at
		return err
	case string(name) == "type":
		err := r.text(name, "type", &r.kind)
		r.wrong = r.wrong || string(r.raw(r.kind)) == "error"
		return err
	case failureShapes[string(name)].read != nil:
		return r.answerReader.member(name)
	}
	return r.text(name, "delta", &r.delta)
}

// text reads the value of a member, into at if it is a string and the wanted member.
func (r *eventReader) text(name []byte, wanted string, at *Span) error {
	first := r.peek()
	v, err := r.value()
	if first == '"' && string(name) == wanted {
		*at = v
	}
	return err
}
