package proxy

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
)

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
	if _, ok := errors.AsType[*wire.Error](err); ok {
		return nil, err
	}
	if err != nil {
		return nil, b.unreadable(x, err)
	}
	_ = x.control.SetReadDeadline(time.Time{})
	req.Form.Source = &x.body
	return req, nil
}
