package wire

import "bytes"

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

// iterations reads what every pass of a model used.
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
