package responses

import (
	"errors"
	"io"

	"github.com/llmguard/llmguard/internal/wire"
)

// Answer writes a whole answer of chat as a response. The error is that of what
// is no answer of chat.
func Answer(chat []byte, r Reply) ([]byte, error) {
	c := newComposer(r, false)
	if err := c.chunk.read(chat); err != nil {
		return nil, err
	}
	switch {
	case c.full:
		return nil, errFull
	case c.over, c.chunk.choices == nil:
		return nil, errors.New("responses: the answer has no choice")
	}
	return c.complete(), nil
}

var errFull = errors.New("responses: the answer is too long")

// Events is a stream of Responses, read from one of chat.
type Events struct {
	src    io.Reader
	events wire.Events
	c      *composer
	from   int // of c.out, what was read already
	err    error
}

// Stream returns a stream of Responses that is made from one of chat as it comes.
// It holds the text of the answer, no more than 6 MB of it, because the last
// events repeat it. A stream that ends before its answer is complete ends without
// a last event, as does one that breaks off.
func Stream(src io.Reader, r Reply) *Events {
	return &Events{src: src, c: newComposer(r, true)}
}

// Read reads from the source into p, which is overwritten by what came of it: nothing, as
// long as that is no whole event.
func (s *Events) Read(p []byte) (int, error) {
	if s.from == len(s.c.out) {
		if s.err != nil {
			return 0, s.err
		}
		s.c.out, s.from = s.c.out[:0], 0
		n, err := s.src.Read(p)
		s.err = err
		if n > 0 {
			s.feed(p[:n])
		}
		if errors.Is(err, io.EOF) {
			s.rest()
		}
	}
	n := copy(p, s.c.out[s.from:])
	s.from += n
	if s.from == len(s.c.out) && cap(s.c.out) > keepBuffer {
		s.c.out, s.from = nil, 0
	}
	return n, nil
}

// Held is how many bytes of memory it takes.
func (s *Events) Held() int {
	c := s.c
	return s.events.Held() + cap(c.out) + cap(c.items) + cap(c.open.parts) + cap(c.open.text) + cap(c.echo)
}

// keepBuffer is the capacity up to which an empty buffer is kept.
const keepBuffer = 64 << 10

func (s *Events) feed(p []byte) {
	if err := s.events.Feed(p); err != nil {
		s.err = err
		return
	}
	for {
		event, ok := s.events.Next()
		if !ok {
			return
		}
		s.take(wire.EventData(event))
	}
}

// rest takes what the source ended with, and completes the response if it is
// known how it ended.
func (s *Events) rest() {
	if rest := s.events.Rest(); len(rest) > 0 {
		s.take(wire.EventData(rest))
	}
	if !s.c.over && s.c.finish != "" {
		s.c.complete()
	}
}

// take translates one event. What is no chunk is left out: the missing end tells.
func (s *Events) take(data []byte) {
	switch c := s.c; {
	case data == nil || c.over:
	case string(data) == "[DONE]":
		if c.begun {
			c.complete()
		}
	default:
		_ = c.chunk.read(data)
		if c.full && !c.over {
			c.fail(wire.BadGateway("The answer is longer than this proxy can translate", nil))
			s.err = io.EOF
		}
	}
}
