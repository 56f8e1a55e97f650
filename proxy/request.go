package proxy

import (
	"bufio"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/idempotency"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/tracing"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// request is one request and its answer. It is the ResponseWriter that handlers write to, and it
// writes the access record. Only report may be called by several goroutines.
type request struct {
	http.ResponseWriter
	server  *Server
	control http.ResponseController
	request *http.Request
	id      string
	ip      netip.Addr
	from    string // ip as text
	start   time.Time
	arrived time.Time // when a call that may wait was read; its caller's patience starts here
	caller  guard.Caller
	scopes  []string // of the key; empty means all
	past    bool     // the run of the key has ended: only its results can be read
	route   string
	priced  bool // whether the route is
	arrival guard.Arrival
	wire    wire.Endpoint // whose API the caller speaks: Messages, or "" for OpenAI's
	// deployment is the model that an Azure path names, or "".
	deployment string

	body      spool.Buffer // of the request
	answer    spool.Buffer // the part that is buffered here
	status    int          // 0 until the header is written to a caller who is connected
	begun     bool         // the header is written, whether or not the caller is connected
	bytes     int64
	sized     time.Time        // when the header of an answer of known length was written
	deadline  time.Time        // of the current write
	plan      *guard.Plan      // nil until the call has a price
	asked     planRecord       // what remains of the plan of a waiting call
	call      *guard.Call      // of a live call
	key       *idempotency.Key // of an Idempotency-Key, until it is decided what it leads to
	holdKey   *idempotency.Key // of the Idempotency-Key of a new hold
	keep      *recording       // of the answer, for that key; nil if it is not stored
	stays     bool             // the job continues or has succeeded, so the key leads back to it
	replayed  bool             // the answer is an earlier one
	job       string
	ended     *queue.Job // the final job of a call that waited
	waited    time.Duration
	received  time.Duration // how long the body was read
	redis     time.Duration // waits for Redis outside of the call
	span      tracing.Span
	spanBegun bool
	reading   func()            // returns what it takes of its key's reads; nil: nothing
	reporting sync.Mutex        // guards limits while objects are read concurrently
	limits    []wire.LimitState // to report unless the answer reports those of a call; see tellLimits
	slow      bool              // the body was too slow, which net/http reports as a disconnected caller
	err       error
	wait      *guard.RefusedCall // as which the wait of the call is counted; nil if it is not
	outlasted *guard.RefusedCall // why a wait ended with a refusal; nil if none did
}

func (s *Server) newExchange(w http.ResponseWriter, r *http.Request) *request {
	ip := s.auth.clientIP(r)
	return &request{
		ResponseWriter: w, server: s, control: *http.NewResponseController(w), request: r,
		id: wire.NewCallID(), ip: ip, from: ip.String(), start: time.Now(), route: "unknown",
	}
}

// within notes the state of limits on requests, and returns their refusal.
func (x *request) within(counted []budget.Status, refused error) error {
	x.report(guard.RequestLimitStates(counted)...)
	return refused
}

// report adds limits to what the answer reports. It is safe for concurrent use.
func (x *request) report(states ...wire.LimitState) {
	x.reporting.Lock()
	defer x.reporting.Unlock()
	x.limits = append(x.limits, states...)
}

// left returns what is left of a duration that started when the call arrived.
func (x *request) left(of time.Duration) time.Duration { return time.Until(x.arrived.Add(of)) }

// Unwrap lets http.ResponseController reach the connection.
func (x *request) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// Hijack takes over the connection for a WebSocket.
func (x *request) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := x.control.Hijack()
	if strict, ok := conn.(interface{ Upgraded() }); ok {
		strict.Upgraded()
	}
	return conn, rw, err
}

// WriteHeader records the status if the caller is still connected. After the caller has left, only the first call
// counts: the status stays 0 then, so writers that check it try again with every chunk.
func (x *request) WriteHeader(status int) {
	left := x.request.Context().Err() != nil
	if left && x.begun {
		return
	}
	x.begun = true
	if x.status == 0 && !left {
		x.status = status
	}
	if x.Header().Get("Content-Length") != "" {
		x.sized = time.Now()
	}
	x.tellLimits()
	x.adviseRetry(status)
	x.announceTrailer(status)
	x.keep.head(status, x.Header())
	x.ResponseWriter.WriteHeader(status)
}

