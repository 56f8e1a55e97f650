package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
)

// roomPatience is how long a call waits for memory for its bytes.
const roomPatience = 5 * time.Second

// bodyReader reads request bodies within their bounds.
type bodyReader struct {
	opts        *Options
	connections *connections
	roomWait    time.Duration // how long a call waits for memory for its bytes
}

// readBody reads the whole body within the limits of size and time. Its space is reserved before it
// is read. A large body is on disk until it is complete, and in memory from then until it has been
// sent.
func (b *bodyReader) readBody(x *request, r *http.Request) ([]byte, error) {
	return b.readUpTo(x, r, b.opts.MaxBody)
}

// maxRecord is the size of the largest body of requests about records, such as runs and holds.
const maxRecord = 64 << 10

// readRecord is readBody for the routes whose bodies are small records.
func (b *bodyReader) readRecord(x *request, r *http.Request) ([]byte, error) {
	return b.readUpTo(x, r, min(maxRecord, b.opts.MaxBody))
}

// decodeRecord reads a body that is exactly one JSON object into v, without members that v does not have. expected says
// what the object is.
func decodeRecord(body []byte, v any, expected string) error {
	in := json.NewDecoder(bytes.NewReader(body))
	in.DisallowUnknownFields()
	err := in.Decode(v)
	if err == nil && in.Decode(&struct{}{}) != io.EOF {
		err = errors.New("more than one value")
	}
	if err == nil {
		return nil
	}
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return wire.BadRequest(strings.Trim(name, `"`), "unknown_parameter", "Unknown parameter: %s", shorten(name))
	}
	return wire.BadRequest("", "invalid_json", "The body must be one JSON object %s", expected)
}

func (b *bodyReader) readUpTo(x *request, r *http.Request, most int64) ([]byte, error) {
	if err := b.fill(x, r, most); err != nil {
		return nil, err
	}
	body, err := x.body.Priced()
	if err != nil {
		return nil, b.unreadable(x, err)
	}
	x.body.DropFile()
	return body, nil
}

// fill reads the body into x.body.
func (b *bodyReader) fill(x *request, r *http.Request, most int64) error {
	in, err := b.boundedBody(x, r, most)
	if err != nil {
		return err
	}
	x.body = b.opts.Spool.Buffer(r.Context(), x.caller.Org.ID, b.roomWait)
	err = x.body.Expect(r.ContentLength)
	b.startReading(x)
	if err == nil {
		began := time.Now()
		err = x.body.Fill(in)
		x.received = time.Since(began)
	}
	if err != nil {
		return b.unreadable(x, err)
	}
	_ = x.control.SetReadDeadline(time.Time{})
	return nil
}

func (b *bodyReader) boundedBody(x *request, r *http.Request, most int64) (io.Reader, error) {
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, wire.UnsupportedEncoding(enc)
	}
	if r.ContentLength > most {
		return nil, wire.TooLarge(most)
	}
	if r.ContentLength >= 0 {
		return r.Body, nil // net/http ends it there
	}
	return http.MaxBytesReader(x.ResponseWriter, r.Body, most), nil
}

func (b *bodyReader) startReading(x *request) {
	_ = x.control.SetReadDeadline(time.Now().Add(b.opts.ReadBody)) // not supported by test recorders
}

// unreadable returns the answer to a body that cannot be read to its end.
func (b *bodyReader) unreadable(x *request, err error) error {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return wire.TooLarge(large.Limit)
	}
	if spool.NoRoom(err) {
		return noRoom(err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		x.slow = true
		return &wire.Error{
			Status: http.StatusRequestTimeout, Type: "invalid_request_error", Code: "body_too_slow",
			Message: fmt.Sprintf("The request body did not arrive within %s", b.opts.ReadBody),
			Header:  http.Header{"Connection": {"close"}}, Err: err,
		}
	}
	return &wire.Error{
		Status: http.StatusBadRequest, Type: "invalid_request_error", Code: "body_unreadable",
		Message: "The request body ended early or could not be read", Header: http.Header{"Connection": {"close"}}, Err: err,
	}
}

// roomAgain is when a caller may retry if there was no space for its bytes.
const roomAgain = 2 * time.Second

// noRoom returns the answer to a call whose bytes cannot be buffered.
func noRoom(err error) *wire.Error {
	var full *spool.FullError
	if !errors.As(err, &full) {
		return wire.ServiceUnavailable("The server could not buffer this call (its temporary directory is full or not "+
			"writable)", roomAgain, err)
	}
	return wire.ServiceUnavailable(fmt.Sprintf("Calls in progress have used up %s of this proxy, or your organization's "+
		"share of it. Retry in a moment", full.Setting), roomAgain, err)
}

// dropBody releases a request that was sent or queued.
func (x *request) dropBody() {
	if x.plan != nil {
		x.plan.Request.Body = nil
	}
	x.body.Close()
}

// release returns the space that the call's bytes took.
func (x *request) release() {
	x.body.Close()
	x.answer.Close()
	x.keep.close()
}

// await prepares a buffer for a future answer.
func (x *request) await(ctx context.Context) {
	x.answer = x.server.opts.Spool.Buffer(ctx, x.caller.Org.ID, x.server.bodies.roomWait)
}

// whole writes a complete answer after its header. It is buffered, so that a slow caller may take
// its time.
func (x *request) whole(status int, body []byte) error {
	x.await(x.request.Context())
	if err := x.answer.Replace(body); err != nil {
		return noRoom(err)
	}
	x.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.WriteHeader(status)
	if _, err := x.answer.WriteTo(x); err != nil {
		return guard.ErrGone
	}
	return nil
}

// form serves an endpoint whose requests carry files. The body goes to an unnamed file while it is
// read, and from there to the provider once the call is held and has quota. A slow upload therefore
// holds neither, and the process needs the same memory for every size. Such a call does not wait in
// the queue, because that would store its files in Redis.
func (c *callHandler) form(ep wire.Endpoint) func(*request, *http.Request, string) error {
	return func(x *request, r *http.Request, _ string) error {
		wish, err := parseWish(r.Header)
		if err != nil {
			return err
		}
		if wish.async {
			return wire.BadRequest("Prefer", "form_not_queued",
				"A call with files cannot run as a job. Remove Prefer: respond-async")
		}
		req, err := c.bodies.readForm(x, r, ep)
		if err != nil {
			return err
		}
		if err := x.label(r.Context(), guard.LabelsIn(r.Header, req)); err != nil {
			return err
		}
		plan, err := c.opts.Guard.Plans.Prepare(x.caller, req)
		if err != nil {
			return err
		}
		x.plan = plan
		if err := x.countFree(r.Context()); err != nil {
			return err
		}
		return c.once(x, r, plan, wish)
	}
}

// readForm reads a form within the limits of size and time.
func (b *bodyReader) readForm(x *request, r *http.Request, ep wire.Endpoint) (*wire.Request, error) {
	body, err := b.boundedBody(x, r, b.opts.MaxBody)
	if err != nil {
		return nil, err
	}
	x.body = b.opts.Spool.Buffer(r.Context(), x.caller.Org.ID, b.roomWait)
	if err := x.body.Expect(r.ContentLength); err != nil {
		return nil, b.unreadable(x, err)
	}
	b.startReading(x)
	began := time.Now()
	req, err := wire.ScanForm(ep, x.deployment, r.Header.Get("Content-Type"), io.TeeReader(body, &x.body))
	x.received = time.Since(began)
	if err != nil {
		return nil, b.brokenUpload(x, err)
	}
	_ = x.control.SetReadDeadline(time.Time{})
	req.Form.Source = &x.body
	return req, nil
}
