package wire

import (
	"bytes"
	"strconv"
)

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

// MessageBlocks is how far a stream of messages has come. It is not safe for concurrent use.
type MessageBlocks struct {
	begun, open, calls bool
	blocks             int64
}

// Note records an event of the stream by its data.
func (b *MessageBlocks) Note(data []byte) {
	r := messageReader{answerReader: answerReader{lexer: lenient(data)}}
	if r.object(r.member) != nil {
		return
	}
	switch r.word(r.kind) {
	case "message_start":
		b.begun = true
	case "content_block_start":
		b.open, b.calls = true, b.calls || r.called
		b.blocks++
	case "content_block_stop":
		b.open = false
	}
}

// Calls reports whether the message calls a tool, perhaps with half of its input.
func (b *MessageBlocks) Calls() bool { return b.calls }

// Closing ends a stream of messages in place of its provider, with the error as a last text. Claude Code shows it,
// while it answers an error event with the same request without streaming, which costs again.
func (e *Error) Closing(b MessageBlocks, model string) []byte {
	var dst []byte
	event := func(kind, members string) {
		dst = append(dst, "event: "+kind+"\ndata: {\"type\":\""+kind+"\""+members+"}\n\n"...)
	}
	if !b.begun {
		event("message_start", `,"message":{"id":"msg_llmguard","type":"message","role":"assistant","model":`+
			string(appendQuoted(nil, model))+`,"content":[],"stop_reason":null,"stop_sequence":null,"usage":`+
			`{"input_tokens":0,"output_tokens":0}}`)
	}
	if b.open {
		event("content_block_stop", `,"index":`+strconv.FormatInt(b.blocks-1, 10))
	}
	at := `,"index":` + strconv.FormatInt(b.blocks, 10)
	event("content_block_start", at+`,"content_block":{"type":"text","text":""}`)
	event("content_block_delta", at+`,"delta":{"type":"text_delta","text":`+
		string(appendQuoted(nil, "llmguard: "+e.Message))+`}`)
	event("content_block_stop", at)
	event("message_delta", `,"delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":0}`)
	event("message_stop", "")
	return dst
}

// HeaderClaudeSession is the header by which Claude Code names its session.
const HeaderClaudeSession = "X-Claude-Code-Session-Id"

// messagesUsage is what only the usage of Anthropic's Messages has. Spans are raw strings.
type messagesUsage struct {
	speed       Span
	kind, model Span          // of an entry of iterations
	steps       []usageReader // the entries of iterations: what each pass of a model used
	more        bool          // there are more than maxSteps
	extra       int64         // tokens under names that we do not know
	name        string        // one of the names
}

// maxSteps bounds the entries that are read.
const maxSteps = 256

func (m *messagesUsage) iterations(l *lexer) error {
	m.steps = m.steps[:0]
	if l.peek() != '[' {
		return l.skip()
	}
	return l.array(func(i int) error {
		m.more = m.more || i >= maxSteps
		if l.peek() != '{' || m.more {
			return l.skip()
		}
		m.steps = append(m.steps, usageReader{})
		return m.steps[len(m.steps)-1].section(l, usageSection)
	})
}

// unknown reads a member that no server is known to report. Tokens in it may be billed.
func (m *messagesUsage) unknown(l *lexer, s section, name []byte) error {
	if s != usageSection && s != writtenSection || !bytes.Contains(name, []byte("token")) {
		return l.skip()
	}
	var c counter
	u := usageReader{}
	if err := u.counter(l, &c); err != nil {
		return err
	}
	if n := u.size(c); n > 0 {
		m.extra += n
		m.name = clip(name)
	}
	return nil
}

// addUnknown bills tokens under names that we do not know as output, which is the dearest class.
func (u *usageReader) addUnknown(used *Usage) {
	used.Output = min(used.Output+u.messages.extra, maxCount)
}

// Step is what one pass of a model used, of a call that had several. Kind is its type as sent, and Model the
// model's name, "" for the one that the answer names.
type Step struct {
	Kind, Model string
	Usage       Usage
	TimedWrites bool
}

// MessageStep is the kind of a Step of the model that answers. Its counts are also in the usage of the answer.
const MessageStep = "message"

// steps returns the passes of which a usage consists. An entry that cannot be read makes the usage doubtful.
func (r *answerReader) steps(u *usageReader) []Step {
	if u.messages.more {
		u.doubt("iterations has too many entries")
	}
	var steps []Step
	for i := range u.messages.steps {
		one := &u.messages.steps[i]
		used, ok := one.usage(Messages)
		if !ok {
			u.doubt("iterations has an entry without counts")
			continue
		}
		kind, model := r.word(one.messages.kind), r.word(one.messages.model)
		steps = append(steps, Step{kind, model, used, one.timedWrites()})
	}
	return steps
}

// messageTier returns the service tier of a Messages answer by which it is priced: the priority tier has no
// price of its own, and fast mode does.
func messageTier(tier, speed string) string {
	switch {
	case speed == "fast":
		return speed
	case speed == "", tier == "priority", tier == "batch": // the terms of the call know what was requested
		return ""
	}
	return tier
}
