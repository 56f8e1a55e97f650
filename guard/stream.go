package guard

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/llmguard/llmguard/tokenizer"
	"github.com/llmguard/llmguard/wire"
)

// relay carries one event stream from the provider to the caller.
type relay struct {
	call   *Call
	out    http.ResponseWriter
	flush  func() error
	events wire.Events
	count  *tokenizer.Stream // visible output; nil when it cannot tell the bill
	text   []byte

	gone     bool // the caller takes no more bytes
	answer   wire.Answer
	usage    bool // answer holds usage
	finished bool // a finish_reason or [DONE] was seen
	failed   bool // the provider sent an error event
}

var readBuffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// relayStream hands the provider's events on as they come, byte for byte,
// drops the usage chunk the caller did not ask for, and settles the result.
func (c *Call) relayStream(ctx context.Context, w http.ResponseWriter, resp *http.Response, f Forwarding) error {
	r := &relay{call: c, out: w, flush: http.NewResponseController(w).Flush}
	if !hidesOutput(c.Target.Model) {
		r.count = tokenizer.NewStream(tokenizer.EncodingFor(c.Target.Model))
	}
	c.head(w, resp, f)
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
			return r.close(ctx, err)
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
	if wrote && !r.gone {
		r.gone = r.flush() != nil
	}
	return nil
}

func (r *relay) write(p []byte) {
	if !r.gone {
		_, err := r.out.Write(p)
		r.gone = err != nil
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
		r.finished = true
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
	r.finished = r.finished || chunk.Finish
	r.failed = r.failed || chunk.Error
	if chunk.HasUsage {
		r.answer, r.usage = chunk.Answer, chunk.Fault == ""
		r.call.Result.Fault = chunk.Fault
	}
	return !chunk.HasUsage || !chunk.ChoicesEmpty || r.call.Request.IncludeUsage
}

// close settles the stream after the provider's last byte or a failure, and
// tells the caller of a failure in a way no client takes for success.
func (r *relay) close(ctx context.Context, err error) error {
	rest := r.events.Rest()
	if len(rest) > 0 && r.inspect(rest) {
		r.write(rest)
	}
	c := r.call
	complete := err == io.EOF && (r.finished || r.failed)
	switch {
	case r.usage && (complete || r.finished):
		c.charge(r.answer)
	case complete && r.count != nil:
		c.chargeEstimate(NoUsage, int64(r.count.Count()))
	case complete:
		c.chargeHold(NoUsage)
	case ctx.Err() != nil:
		c.left(r.visible())
	default:
		c.chargeHold(Broken)
	}
	if ctx.Err() != nil || r.gone {
		return ErrGone
	}
	if complete || r.finished {
		return r.finish()
	}
	return r.fail(err)
}

func (r *relay) visible() int64 {
	if r.count == nil {
		return 0
	}
	return int64(r.count.Count())
}

// finish puts the exact cost in a trailer: the header was long gone.
func (r *relay) finish() error {
	r.call.trail(r.out.Header())
	if r.flush() != nil {
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
	frame := wire.BadGateway(text+". The answer above is incomplete", err).Frame(r.call.Request.Endpoint)
	if !r.events.AtBoundary() {
		r.write([]byte("\n\n"))
	}
	r.write(frame)
	if r.flush() != nil {
		return ErrGone
	}
	return nil
}