// Write gives the caller a bounded time to take the bytes, so that a caller that does not read
// cannot hold a call open forever. A recorded answer continues without its caller.
func (x *request) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	if x.request.Method == http.MethodHead && strings.HasPrefix(x.Header().Get("Content-Type"), "text/event-stream") {
		return 0, http.ErrBodyNotAllowed // nobody reads the events
	}
	x.keep.add(p)
	if x.keep != nil && x.keep.deaf {
		return len(p), nil
	}
	x.extend()
	n, err := x.ResponseWriter.Write(p)
	x.bytes += int64(n)
	if err != nil && x.keep != nil {
		x.keep.deaf = true
		return len(p), nil
	}
	return n, err
}

// extend moves the write deadline, at most once a second. An answer of known length has to be taken
// at leastRate on average, because it is buffered until then.
func (x *request) extend() {
	patience := x.server.opts.Write
	deadline := time.Now().Add(patience)
	if !x.sized.IsZero() {
		earned := x.sized.Add(patience + time.Duration(x.bytes)*time.Second/leastRate)
		if earned.Before(deadline) {
			deadline = earned
		}
	}
	if deadline.Sub(x.deadline) > time.Second {
		x.deadline = deadline
		_ = x.control.SetWriteDeadline(deadline) // not supported by test recorders
	}
}

func (x *request) flush() error {
	if x.keep != nil && x.keep.deaf {
		return nil
	}
	x.extend()
	return x.control.Flush()
}

// beginEvents writes the header of an event stream.
func (x *request) beginEvents() {
	x.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	x.Header().Set("X-Accel-Buffering", "no")
	x.WriteHeader(http.StatusOK)
}

func (x *request) json(status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	x.Header().Set("Content-Type", "application/json")
	x.Header().Set("Content-Length", strconv.Itoa(len(body)+1))
	x.WriteHeader(status)
	_, err = x.Write(append(body, '\n'))
	return err
}

// fail answers with an error. Once bytes were sent, the connection is aborted instead: a clean end
// would look like success.
func (x *request) fail(err error) {
	x.err = err
	if errors.Is(err, guard.ErrGone) || x.request.Context().Err() != nil && !x.slow {
		panic(http.ErrAbortHandler)
	}
	if x.status != 0 {
		panic(http.ErrAbortHandler)
	}
	x.noteLimits(err)
	if exceeded, ok := errors.AsType[*guard.Refusal](err); ok {
		exceeded.Tell(x.Header())
	}
	e := x.offerRaise(x.server.refusal(err, x.plan)).ForAgent(x.request.Header).For(x.wire)
	if e.Limit != nil {
		x.limits = []wire.LimitState{*e.Limit}
	}
	x.rules().Advise(x.Header(), e)
	body := append(e.Body(x.wire, x.id), '\n')
	x.Header().Set("Content-Type", "application/json")
	x.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.WriteHeader(e.Status)
	_, _ = x.Write(body)
}

// planRecord is the part of a plan that the access record needs.
type planRecord struct {
	model, pool string
	stream      bool
	first       budget.Amounts
	quota       int64  // tokens
	request     string // see guard.Plan.Fingerprint
}

func planRecordOf(p *guard.Plan) planRecord {
	return planRecord{
		model: p.Request.Model, pool: p.Target.Pool, stream: p.Request.Stream, first: p.First,
		quota: p.Quota, request: p.Fingerprint,
	}
}

