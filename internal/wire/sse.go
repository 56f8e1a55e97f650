package wire

import (
	"bytes"
	"errors"
	"strconv"
)

// MaxAnswer bounds, in bytes, a plain answer, which is buffered completely so that its cost can be
// sent in its headers, and an event that [Events] accepts: the last event of a stream may repeat
// the answer. 2,048 embeddings of 3,072 floats need about 90 MB, several pictures as much.
const MaxAnswer = 128 << 20

// ErrEventTooLarge means that an incomplete event has grown beyond [MaxAnswer].
var ErrEventTooLarge = errors.New("wire: event of a stream is too large")

// keepBuffer is the capacity up to which an idle Events keeps its buffer.
const keepBuffer = 64 << 10

// Events splits an event stream into events without changing a byte: all slices from Next, in
// order, followed by Rest, equal what was fed. Lines may end in LF, CR or CRLF, and the stream may
// arrive in any pieces. An event ends after its blank line. Lines without content are returned
// separately and immediately: a comment line or a blank line between events, and an LF that arrives
// too late to join the CR before it. The zero value is ready for use. Events must not be used by
// more than one goroutine at a time.
type Events struct {
	buf     []byte
	start   int  // start of the current event
	line    int  // start of the current line
	seen    int  // how far the current line has been searched
	lf      int  // no LF between seen and here
	afterCR bool // the byte before line was a CR that an LF may complete
}

// Feed adds a copy of p to the stream. Before the next Feed, Next has to be called until it returns
// no more events; slices from it are valid until then. The only error is [ErrEventTooLarge]; the
// bytes are not added then, and the stream cannot be continued.
func (e *Events) Feed(p []byte) error {
	if e.start > 0 {
		e.compact()
	}
	if len(e.buf) > MaxAnswer {
		return ErrEventTooLarge
	}
	e.buf = append(e.buf, p...)
	return nil
}

// compact drops the events already returned.
func (e *Events) compact() {
	rest := e.buf[e.start:]
	if len(rest) == 0 && cap(e.buf) > keepBuffer {
		e.buf = nil
	}
	e.buf = append(e.buf[:0], rest...)
	e.line -= e.start
	e.seen -= e.start
	e.lf = max(e.lf-e.start, 0)
	e.start = 0
}

// Next returns the next event with its blank line, and whether there is one.
func (e *Events) Next() ([]byte, bool) {
	if e.afterCR && e.line < len(e.buf) {
		e.afterCR = false
		if e.buf[e.line] == '\n' {
			alone := e.line == e.start
			e.line++
			e.seen = e.line
			if alone {
				return e.take(), true
			}
		}
	}
	for {
		end := lineEnd(e.buf, e.seen, &e.lf)
		if end < 0 {
			e.seen = len(e.buf)
			return nil, false
		}
		blank := end == e.line
		comment := e.line == e.start && e.buf[e.line] == ':'
		e.line = end + 1
		if e.buf[end] == '\r' {
			e.afterCR = e.line == len(e.buf)
			if !e.afterCR && e.buf[e.line] == '\n' {
				e.line++
			}
		}
		e.seen = e.line
		if blank || comment {
			return e.take(), true
		}
	}
}

// take returns the bytes up to the current line.
func (e *Events) take() []byte {
	event := e.buf[e.start:e.line:e.line]
	e.start = e.line
	return event
}

// lineEnd returns the index of the first CR or LF in b from on, or -1. The caller keeps lf,
// initially 0, from call to call: it avoids searching for the same LF, or for none, repeatedly.
func lineEnd(b []byte, from int, lf *int) int {
	*lf = max(*lf, from)
	if *lf < len(b) && b[*lf] != '\n' {
		at := bytes.IndexByte(b[*lf:], '\n')
		if at < 0 {
			at = len(b) - *lf
		}
		*lf += at
	}
	if cr := bytes.IndexByte(b[from:*lf], '\r'); cr >= 0 {
		return from + cr
	}
	if *lf < len(b) {
		return *lf
	}
	return -1
}

// Rest returns the bytes fed that do not form a complete event yet.
func (e *Events) Rest() []byte { return e.buf[e.start:] }

// Held returns how many bytes of memory e takes.
func (e *Events) Held() int { return cap(e.buf) }

// IsErrorEvent reports whether an event from [Events] is named "error".
func IsErrorEvent(event []byte) bool {
	name, ok := bytes.CutPrefix(event, []byte("event:"))
	if !ok {
		_, name, _ = bytes.Cut(event, []byte("\nevent:"))
	}
	name, _, _ = bytes.Cut(name, []byte("\n"))
	return string(bytes.TrimSpace(name)) == "error"
}

// EventData returns the data of an event from [Events]: its data lines, joined by LF, or nil if it
// has none. It is usually a slice of event; it is a copy if there is more than one data line.
func EventData(event []byte) []byte {
	event = bytes.TrimPrefix(event, byteOrderMark)
	var data []byte
	lines, lf := 0, 0
	for from := 0; from < len(event); {
		end := lineEnd(event, from, &lf)
		if end < 0 {
			end = len(event)
		}
		value, ok := fieldValue(event[from:end])
		from = end + 1
		switch {
		case !ok:
			continue
		case lines == 0:
			data = value
		case lines == 1:
			data = append(append(bytes.Clone(data), '\n'), value...)
		default:
			data = append(append(data, '\n'), value...)
		}
		lines++
	}
	return data
}

func fieldValue(line []byte) ([]byte, bool) {
	value, ok := bytes.CutPrefix(line, []byte("data"))
	if !ok || len(value) == 0 {
		return value, ok
	}
	value, ok = bytes.CutPrefix(value, []byte(":"))
	return bytes.TrimPrefix(value, []byte(" ")), ok
}

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
	if string(name) != wanted {
		return r.skip()
	}
	return readString(&r.lexer, at)
}
