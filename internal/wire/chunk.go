package wire

import "sync"

// Chunk is the part of a stream's chunk that affects its price.
type Chunk struct {
	// Answer is set in chunks with usage, an error or a finish_reason, and in events with a
	// response. Usage is cumulative: the last one of a stream counts.
	Answer
	// ChoicesEmpty means that the chunk has no choices.
	ChoicesEmpty bool
	// Error means that the chunk is an error, and Framed that it has the form of one that clients of
	// the endpoint know.
	Error, Framed bool
	// Finish means that a choice has a finish_reason.
	Finish bool
	// Text is the given buffer with the decoded generated text of the chunk appended: content,
	// refusal, reasoning, names and arguments of tool calls.
	Text []byte
	// Summary means that the text summarizes reasoning.
	Summary bool
	// Sequence is the number of a Responses event.
	Sequence int64

	model []byte // the raw name of the model
}

// Named returns the model that the chunk names, or before if it names the same or none.
func (c *Chunk) Named(before string) string {
	if c.Model != "" {
		return c.Model
	}
	if len(c.model) == 0 || len(c.model) > maxWord || string(c.model) == before {
		return before
	}
	return string(appendUnquoted(nil, c.model))
}

// ScanEvent reads the data of one event of a stream of ep, like [ScanChunk].
func ScanEvent(ep Endpoint, data, dst []byte) (Chunk, error) {
	if scan := ep.Traits().event; scan != nil {
		return scan(data, dst)
	}
	return ScanChunk(data, dst)
}

// ScanChunk reads the data of one event of a chat stream and appends the generated text to dst. It
// is as tolerant as [ParseUsage]. If data is not a JSON object, it returns an error and a chunk
// with what was read so far, without usage.
func ScanChunk(data, dst []byte) (Chunk, error) {
	r := chunkReaders.Get().(*chunkReader)
	r.lexer = lenient(data)
	r.chunk = Chunk{ChoicesEmpty: true, Text: dst}
	r.space()
	err := r.object(r.member)
	r.chunk.Framed = r.framed
	r.chunk.Error = r.wrong || r.message && r.chunk.ChoicesEmpty && !r.usage.present
	if err == nil && (r.usage.present || r.beside.present || r.chunk.Error || r.chunk.Finish) {
		r.chunk.Answer = r.answer(ChatCompletions)
	}
	chunk := r.chunk
	if r.model.Len() > len(`""`) {
		chunk.model = data[r.model.Start+1 : r.model.End-1]
	}
	*r = chunkReader{}
	chunkReaders.Put(r)
	return chunk, err
}

// chunkReaders saves an allocation per chunk.
var chunkReaders = sync.Pool{New: func() any { return new(chunkReader) }}

type chunkReader struct {
	answerReader
	chunk     Chunk
	reasoning bool // the delta's reasoning was already read

	choices, calls int64 // how many there were
}

func (r *chunkReader) member(name []byte) error {
	switch string(name) {
	case "choices":
		if r.peek() != '[' {
			return r.skip()
		}
		return r.array(func(int) error {
			r.chunk.ChoicesEmpty = false
			return r.choice()
		})
	}
	return r.answerReader.member(name)
}

func (r *chunkReader) choice() error {
	if r.peek() != '{' {
		return r.skip()
	}
	r.choices++
	start, rank := len(r.chunk.Text), 0
	return r.object(func(name []byte) error {
		switch string(name) {
		case "finish_reason":
			r.chunk.Finish = r.chunk.Finish || r.peek() == '"'
			return r.mishap(name)
		case "error":
			return r.mishap(name)
		case "usage":
			return r.usageMember(name)
		}
		form := formOf(string(name), r.peek())
		if form == 0 || form < rank {
			return r.skip()
		}
		if form > rank {
			r.chunk.Text, rank = r.chunk.Text[:start], form
		}
		if form == textForm {
			return r.text()
		}
		return r.delta()
	})
}

// The forms in which a choice may contain its text. Some vendors send two of them: Together sends
// text next to the delta, Perplexity the whole message so far. The highest one counts.
const (
	textForm = iota + 1
	messageForm
	deltaForm
)

func formOf(name string, first byte) int {
	switch {
	case name == "delta" && first == '{':
		return deltaForm
	case name == "message" && first == '{':
		return messageForm
	case name == "text" && first != 'n':
		return textForm
	}
	return 0
}

func (r *chunkReader) delta() error {
	if r.peek() != '{' {
		return r.skip()
	}
	r.reasoning = false
	return r.object(func(name []byte) error {
		switch string(name) {
		case "content", "refusal":
			return r.text()
		case "reasoning_content", "reasoning":
			// Some servers send the same text under both names.
			if r.reasoning || r.peek() == 'n' {
				return r.skip()
			}
			r.reasoning = true
			return r.text()
		case "tool_calls", "function_call", "audio":
			return r.call()
		}
		return r.skip()
	})
}

// text appends a string, or the strings in an array of parts, to the text.
func (r *chunkReader) text() error {
	switch r.peek() {
	case '"':
		start := r.pos + 1
		if err := r.string(); err != nil {
			return err
		}
		r.chunk.Text = appendUnquoted(r.chunk.Text, r.buf[start:r.pos-1])
		return nil
	case '[':
		return r.array(func(int) error { return r.text() })
	case '{':
		return r.object(func(name []byte) error {
			switch string(name) {
			case "text", "thinking", "content", "refusal":
				return r.text()
			}
			return r.skip()
		})
	}
	return r.skip()
}

// call reads the generated text of tool calls and of audio, at any depth.
func (r *chunkReader) call() error {
	switch r.peek() {
	case '[':
		return r.array(func(int) error { return r.call() })
	case '{':
		return r.object(func(name []byte) error {
			switch string(name) {
			case "arguments", "input":
				r.calls++
				return r.text()
			case "name", "transcript":
				return r.text()
			case "function", "custom":
				return r.call()
			}
			return r.skip()
		})
	}
	return r.skip()
}
