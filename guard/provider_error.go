package guard

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/quota"
)

// An answer is judged before it is believed: readAnswer and its like report whether it is one.
// Whatever is not is handled here, by the status that the error names: an error with another HTTP
// status, a page, an empty body, an error as the first event of a stream.

// failure is an answer that is an error. It is returned as an error until relayError handles it.
type failure struct {
	answer []byte
	used   wire.Answer // its usage, if it has any
}

func (f *failure) Error() string { return "the provider answered with an error" }

// errShort means that an answer has no end although the connection ended well.
var errShort = errors.New("the answer ends too early")

// verdict returns a *failure for an answer that is an error, and errShort for half an answer.
func verdict(a wire.Answer, body []byte) error {
	switch {
	case a.Failed:
		return &failure{body, a}
	case a.Short:
		return errShort
	}
	return nil
}

// judge is the verdict on a whole answer.
func judge(p *Plan, body []byte) error {
	if p.Request.Creation != nil {
		return judgeCreated(p, p.readCreated(body), body)
	}
	return verdict(p.readAnswer(body), body)
}

// readAnswer reads a whole answer as its provider means it.
func (p *Plan) readAnswer(body []byte) wire.Answer {
	a, _ := wire.ParseUsage(p.sent.Endpoint, body)
	p.Target.Provider.Dialect.Usage(p.sent.Endpoint, body, &a)
	return a
}

// readCreated is readAnswer for a creation, whole or an event of its stream.
func (p *Plan) readCreated(data []byte) wire.Created {
	a := wire.ParseCreated(p.Request.Endpoint, data)
	p.Target.Provider.Dialect.Usage(p.Request.Endpoint, data, &a.Answer)
	return a
}

// refused relays an answer whose HTTP status is not that of an answer.
func (e *upstreamCall) refused(w http.ResponseWriter, resp *http.Response) error {
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorAnswer))
	if err != nil { // what there is of it cannot be relayed
		answer = []byte{}
	}
	return e.relayError(w, resp, &failure{answer: answer})
}

// relayError handles an answer that is an error, whatever its HTTP status: it is passed on,
// replaced, or a reason to wait or to try again.
func (e *upstreamCall) relayError(w http.ResponseWriter, resp *http.Response, f *failure) error {
	c := e.call
	answer := f.answer
	if wire.IsAnswer(resp.StatusCode) { // others are redacted as they are read
		answer = []byte(e.redact.Redact(string(answer[:min(len(answer), maxErrorAnswer)])))
	}
	refusal, standard := wire.ParseError(resp.StatusCode, answer)
	status := refusal.Status
	c.Result.Status = status
	e.judged(resp, status, answer)
	spent := wire.Spent(status, answer)
	if busy(status) && !spent {
		c.Result.Outcome, c.Result.RetryAfter = Busy, e.rest
		return &BusyError{Status: status, RetryAfter: e.rest, Header: resp.Header, Answer: answer}
	}
	c.bill.failed(refusal, f.used)
	switch {
	case e.gone():
		return ErrGone
	case spent:
		c.guard.log.Error("provider account has no credit", "provider", c.Plan.Target.Provider.ID, "status", status)
	case status >= 500 && e.repeats:
		return &FailureError{Answer: refusal}
	case status == http.StatusUnauthorized:
		c.guard.log.Error("provider rejected our API key", "provider", c.Plan.Target.Provider.ID, "status", status)
		rejected := wire.BadGateway("The provider rejected this proxy's API key. Ask the operator to check it", nil)
		rejected.Header = http.Header{"X-Should-Retry": {"false"}} // its pool is paused now
		return rejected
	}
	if !standard {
		return refusal
	}
	if c.Plan.translated() {
		refusal.Param = c.Plan.callersName(refusal.Param)
		answer = refusal.JSON()
	}
	c.Result.Refusal = refusal
	c.head(w, resp)
	retryHeaders(w.Header(), resp.Header, spent)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return written(w.Write(answer))
}

// judged passes what an error says about the provider's limits to the quota.
func (e *upstreamCall) judged(resp *http.Response, status int, answer []byte) {
	e.rest = max(e.rest, e.call.observed(e.caller, quota.Head{
		Status: status, Header: resp.Header, Sent: e.sending.time(), Body: answer, Again: status == resp.StatusCode,
	}))
}

// failed charges a call whose provider answered with an error: what the error reports to have
// used, else nothing. A provider may be set to charge the input of calls that it began.
func (b *bill) failed(e *wire.Error, a wire.Answer) {
	switch {
	case a.HasUsage && b.faultOf(a) == "":
		b.charge(a, shown{})
		b.result.Outcome = UpstreamError
	case b.plan.Target.Provider.ChargeFailed && (!idle(e.Status) || e.Code == "content_filter"): // Azure's
		b.chargeEstimate(UpstreamError, 0)
	case idle(e.Status):
		b.result.Outcome = Rejected
	default:
		b.result.Outcome = UpstreamError
	}
	b.reported(a)
}

// idle reports whether an answer with this status is not billed because the provider
// refused before any work. Before a 408 or any other 5xx it may have worked.
func idle(status int) bool {
	return busy(status) || status >= 300 && status < 500 && status != http.StatusRequestTimeout
}

func busy(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable ||
		status == wire.StatusOverloaded
}

// NotSent reports whether an error means that no byte of the request reached the provider.
func NotSent(err error) bool {
	var failed *providers.SendError
	return errors.As(err, &failed) && !failed.Sent
}
