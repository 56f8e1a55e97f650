package wire

import "strconv"

// MessageBlocks is how far a stream of messages has come. It is not safe for concurrent use.
type MessageBlocks struct {
	begun, open, calls bool
	blocks             int64
}

// Note records an event of the stream by its data.
func (b *MessageBlocks) Note(data []byte) {
	r := messageReader{answerReader: answerReader{lexer: lenient(data)}}
	r.space()
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
