package responses

import (
	"errors"
	"io"

	"github.com/llmguard/llmguard/internal/wire"
)

// Answer translates a complete chat answer to a response. It returns an error if the input is
// not a chat answer.
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

// Events is a Responses stream that is read from a chat stream.
type Events struct {
	src    io.Reader
	events wire.Events
	c      *composer
	from   int // part of c.out that has been read
	err    error
}

// Stream translates a chat stream to a Responses stream as it arrives. It keeps the text of the
// answer, at most 6 MB, because the last events repeat it. A stream that ends or breaks off
// before its answer is complete ends without a last event.
func Stream(src io.Reader, r Reply) *Events {
	return &Events{src: src, c: newComposer(r, true)}
}

// Read reads from the source into p, which is then overwritten with the translation. It returns
// nothing until there is a complete event.
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

// Held returns how many bytes of memory the stream holds.
func (s *Events) Held() int {
	c := s.c
	return s.events.Held() + cap(c.out) + cap(c.items) + cap(c.open.parts) + cap(c.open.text) + cap(c.echo)
}

// keepBuffer is the largest capacity with which an empty buffer is kept.
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

// rest processes the end of the source, and completes the response if its finish_reason is
// known.
func (s *Events) rest() {
	if rest := s.events.Rest(); len(rest) > 0 {
		s.take(wire.EventData(rest))
	}
	if !s.c.over && s.c.finish != "" {
		s.c.complete()
	}
}

// take translates one event. Anything but a chunk is dropped; the missing end shows the
// failure.
func (s *Events) take(data []byte) {
	switch c := s.c; {
	case data == nil || c.over:
	case string(data) == wire.EndMark:
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
