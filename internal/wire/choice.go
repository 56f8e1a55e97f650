package wire

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

// messageText reads the text of a message or delta.
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
