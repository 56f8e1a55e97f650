package neutral

import (
	"bytes"
	"errors"

	"github.com/llmguard/llmguard/internal/wire"
)

// The kinds of events in addition to Text, Call, Reasoning and Redacted. Text, Reasoning, Refusal and
// Arguments carry a piece of text; Redacted has all its data as Text.
const (
	Begin     Kind = 100 + iota // Head: what is known of the answer so far; only Count may be before it
	Signature                   // Text, whole, of the reasoning before it, or of one that is not shown
	Refusal                     // Text
	Arguments                   // Text, of the call with number Call
	Count                       // Usage, cumulative; nil if it cannot be read
	Stop                        // Reason, and Text: the sequence that stopped it, or why it was filtered; may be nil
	Failure                     // Err, in place of the rest
	End                         // nothing follows
)

// Event is a piece of an answer. Whole answers and streams are both read as events, in the order of
// their content. Values are valid only during the call that passes the event.
type Event struct {
	Kind   Kind
	Text   Raw // a string
	Call   int // number of a call, from 0 in the order of their events; a Call has ID and Name, nil if unknown
	ID     Raw
	Name   Raw
	Head   Head
	Usage  *Usage
	Reason Reason
	Err    *wire.Error
}

// Head is what an answer says of itself; absent values are zero.
type Head struct {
	ID, Model, Tier Raw
	Created         int64 // Unix time in seconds
}

// Reason is why an answer ended.
type Reason string

// The reasons. Done is any other end, such as the end of a turn with tool calls.
const (
	Done     Reason = ""
	Sequence Reason = "sequence" // one of the request's Stop
	Length   Reason = "length"   // the limit of tokens
	Filtered Reason = "filtered" // the provider's content filter, or the model's refusal
	Failed   Reason = "failed"
)

// Reader translates what a provider sends to events.
type Reader interface {
	// Whole reads a whole answer. It returns an error if the document is none.
	Whole(document []byte) error
	// Chunk reads the data of one event of a stream. Anything but a chunk is dropped; the missing end
	// shows the failure.
	Chunk(data []byte)
	// Close ends a stream. If its answer is not complete, there is no event End.
	Close()
}

// Writer translates events to the caller's wire. After Failure or End it ignores what follows.
type Writer interface {
	Write(Event)
	// Answer returns the whole answer after End, else nil.
	Answer() []byte
	// Out has the events of a stream; whoever sends them removes them.
	Out() *bytes.Buffer
	// Full reports whether the answer is too long, which ends it.
	Full() bool
	// Held returns how many bytes of memory the writer of a stream holds, Out excepted.
	Held() int
}

// Whole translates a whole answer. It returns an error if the document is none, or is too long.
func Whole(document []byte, from Reader, to Writer) ([]byte, error) {
	err := from.Whole(document)
	switch {
	case err != nil:
		return nil, err
	case to.Full():
		return nil, errors.New("neutral: the answer is too long")
	case to.Answer() == nil:
		return nil, errors.New("neutral: the answer has no content")
	}
	return to.Answer(), nil
}

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

func (s *Stream) reset() {
	out := s.To.Out()
	if out.Cap() > keepBuffer {
		*out = bytes.Buffer{}
	}
	out.Reset()
}
