package neutral

import (
	"bytes"
	"errors"
	"io"

	"github.com/llmguard/llmguard/internal/wire"
)

// Stream is a stream in the caller's form, translated from the provider's as it arrives. A stream that
// ends or breaks off before its answer is complete ends without a last event.
type Stream struct {
	Source io.Reader
	From   Reader
	To     Writer

	events wire.Events
	err    error
}

// keepBuffer is the largest capacity with which an empty buffer is kept.
const keepBuffer = 64 << 10

// Read reads from the source into p, which is then overwritten with the translation. It returns
// nothing until there is a complete event.
func (s *Stream) Read(p []byte) (int, error) {
	out := s.To.Out()
	if out.Len() == 0 {
		if s.err != nil {
			return 0, s.err
		}
		n, err := s.Source.Read(p)
		s.err = err
		if n > 0 {
			s.feed(p[:n])
		}
		if errors.Is(err, io.EOF) {
			s.close()
		}
	}
	n, _ := out.Read(p) // its error only says that there is nothing yet
	if out.Len() == 0 && out.Cap() > keepBuffer {
		*out = bytes.Buffer{}
	}
	return n, nil
}

// Held returns how many bytes of memory the stream holds.
func (s *Stream) Held() int { return s.events.Held() + s.To.Out().Cap() + s.To.Held() }

func (s *Stream) feed(p []byte) {
	if err := s.events.Feed(p); err != nil {
		s.err = err
		return
	}
	for {
		event, ok := s.events.Next()
		if !ok || s.To.Full() {
			return
		}
		s.take(event)
	}
}

// close processes the end of the source.
func (s *Stream) close() {
	s.take(s.events.Rest())
	s.From.Close()
}

func (s *Stream) take(event []byte) {
	if data := wire.EventData(event); data != nil {
		s.From.Chunk(data)
	}
	if s.To.Full() {
		s.To.Write(Event{Kind: Failure, Err: wire.BadGateway("The answer is longer than this proxy can translate", nil)})
		s.err = io.EOF
	}
}
