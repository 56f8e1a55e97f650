package neutral

import (
	"bytes"
	"errors"

	"github.com/llmguard/llmguard/internal/wire"
)

// The kinds of events in addition to Text and Call. Text, Reasoning, Refusal and Arguments carry a piece of
// text. A signature of reasoning would be one more kind.
const (
	Begin     Kind = 100 + iota // Head: what is known of the answer so far; an answer begins with it
	Reasoning                   // Text
	Refusal                     // Text
	Arguments                   // Text, of the call with number Call
	Count                       // Usage, cumulative; nil if it cannot be read
	Stop                        // Reason
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
	Model, Tier Raw
	Created     int64 // Unix time in seconds
}

// Reason is why an answer ended.
type Reason string

// The reasons. Any other end is Done, such as a stop sequence or the end of a turn with tool calls.
const (
	Done     Reason = ""
	Length   Reason = "length"   // the limit of tokens
	Filtered Reason = "filtered" // the provider's content filter
	Failed   Reason = "failed"
)

// Usage has the provider's numbers; whether they can be billed is decided elsewhere. Wires convert it
// to and from a type with the same fields and their own names.
type Usage struct {
	Input         Raw
	InputDetails  Raw // object of counts that are parts of Input
	Output        Raw
	OutputDetails Raw
	Total         Raw
	CacheRead     Raw // if InputDetails does not have it; what was written to a cache would be next to it
	More          Raw // object of what else the provider reports
}

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
	// Held returns how many bytes of memory the writer holds, Out excepted.
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
