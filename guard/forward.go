package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/tracing"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/quota"
)

// maxErrorAnswer bounds what is relayed of a provider's error.
const maxErrorAnswer = 64 << 10

// Forwarding holds what Forward needs besides the plan.
type Forwarding struct {
	Header http.Header // the caller's; only an allow-list is forwarded
	Query  string
	// Permit is called right before the first byte is written; its error stops the call unsent.
	Permit func() error
	// Repeats says that the call will be repeated if the provider fails: a complete 5xx
	// answer is then returned as *FailureError and not relayed.
	Repeats bool
	// Sent is called once the request has been sent and its body is no longer needed.
	// It may be nil.
	Sent func()
}

// BusyError is a provider's 429, 503 or 529: nothing was done and nothing is charged.
// Answer is the body of its answer.
type BusyError struct {
	Status     int
	RetryAfter time.Duration // 0 if the provider did not say
	Header     http.Header
	Answer     []byte
}

func (e *BusyError) Error() string { return fmt.Sprintf("the provider answered %d", e.Status) }

// FailureError is a provider's complete 5xx answer that was not relayed; see
// Forwarding.Repeats. The call is charged as if it had been.
type FailureError struct{ Answer *wire.Error }

func (e *FailureError) Error() string {
	return fmt.Sprintf("the provider answered %d", e.Answer.Status)
}

// ErrCancelled is the cause of a context whose call was cancelled on purpose. The
// provider's answer is then not awaited.
var ErrCancelled = errors.New("the call was cancelled")

// ErrRepeated is the ErrCancelled of a call whose job runs again.
var ErrRepeated = fmt.Errorf("%w, and its job runs again", ErrCancelled)

// ErrGone reports that the caller left before the end of the answer.
var ErrGone = errors.New("the caller left")

// Forward sends the request and relays the answer to w. Result is final afterwards. With a
// *BusyError, the error of Permit (nothing was sent) or a *wire.Error, nothing was written
// to w. ErrGone means the caller left, and what was written may be incomplete. A stream
// that the provider broke off, or that was cut off because its hold could not grow, ends in
// an error event and returns nil; Result shows which. An answer that is read to its end
// without a caller is still written to w, which may store it.
//
// The end of ctx means the caller left. Whether the provider is then cancelled or read to
// its end depends on the org's policy and on whether the bill can be computed from what has
// arrived.
func (c *Call) Forward(ctx context.Context, w http.ResponseWriter, f Forwarding) error {
	start := time.Now()
	ctx, span := c.traceCall(ctx)
	defer func() {
		c.Result.Took = time.Since(start)
		c.guard.metrics.ended(c)
		c.tellUnderpriced()
		c.tellFaults()
		c.traceEnd(span, start)
	}()
	e := &upstreamCall{call: c, caller: ctx, behind: behind{start: start}, repeats: f.Repeats, sent: f.Sent}
	e.closes = c.Plan.Request.Endpoint == wire.Messages && len(f.Header[wire.HeaderClaudeSession]) > 0
	e.upstream, e.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	defer e.cancel(nil)
	defer context.AfterFunc(ctx, e.hangUp)()
	if e.gone() { // the call would be sent while the func starts
		e.hangUp()
	}

	e.adding()
	defer e.uncounted()
	c.watch.sends(start)
	e.sending.permit = f.Permit
	body := c.Plan.sent.Rewrite(c.Plan.edits...)
	resp, err := c.Plan.Target.Provider.Send(e.upstream, providers.Request{
		Path: c.Plan.sent.Endpoint.Path(), Model: c.Plan.Target.Model, Query: f.Query, Header: f.Header,
		Type: body.Type(), Body: body.Reader, Length: body.Len(), Permit: e.sending.begins, Trace: tracing.Header(ctx),
	})
	c.watch.arrives()
	if err != nil {
		return e.sendFailed(err)
	}
	e.redact = providers.RedactorOf(resp) // it is with the body, which is wrapped now
	resp.Body = &timedBody{ReadCloser: resp.Body, watch: &c.watch}
	defer resp.Body.Close()
	c.Result.FirstByte = time.Since(start)
	c.Result.Status, c.Result.UpstreamID = resp.StatusCode, resp.Header.Get("X-Request-Id")
	c.bill.told = wire.ParseCost(resp.Header)
	e.rest = c.observed(ctx, quota.Head{Status: resp.StatusCode, Header: resp.Header, Sent: e.sending.time()})
	switch {
	case !wire.IsAnswer(resp.StatusCode):
		return e.refused(w, resp)
	case c.isStream(resp):
		return e.relayStream(w, resp)
	case c.Plan.Request.Endpoint.Traits().Makes == wire.Sound:
		return e.relaySpeech(w, resp)
	}
	if err := e.cover(); err != nil {
		return err
	}
	return e.relayPlain(w, resp)
}

