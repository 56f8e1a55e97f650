package wire

// Ping is the event of a Messages stream that keeps its connection alive.
const Ping = "event: ping\ndata: {\"type\":\"ping\"}\n\n"

// messageReader reads an event of a Messages stream.
type messageReader struct {
	answerReader
	kind, stop Span // raw strings
	summary    bool
	called     bool // a block begins with the call of a tool
}

// scanMessageEvent reads the data of one event of a Messages stream.
func scanMessageEvent(data, dst []byte) (Chunk, error) {
	r := messageReader{answerReader: answerReader{lexer: lenient(data), said: dst}}
	r.space()
	err := r.object(r.member)
	chunk := Chunk{Text: r.said, Summary: r.summary}
	if err != nil {
		return chunk, err
	}
	kind := r.word(r.kind)
	chunk.Error = r.wrong || kind == "" && r.message
	chunk.Framed = kind == "error" && r.framed
	chunk.Finish = !r.stop.IsZero() || kind == "message_stop"
	if r.usage.present || !r.id.IsZero() {
		chunk.Answer = r.answer(Messages)
	}
	return chunk, nil
}

func (r *messageReader) member(name []byte) error {
	inner := r.peek() == '{'
	switch {
	case string(name) == "type":
		return r.named(&r.kind)
	case string(name) == "message" && inner:
		return r.object(r.answerReader.member)
	case string(name) == "content_block" && inner:
		return r.object(r.blockMember)
	case string(name) == "delta" && inner:
		return r.object(r.deltaMember)
	case string(name) == "usage", failureShapes[string(name)].read != nil:
		return r.answerReader.member(name)
	}
	return r.skip()
}

// named reads the type of an event.
func (r *messageReader) named(at *Span) error {
	err := readString(&r.lexer, at)
	r.wrong = r.wrong || r.word(*at) == "error"
	return err
}

// deltaMember reads a piece of a block, or the end of the message.
func (r *messageReader) deltaMember(name []byte) error {
	if string(name) == "stop_reason" {
		return readString(&r.lexer, &r.stop)
	}
	return r.blockMember(name)
}

// messageTexts are the members of a block, or a piece of one, with generated text; true: of thinking, which may
// be a summary.
var messageTexts = map[string]bool{"text": false, "partial_json": false, "name": false, "thinking": true}

// blockMember reads the generated text of a block, or a piece of one.
func (r *messageReader) blockMember(name []byte) error {
	thinking, ok := messageTexts[string(name)]
	r.called = r.called || string(name) == "input"
	if !ok || r.peek() != '"' {
		return r.skip()
	}
	r.summary = r.summary || thinking
	return r.text()
}

// scanMessage takes all the text of a message.
func scanMessage(answer []byte) (Generated, bool) {
	r := messageReader{answerReader: answerReader{lexer: lenient(answer)}}
	g := Generated{}
	r.space()
	err := r.object(func(name []byte) error {
		if string(name) != "content" || r.peek() != '[' {
			return r.skip()
		}
		g.Answers = 1
		return r.array(func(int) error { return r.messageBlock(&g) })
	})
	g.Text, g.Exact = r.said, !r.summary
	return g, err == nil
}

// messageBlock reads a block of a whole message.
func (r *messageReader) messageBlock(g *Generated) error {
	if r.peek() != '{' {
		return r.skip()
	}
	return r.object(func(name []byte) error {
		if string(name) != "input" {
			return r.blockMember(name)
		}
		g.Calls++
		v, err := r.value()
		r.said = append(r.said, r.buf[v.Start:v.End]...)
		return err
	})
}

// scanMessageWritten takes the text of a message if none of it may be a summary.
func scanMessageWritten(answer []byte) ([]byte, bool) {
	g, ok := scanMessage(answer)
	return g.Text, ok && g.Exact
}
