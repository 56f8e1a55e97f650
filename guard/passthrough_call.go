package guard

import (
	"bytes"
	"errors"
	"io"
	"net/http"

	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// passage forwards an answer that could not be buffered. Its bill and its owner are read
// from its outline.
type passage struct {
	errand  *upstreamCall
	outline wire.Outline
	out     *providers.Writer
	noted   bool
}

// passThrough forwards an answer that could not be buffered: what was read of it, and the
// rest as it arrives. Its cost follows as a trailer.
func (e *upstreamCall) passThrough(w http.ResponseWriter, resp *http.Response, kept *spool.Buffer) error {
	c := e.call
	var first bytes.Buffer // of a small answer, which may be an error
	if kept.Size() < maxErrorAnswer {
		_, err := kept.WriteTo(&first)
		if err == nil {
			_, err = io.CopyN(&first, resp.Body, int64(maxErrorAnswer-first.Len()))
		}
		var failed *failure
		switch {
		case errors.Is(err, io.EOF) && errors.As(judge(c.Plan, first.Bytes()), &failed):
			return e.relayError(w, resp, failed)
		case err != nil && !errors.Is(err, io.EOF):
			return e.interrupted(err)
		}
	}
	c.dropBody(e.sent)
	c.head(w, resp)
	w.WriteHeader(resp.StatusCode)
	s := sound{out: w, flush: http.NewResponseController(w).Flush, lost: e.hangUp}
	p := passage{errand: e, out: e.redact.Writer(&s)}
	_, err := p.Write(first.Bytes())
	if err == nil && first.Len() == 0 {
		_, err = kept.WriteTo(&p)
	}
	kept.Close()
	if err == nil {
		buf := readBuffers.Get().(*[]byte)
		defer readBuffers.Put(buf)
		_, err = io.CopyBuffer(&p, struct{ io.Reader }{resp.Body}, *buf)
	}
	if err == nil {
		err = p.close()
	} else {
		e.broke()
	}
	if s.gone || e.gone() {
		return ErrGone
	}
	if err != nil {
		return wire.BadGateway("The provider's answer was interrupted", err)
	}
	c.Result.Ended = true
	c.trail(w.Header())
	return nil
}

// ownedWithin is how many bytes of an answer's outline are searched for its id before its
// end.
const ownedWithin = 4 << 10

// Write implements io.Writer. It records the owner of a response before its caller learns
// its id.
func (p *passage) Write(b []byte) (int, error) {
	_, _ = p.outline.Write(b)
	c := p.errand.call
	if !p.noted && c.Plan.Request.Endpoint == wire.Responses {
		a, _ := wire.ParseUsage(c.Plan.Request.Endpoint, p.outline.Bytes())
		a.HasUsage = false
		p.errand.note(a)
		p.noted = a.ID != "" || len(p.outline.Bytes()) > ownedWithin
	}
	return p.out.Write(b)
}

// close bills the whole answer by its outline, or by the hold if the outline is not
// sufficient: it does not contain the answer's text.
func (p *passage) close() error {
	e, doc := p.errand, p.outline.Bytes()
	c, ep := e.call, e.call.Plan.Request.Endpoint
	a := c.Plan.readAnswer(doc)
	fault := c.bill.faultOf(a)
	switch {
	case c.Plan.free, ep.Traits().Makes == wire.Pictures, c.Plan.Request.Creation == nil && a.HasUsage && fault == "":
		if e.settlePlain(doc) != nil { // it was forwarded, whatever it is
			e.broke()
		}
	default:
		c.Result.Model = a.Model
		c.Result.Tier = a.ServiceTier
		c.Result.Fault = fault
		c.bill.chargeHold(NoUsage)
		c.bill.reported(a)
		a.HasUsage = false
		e.note(a)
	}
	return p.out.Close()
}