// observed passes what the response headers, and then an error's body, say about the provider's limits
// to the quota. The provider is to be left alone for the returned time.
func (c *Call) observed(ctx context.Context, head quota.Head) time.Duration {
	if c.guard.Grants.quota == nil {
		wait, _ := wire.ParseRetryAfter(head.Header, time.Now())
		return min(wait, quota.DefaultMaxPause)
	}
	defer c.watch.redis(time.Now())
	head.Model, head.Name, head.Within = c.Plan.Target.Model, c.Plan.Request.Model, c.guard.deadline
	rest, err := c.guard.Grants.quota.Observe(context.WithoutCancel(ctx), c.Plan.Target.Pool, head)
	if err != nil {
		c.guard.log.Warn("provider's rate limits not shared with other processes", "pool", c.Plan.Target.Pool, "err", err)
	}
	return rest
}

// upstreamCall is one request in progress between its caller and the provider.
type upstreamCall struct {
	call     *Call
	caller   context.Context // ends when the caller leaves
	upstream context.Context
	cancel   context.CancelCauseFunc
	behind   behind
	redact   providers.Redactor // of the provider's errors
	addition addition
	noted    bool // the chat completion to be stored was listed
	sending  sending
	repeats  bool          // Forwarding.Repeats
	closes   bool          // the caller is Claude Code: see wire.Error.Closing
	sent     func()        // Forwarding.Sent
	used     *wire.Answer  // has the provider's usage, as it is billed; nil until it is known
	rest     time.Duration // for which the provider must be left alone, if it refused
}

// hangUp handles a caller that has left: it cancels the provider unless the answer must be
// read to its end.
func (e *upstreamCall) hangUp() {
	if e.call.cancels(e.caller) {
		e.depart()
	}
}

// left reports whether the provider was cancelled because the caller left.
func (e *upstreamCall) left() bool { return errors.Is(context.Cause(e.upstream), ErrGone) }

func (e *upstreamCall) gone() bool { return e.caller.Err() != nil }

// broke charges a call that ended before anything of its answer was seen: what the provider may
// have generated since the request was sent.
func (e *upstreamCall) broke() {
	b := &e.call.bill
	switch {
	case e.left():
		b.left(0, e.generated())
	case b.paced():
		b.chargeEstimate(Broken, e.generated())
	default:
		b.chargeHold(Broken)
	}
	b.reported(wire.Answer{})
}

// generated bounds the output that the provider has generated since the request was sent.
func (e *upstreamCall) generated() int64 { return e.call.generated(time.Since(e.sending.time())) }

// cancels reports whether the provider is cancelled when the caller leaves.
func (c *Call) cancels(ctx context.Context) bool {
	switch {
	case errors.Is(context.Cause(ctx), ErrCancelled), c.Plan.Caller.Org.OnDisconnect == Cancel:
		return true
	case c.Plan.Caller.Org.OnDisconnect == Finish:
		return false
	default:
		return c.Plan.Request.Stream && (c.bill.bounded() || c.countsEarly()) && c.Plan.unread == 0
	}
}

// countsEarly reports whether the first event of a stream counts the input, so that only the output of a stream that
// is cut must be bounded.
func (c *Call) countsEarly() bool {
	return c.Plan.sent.Endpoint == wire.Messages && len(c.Plan.Request.BuiltinTools)+len(c.Plan.passes) == 0
}

// sendFailed charges according to how far the request got.
func (e *upstreamCall) sendFailed(err error) error {
	var failed *providers.SendError
	sent := !errors.As(err, &failed) || failed.Sent
	switch {
	case !sent && failed.Refused:
		return err
	case !sent && e.gone():
		return ErrGone
	case !sent:
		return wire.BadGateway("The provider cannot be reached. Nothing was charged", err)
	}
	e.broke()
	if e.gone() {
		return ErrGone
	}
	return wire.BadGateway("The provider closed the connection before answering. The call may have been billed", err)
}

// interrupted charges a call whose answer broke off before anything of it was written.
func (e *upstreamCall) interrupted(err error) error {
	e.broke()
	if e.gone() {
		return ErrGone
	}
	return wire.BadGateway("The provider's answer was interrupted. The call may have been billed", err)
}

