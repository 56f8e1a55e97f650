package wire

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
	r := answerReaders.Get().(*answerReader)
	defer r.release()
	r.lexer, r.collects, r.said = lenient(data), true, dst
	err := r.object(r.member)
	chunk := Chunk{Text: r.said, ChoicesEmpty: !r.chosen, Finish: r.ended, Framed: r.framed}
	chunk.Error = r.wrong || r.message && chunk.ChoicesEmpty && !r.usage.present
	if err == nil && (r.usage.present || r.beside.present || chunk.Error || chunk.Finish) {
		chunk.Answer = r.answer(ChatCompletions)
	}
	if r.model.Len() > len(`""`) {
		chunk.model = data[r.model.Start+1 : r.model.End-1]
	}
	return chunk, err
}

// choices reads the choices of an answer or a chunk: their usage, how they end, and their text if it
// is collected.
func (r *answerReader) choices() error {
	if r.peek() != '[' {
		return r.skip()
	}
	return r.array(func(int) error {
		r.chosen = true
		return r.choice()
	})
}

func (r *answerReader) choice() error {
	if r.peek() != '{' {
		return r.skip()
	}
	r.answers++
	start, form := len(r.said), noRole
	return r.object(func(name []byte) error {
		is, first := choiceShapes[string(name)].is, r.peek()
		switch is {
		case endsIt:
			r.ended = r.ended || first == '"'
			return r.mishap(name)
		case failsIt:
			return r.mishap(name)
		case countsIt:
			return r.usageMember(name)
		case textForm, messageForm, deltaForm:
			if first == '{' || is == textForm && first != 'n' {
				break
			}
			return r.skip()
		default:
			return r.skip()
		}
		r.content = true
		if !r.collects || is < form {
			return r.skip()
		}
		if is > form {
			r.said, form = r.said[:start], is
		}
		if is == textForm {
			return r.text()
		}
		return r.messageText()
	})
}

func (r *answerReader) messageText() error {
	thought := false
	return r.object(func(name []byte) error {
		switch messageShapes[string(name)].is {
		case plainText:
			return r.text()
		case thoughtText:
			if thought || r.peek() == 'n' {
				return r.skip()
			}
			thought = true
			return r.text()
		case callParts:
			return r.call()
		}
		return r.skip()
	})
}

// text appends a string, or the strings in an array of parts, to the text.
func (r *answerReader) text() error {
	switch r.peek() {
	case '"':
		start := r.pos + 1
		if err := r.string(); err != nil {
			return err
		}
		r.said = appendUnquoted(r.said, r.buf[start:r.pos-1])
		return nil
	case '[':
		return r.array(func(int) error { return r.text() })
	case '{':
		return r.object(func(name []byte) error {
			if partShapes[string(name)].is == plainText {
				return r.text()
			}
			return r.skip()
		})
	}
	return r.skip()
}

// call reads the generated text of tool calls and of audio, at any depth.
func (r *answerReader) call() error {
	switch r.peek() {
	case '[':
		return r.array(func(int) error { return r.call() })
	case '{':
		return r.object(func(name []byte) error {
			switch callShapes[string(name)].is {
			case callContent:
				r.calls++
				return r.text()
			case plainText:
				return r.text()
			case callParts:
				return r.call()
			}
			return r.skip()
		})
	}
	return r.skip()
}
