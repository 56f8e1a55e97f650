package wire

// Generated is the generated part of a complete answer.
type Generated struct {
	Text    []byte // as in [Chunk], of all choices
	Answers int64  // number of choices
	Calls   int64  // number of tool calls
	Exact   bool   // all of the text was generated
}

// ScanGenerated reads the text of a complete answer of ep. It is as tolerant as [ParseUsage]. It
// returns false if ep generates no text, or the answer is not a JSON object.
func ScanGenerated(ep Endpoint, answer []byte) (Generated, bool) {
	if scan := ep.Traits().generated; scan != nil {
		return scan(answer)
	}
	return Generated{}, false
}

// scanChoices takes the text of choices.
func scanChoices(answer []byte) (Generated, bool) {
	r := answerReader{lexer: lenient(answer), collects: true}
	err := r.documents(r.member)
	return Generated{Text: r.said, Answers: r.answers, Calls: r.calls, Exact: true}, err == nil
}

// ScanWritten reads the text of an answer that a model certainly generated as output tokens: for a
// response not its summaries, encrypted reasoning, and results of tools.
func ScanWritten(ep Endpoint, answer []byte) ([]byte, bool) {
	if scan := ep.Traits().written; scan != nil {
		return scan(answer)
	}
	g, ok := ScanGenerated(ep, answer)
	return g.Text, ok
}

// scanWritten takes the text of a response's items.
func scanWritten(answer []byte) ([]byte, bool) {
	r := answerReader{lexer: lenient(answer), collects: true}
	err := r.object(func(name []byte) error {
		if string(name) == "output" {
			return r.written()
		}
		return r.skip()
	})
	return r.said, err == nil
}

// writtenMembers are the members of a response's items that contain generated text.
var writtenMembers = map[string]bool{"content": true, "text": true, "refusal": true, "arguments": true, "input": true}

func (r *answerReader) written() error {
	switch r.peek() {
	case '"':
		return r.text()
	case '[':
		return r.array(func(int) error { return r.written() })
	case '{':
		return r.object(func(name []byte) error {
			if writtenMembers[string(name)] {
				return r.written()
			}
			return r.skip()
		})
	}
	return r.skip()
}

// unbilled are the strings in a response's items that no model generates.
var unbilled = map[string]bool{"id": true, "type": true, "status": true, "role": true, "call_id": true}

// scanResponse takes all strings of the output except those that describe an item, so that the
// output of future item types is included.
func scanResponse(answer []byte) (Generated, bool) {
	r := answerReader{lexer: lenient(answer), collects: true}
	g := Generated{}
	var all func() error
	all = func() error {
		switch r.peek() {
		case '"':
			return r.text()
		case '[':
			return r.array(func(int) error { return all() })
		case '{':
			return r.object(func(name []byte) error {
				if unbilled[string(name)] {
					return r.skip()
				}
				if string(name) == "arguments" || string(name) == "input" {
					g.Calls++
				}
				return all()
			})
		}
		return r.skip()
	}
	err := r.object(func(name []byte) error {
		if string(name) == "output" && r.peek() == '[' {
			g.Answers = 1
			return all()
		}
		return r.skip()
	})
	g.Text = r.said
	return g, err == nil
}
