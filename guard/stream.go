package guard

import (
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/llmguard/llmguard/tokenizer"
	"github.com/llmguard/llmguard/wire"
)

// relay carries one event stream from the provider to the caller.
type relay struct {
	errand *errand
	call   *Call
	out    http.ResponseWriter
	flush  func() error
	events wire.Events
	count  *tokenizer.Stream // visible output; nil when it cannot tell the bill
	text   []byte

	gone   bool // the caller takes no more bytes
	answer wire.Answer
	usage  bool  // answer holds usage
	ends   int64 // chunks with a finish_reason; each choice has one
	done   bool  // [DONE] was seen
	failed bool  // the provider sent an error event
}

// whole reports whether all choices have come to their end.
func (r *relay) whole() bool { return r.done || r.ends >= r.call.Request.N }

var readBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// relayStream hands the provider's events on as they come, byte for byte,
// drops the usage chunk the caller did not ask for, and settles the result.
func (e *errand) relayStream(w http.ResponseWriter, resp *http.Response) error {
	c := e.call
	r := &relay{errand: e, call: c, out: w, flush: http.NewResponseController(w).Flush}
	if !c.hidesOutput() {
		r.count = tokenizer.NewStream(tokenizer.EncodingFor(c.Target.Model))
	}
	c.head(w, resp)
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(resp.StatusCode)

	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	for {
		n, err := resp.Body.Read(*buf)
		if n > 0 {
			if tooLong := r.take((*buf)[:n]); tooLong != nil {
				err = tooLong
			}
		}
		if err != nil {
			return r.close(err)
		}
	}
}

// take passes on the events completed by p. The error is that of an event
// without end.
func (r *relay) take(p []byte) error {
	if err := r.events.Feed(p); err != nil {
		return err
	}
	wrote := false
	for {
		event, ok := r.events.Next()
		if !ok {
			break
		}
		if r.inspect(event) {
			r.write(event)
			wrote = true
		}
	}
	if wrote && !r.gone && r.flush() != nil {
		r.lost()
	}
	return nil
}

// lost notes that the caller takes no more bytes, which is as good as gone.
func (r *relay) lost() {
	r.gone = true
	r.errand.hangUp()
}

func (r *relay) write(p []byte) {
	if r.gone {
		return
	}
	if _, err := r.out.Write(p); err != nil {
		r.lost()
	}
}

// inspect reads what an event says of the bill and reports whether the caller
// gets it.
func (r *relay) inspect(event []byte) bool {
	data := wire.EventData(event)
	if data == nil {
		return true
	}
	if string(data) == "[DONE]" {
		r.done = true
		return true
	}
	chunk, err := wire.ScanChunk(data, r.text[:0])
	if err != nil {
		return true // not ours to judge; the missing usage will tell
	}
	r.text = chunk.Text
	if r.count != nil && len(chunk.Text) > 0 {
		r.count.Write(chunk.Text)
	}
	if chunk.Finish {
		r.ends++
	}
	r.failed = r.failed || chunk.Error
	if !chunk.HasUsage && chunk.Fault == "" {
		return true
	}
	fault := r.call.faultOf(chunk.Answer)
	r.answer, r.usage = chunk.Answer, chunk.HasUsage && fault == ""
	r.call.Result.Fault = fault
	return chunk.Error || !chunk.ChoicesEmpty || r.call.Request.IncludeUsage
}

// close settles the stream after the provider's last byte or a failure, and
// tells the caller of a failure in a way no client takes for success.
func (r *relay) close(err error) error {
	rest, ended := r.events.Rest(), errors.Is(err, io.EOF)
	pass := len(rest) > 0 && ended && r.inspect(rest)
	c := r.call
	complete := ended && (r.whole() || r.failed)
	switch {
	case r.usage && (complete || r.whole()):
		c.charge(r.answer)
	case complete && r.count != nil:
		c.chargeEstimate(NoUsage, r.visible())
	case complete:
		c.chargeHold(NoUsage)
	default:
		r.errand.broke(r.visible())
	}
	if r.errand.gone() || r.gone {
		return ErrGone
	}
	if !complete && !r.whole() {
		return r.fail(err) // half an event would spoil the error's frame: it is dropped
	}
	if pass {
		r.write(rest)
		r.write([]byte("\n\n")) // without it most clients drop the event
	}
	return r.finish()
}

// visible is how many tokens of output the caller was sent, 0 when that does
// not tell the bill. Tokenizers that are not public count more than ours.
func (r *relay) visible() int64 {
	if r.count == nil {
		return 0
	}
	_, most := tokenizer.Multiplier(r.call.Target.Model)
	return (int64(r.count.Count())*int64(most) + 999) / 1000
}

// finish puts the exact cost in a trailer: the header was long gone.
func (r *relay) finish() error {
	r.call.trail(r.out.Header())
	if r.gone || r.flush() != nil {
		return ErrGone
	}
	return nil
}

// fail ends the stream with an error frame (contract R14, R15).
func (r *relay) fail(err error) error {
	text := "The provider's stream ended before the answer was complete"
	if !errors.Is(err, io.EOF) {
		text = "The provider's stream broke off"
	}
	r.write(wire.BadGateway(text+". The answer above is incomplete", err).Frame(r.call.Request.Endpoint))
	if r.gone || r.flush() != nil {
		return ErrGone
	}
	return nil
}
