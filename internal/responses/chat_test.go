package responses

import (
	"errors"
	"io"

	"github.com/llmguard/llmguard/internal/chat"
	"github.com/llmguard/llmguard/internal/neutral"
	"github.com/llmguard/llmguard/internal/wire"
)

// ChatRequest, Answer and Stream translate as calls do whose provider supports only chat completions.

func ChatRequest(r *wire.Request, o neutral.Options, limitField string) ([]byte, error) {
	o.Lacks = chat.Lacks
	q, err := Request(r, o)
	if err != nil {
		return nil, err
	}
	return chat.Body(q, neutral.Form{LimitField: limitField, Size: o.Size(r)})
}

func Answer(document []byte, r neutral.Reply) ([]byte, error) {
	w := NewWriter(r, false)
	return neutral.Whole(document, chat.NewReader(w), w)
}

func Stream(src io.Reader, r neutral.Reply) io.Reader {
	w := NewWriter(r, true)
	return &translated{src: src, stream: neutral.Stream{From: chat.NewReader(w), To: w}}
}

// translated reads a stream as a call's relay does: event by event, and then its end.
type translated struct {
	src    io.Reader
	stream neutral.Stream
	events wire.Events
	out    []byte
	err    error
}

func (t *translated) Read(p []byte) (int, error) {
	for len(t.out) == 0 {
		if t.err != nil {
			return 0, t.err
		}
		var buf [512]byte
		n, err := t.src.Read(buf[:])
		t.err = err
		t.feed(buf[:n])
	}
	n := copy(p, t.out)
	t.out = t.out[n:]
	return n, nil
}

func (t *translated) feed(p []byte) {
	if err := t.events.Feed(p); err != nil {
		t.err = err
		return
	}
	for event, ok := t.events.Next(); ok; event, ok = t.events.Next() {
		t.event(event)
	}
	if errors.Is(t.err, io.EOF) {
		t.event(t.events.Rest())
		t.out = append(t.out, t.stream.Close()...)
	}
}

func (t *translated) event(event []byte) {
	out, failed := t.stream.Event(event)
	t.out = append(t.out, out...)
	if failed != nil {
		t.err = io.EOF
	}
}
