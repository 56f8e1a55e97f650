package neutral

import (
	"bytes"

	"github.com/llmguard/llmguard/internal/wire"
)

// Stream translates a stream from the provider's form to the caller's as it arrives. A stream that
// ends or breaks off before its answer is complete ends without a last event.
type Stream struct {
	From Reader
	To   Writer
}

// keepBuffer is the largest capacity with which an empty buffer is kept.
const keepBuffer = 64 << 10

// Event translates one event of the provider's stream. The result has no, one or several complete events, and is
// valid until the next call. failed is the error, in the result too, with which an answer ends that is too long.
func (s *Stream) Event(event []byte) (out []byte, failed *wire.Error) {
	s.reset()
	if data := wire.EventData(event); data != nil {
		s.From.Chunk(data)
	}
	if s.To.Full() {
		failed = wire.BadGateway("The answer is longer than this proxy can translate", nil)
		s.To.Write(Event{Kind: Failure, Err: failed})
	}
	return s.To.Out().Bytes(), failed
}

// Close returns the events that follow the end of the provider's stream.
func (s *Stream) Close() []byte {
	s.reset()
	s.From.Close()
	return s.To.Out().Bytes()
}

// Held returns how many bytes of memory the stream holds.
func (s *Stream) Held() int { return s.To.Out().Cap() + s.To.Held() }

// reset empties the output.
func (s *Stream) reset() {
	out := s.To.Out()
	if out.Cap() > keepBuffer {
		*out = bytes.Buffer{}
	}
	out.Reset()
}