// relayPlain reads a whole answer, prices it, and forwards it unchanged.
func (e *upstreamCall) relayPlain(w http.ResponseWriter, resp *http.Response) error {
	c := e.call
	kept := c.guard.spool.Buffer(e.upstream, c.Plan.Caller.Org.ID, c.guard.answerWait)
	defer kept.Close()
	err := e.receive(resp, &kept)
	if public, ok := errors.AsType[*wire.Error](err); ok { // after it was charged
		return public
	}
	if spool.NoRoom(err) && !c.Plan.translated() {
		return e.passThrough(w, resp, &kept)
	}
	// it cannot be translated without reading it, and a repetition would be paid for
	// again
	if spool.NoRoom(err) {
		c.bill.chargeHold(NoUsage)
		c.bill.reported(wire.Answer{})
		return wire.Gone("answer_not_kept", "The call was completed and charged, but this proxy could not buffer its answer")
	}
	if failed, ok := errors.AsType[*failure](err); ok {
		return e.relayError(w, resp, failed)
	}
	if err != nil {
		return e.interrupted(err)
	}
	if c.Result.Cost > c.Hold.Max.Cost { // the caller's next call must find the debt
		c.Result.Took = time.Since(e.behind.start)
		c.EndNow(e.upstream)
	}
	c.dropBody(e.sent)
	c.head(w, resp)
	if said := resp.Header["Content-Length"]; len(said) == 1 && resp.ContentLength == kept.Size() {
		w.Header()["Content-Length"] = said
	} else {
		w.Header().Set("Content-Length", strconv.FormatInt(kept.Size(), 10))
	}
	w.WriteHeader(resp.StatusCode)
	_, err = kept.WriteTo(w)
	c.Result.Relayed = err == nil
	if err := written(0, err); err != nil || e.gone() {
		return cmp.Or(err, ErrGone)
	}
	return nil
}

// settlePlain bills a whole answer by its usage. Free calls have no usage. The error is that of
// verdict, with nothing charged.
func (e *upstreamCall) settlePlain(body []byte) error {
	c := e.call
	if c.Plan.Request.Creation != nil {
		return e.settleCreated(body)
	}
	answer := c.Plan.readAnswer(body)
	if err := verdict(answer, body); err != nil {
		return err
	}
	c.Result.Ended = answer.Status == "" || answer.Status == "completed" || answer.Status == "incomplete"
	if c.Plan.free {
		answer = wire.Answer{HasUsage: true}
	}
	if fault := c.bill.faultOf(answer); answer.HasUsage && fault == "" {
		e.used = &answer
		c.bill.charge(answer, c.bill.seenPlain(answer.Usage, body))
	} else { // absurd usage counts as none, so that it bills neither too little nor too much
		c.bill.chargeText(answer, body)
		c.Result.Fault = fault
		answer.HasUsage = false
	}
	c.bill.reported(answer)
	if !c.Plan.translated() {
		e.note(answer)
	}
	return nil
}

// written converts a failed write into ErrGone.
func written(_ int, err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return nil
}

// head sets the answer's headers: the provider's and our own.
func (c *Call) head(w http.ResponseWriter, resp *http.Response) {
	providers.CopyHeaders(w.Header(), resp.Header)
	c.tell(w.Header())
}

// retryHeaders forwards a provider's retry advice, which only makes sense with its own
// error, and advises clients not to retry if waiting does not help or takes longer than
// they wait (docs/errors.md, Retry advice).
func retryHeaders(dst, src http.Header, spent bool) {
	if spent {
		dst.Set("X-Should-Retry", "false")
		return
	}
	providers.CopyAdvice(dst, src)
	if wait, ok := wire.ParseRetryAfter(src, time.Now()); ok && wait > wire.MaxRetryAfter {
		dst.Del("Retry-After-Ms")
		wire.SetRetryAfter(dst, wait)
	}
}

// sending notes when the first byte of a request was written: connecting may take a while,
// and a request written after a refusal must not seem older than it.
type sending struct {
	permit func() error // Forwarding.Permit
	at     atomic.Pointer[time.Time]
}

// begins is called right before the first byte is written.
func (s *sending) begins() error {
	if s.permit != nil {
		if err := s.permit(); err != nil {
			return err
		}
	}
	now := time.Now()
	s.at.Store(&now)
	return nil
}

// time returns when the request was written, once it has been answered.
func (s *sending) time() time.Time {
	if at := s.at.Load(); at != nil {
		return *at
	}
	return time.Now()
}