// record writes the access record: one line per request, without body, key or text of the caller.
func (x *request) record() {
	took := time.Since(x.start)
	x.measure(took)
	status := x.status
	if status == 0 {
		status = 499 // the caller left before an answer was written
	}
	x.traced(x.request, nil) // if the caller is unknown
	attrs := make([]slog.Attr, 0, 20)
	attrs = append(attrs,
		slog.String("id", x.id), slog.String("route", x.route), slog.String("method", x.request.Method),
		slog.Int("status", status), slog.Int64("bytes", x.bytes), slog.Duration("took", took),
		slog.String("ip", x.from))
	if x.caller.Org != nil {
		attrs = append(attrs, slog.String("org", x.caller.Org.ID), slog.String("user", x.caller.User),
			slog.String("key", x.caller.Key))
		if x.caller.Labels != "" {
			attrs = append(attrs, slog.String("labels", string(x.caller.Labels)))
		}
		if x.caller.Run != "" {
			attrs = append(attrs, slog.String("run", string(x.caller.Run)))
		}
	}
	if x.plan != nil {
		x.asked = planRecordOf(x.plan)
	}
	if p := &x.asked; p.model != "" {
		held := p.first
		if x.call != nil {
			held = x.call.Hold.Max
		}
		attrs = append(attrs, slog.String("model", p.model), slog.String("pool", p.pool),
			slog.Int64("held_nano_usd", int64(held.Cost)), slog.Int64("held_tokens", held.Tokens))
		if p.quota != held.Tokens {
			attrs = append(attrs, slog.Int64("quota_tokens", p.quota))
		}
		if p.stream {
			attrs = append(attrs, slog.Bool("stream", true))
		}
		if p.request != "" {
			attrs = append(attrs, slog.String("request", p.request))
		}
	}
	if c := x.call; c != nil {
		attrs = append(attrs, slog.String("outcome", string(c.Result.Outcome)),
			slog.Int64("cost_nano_usd", int64(c.Result.Cost)), slog.Bool("estimated", c.Result.Estimated),
			slog.Int64("tokens", c.Result.Usage.Input+c.Result.Usage.Output), slog.String("upstream_id", c.Result.UpstreamID))
	}
	if x.call != nil && x.call.Cache != "" {
		attrs = append(attrs, slog.String("cache", x.call.Cache))
	}
	if c := x.refusing(); c.Cause != "" {
		attrs = append(attrs, slog.String("cause", string(c.Cause)))
	}
	if j := x.ended; j != nil {
		attrs = append(attrs, slog.String("outcome", string(j.State)), slog.Int64("cost_nano_usd", int64(j.Charged)))
	}
	if x.job != "" {
		attrs = append(attrs, slog.String("job", x.job), slog.Duration("waited", x.waited))
	}
	if x.replayed {
		attrs = append(attrs, slog.Bool("replayed", true))
	}
	if x.err != nil {
		attrs = append(attrs, slog.String("error", x.err.Error()))
	}
	if trace := x.span.TraceID(); trace != "" {
		attrs = append(attrs, slog.String("trace", trace))
	}
	x.server.opts.Log.LogAttrs(x.request.Context(), slog.LevelInfo, "call", attrs...)
	x.traceEnd(status)
	x.server.metrics.answered(x.route, status, took)
	x.countRefused()
}

// traced starts the span of a request, as of its arrival. h is the headers of an authenticated
// caller, whose trace it then continues, or nil. It is started once.
func (x *request) traced(r *http.Request, h http.Header) *http.Request {
	if x.server.opts.Tracer == nil || x.spanBegun {
		return r
	}
	ctx, span := x.server.opts.Tracer.Serve(r.Context(), r.Method, h, x.start)
	x.span, x.spanBegun = span, true
	x.request = x.request.WithContext(ctx)
	return r.WithContext(ctx)
}

// traceEnd ends that span with the content of the access record.
func (x *request) traceEnd(status int) {
	if !x.span.On() {
		return
	}
	x.span.Name(x.request.Method + " " + x.route)
	x.span.String("http.request.method", x.request.Method)
	x.span.String("http.route", x.route)
	x.span.Int("http.response.status_code", int64(status))
	x.span.String("llmguard.call_id", x.id)
	if x.caller.Org != nil {
		x.span.String("llmguard.org", x.caller.Org.ID)
		x.span.String("llmguard.user", x.caller.User)
	}
	if x.asked.model != "" {
		x.span.String("gen_ai.request.model", x.asked.model)
	}
	x.span.String("llmguard.refused_by", x.refusing().Cause.Public())
	x.span.String("llmguard.job", x.job)
	if x.replayed {
		x.span.Bool("llmguard.replayed", true)
	}
	if status >= 500 { // lower ones are the caller's fault
		x.span.Fail(strconv.Itoa(status))
	}
	x.span.End()
}
