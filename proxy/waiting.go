package proxy

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/idempotency"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/tracing"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// waitingCaller is one connected caller in the queue: it forwards the job's output as it arrives
// and keeps the connection alive until then.
type waitingCaller struct {
	calls    *callHandler
	exchange *request
	job      *queue.Job
	watch    *queue.Watch
	stream   bool
	comments bool // its client skips comments
	wish     preferences
	print    idempotency.Fingerprint // of the request
	waiting  context.Context         // the request's, until a shutdown or a stop; nil once the first is over
	patience time.Time               // how long the caller waits for the job to start
	hold     time.Time               // how long for its answer; zero for a stream
	deadline time.Time               // patience while the job waits, hold while it runs
	started  time.Time
	span     tracing.Span // of the wait
	stop     func()       // ends waiting, and what the stop watch has of it

	running bool
	since   time.Time // when it was first seen running
	counted bool      // among the server's waiting flows
	attempt int       // the attempt of head and body
	status  int       // of the answer; 0 until known
	header  http.Header
	events  passing
	room    spool.Room // memory for buffered events
	ended   bool       // the answer is complete
	over    bool       // the job has ended
}

// run relays until the answer is complete, the job has ended without one, the caller's patience has
// ended, or the caller has disconnected.
func (v *waitingCaller) run(ctx context.Context) error {
	tick := time.Now().Add(v.firstTick())
	for {
		event, err := v.next(ctx, tick)
		switch {
		case ctx.Err() != nil:
			return v.leave(ctx)
		case errors.Is(err, io.EOF):
			v.over = true
			return v.finish()
		case errors.Is(err, errDraining):
			return v.sendAway(ctx)
		case errors.Is(err, errStopped):
			return v.refuseStopped(ctx)
		case errors.Is(err, context.DeadlineExceeded):
			if v.late() {
				return v.giveUp(ctx)
			}
			if v.keepAlive(ctx) != nil {
				return v.leave(ctx)
			}
			tick = time.Now().Add(v.calls.opts.KeepAlive)
		case err != nil:
			return v.end(unreadable(err))
		default:
			err := v.take(event)
			if spool.NoRoom(err) {
				return v.comeAgain(ctx, err)
			}
			if err != nil {
				return v.leave(ctx)
			}
			if v.ended && v.status < 400 {
				return v.finish()
			}
		}
	}
}

// comeAgain asks a caller to retry for whose answer there is no space now. The retry then finds the
// answer, which is already paid for.
func (v *waitingCaller) comeAgain(ctx context.Context, why error) error {
	if v.exchange.status == 0 {
		err := v.leavePlace(context.WithoutCancel(ctx), v.calls.opts.KeepPlace)
		if err != nil {
			v.calls.opts.Log.Warn("reserving the place of a call failed, its answer had no room", "job", v.job.ID, "err", err)
		}
	}
	return v.end(noRoom(why))
}

// errDraining ends the wait for an event because the process is shutting down.
var errDraining = errors.New("the process is shutting down")

// untilDrained returns a ctx that is canceled with errDraining when the process shuts down.
// The func ends it, with another cause if that is not nil.
func (c *connections) untilDrained(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.drained, func() { cancel(errDraining) })
	return ctx, func(cause error) { stop(); cancel(cause) }
}

// next waits for the next event, at most until the next newline, the end of the caller's patience,
// or the start of a shutdown while the job waits.
func (v *waitingCaller) next(ctx context.Context, tick time.Time) (queue.Event, error) {
	until := v.deadline
	if !v.running && v.waiting != nil {
		ctx = v.waiting
	}
	if v.silent() && (until.IsZero() || tick.Before(until)) {
		until = tick
	}
	return v.watch.NextBefore(ctx, until)
}

// silent reports whether the proxy has to keep a stream's connection alive. A stream that may still
// be answered with 202 gets nothing before that.
func (v *waitingCaller) silent() bool { return v.stream && v.status == 0 && !v.wish.async }

// firstTick returns how long the proxy is silent before it keeps a connection alive. Agents that speak Messages take
// a silent stream for a broken one and ask again, so they hear of it in the first second.
func (v *waitingCaller) firstTick() time.Duration {
	if v.job.Endpoint.Traits().Messages {
		return min(v.calls.opts.KeepAlive, time.Second/2)
	}
	return v.calls.opts.KeepAlive
}

func (v *waitingCaller) late() bool { return !v.deadline.IsZero() && !time.Now().Before(v.deadline) }

// keepAlive keeps the connection alive with a line that the client ignores: a blank line, which
// every SSE client skips (docs/wire.md, Keeping a stream alive), the ping of Messages, or a comment that reports
// the place. The first one commits to status 200, and the place is in its headers.
func (v *waitingCaller) keepAlive(ctx context.Context) error {
	x, line := v.exchange, "\n"
	if v.job.Endpoint.Traits().Messages {
		line = wire.Ping
	}
	if first := x.status == 0; first || v.comments && !v.running {
		at, waits := v.look(ctx)
		if waits && v.comments {
			line = comment(at) + strings.TrimPrefix(line, "\n")
		}
		if first {
			h := x.Header()
			h.Set(headerJob, v.job.ID)
			at.Room.Tell(h)
			if waits {
				tellPlace(h, at)
			}
			x.beginEvents()
		}
	}
	if _, err := x.Write([]byte(line)); err != nil {
		return err
	}
	return x.flush()
}

// headerJob names the job that a waiting call became.
const headerJob = "X-Llmguard-Job-Id"

// take handles one event. The error is that of writing to the caller.
func (v *waitingCaller) take(e queue.Event) error {
	if e.Attempt > v.attempt { // what a dead attempt left of a plain answer is void
		v.attempt = e.Attempt
		v.status = 0
		v.ended = false
		v.events.cut = wire.Events{}
		v.exchange.answer.Close()
	}
	switch e.Kind {
	case queue.Changed:
		v.await(e.State == queue.Queued && v.job.Class == queue.Interactive)
		switch e.State {
		case queue.Running:
			v.running = true
			v.deadline = v.hold
			v.since = time.Now() // it costs money from now on
		case queue.Queued:
			v.running, v.deadline = false, v.patience // for the first time, or again
		}
	case queue.Head:
		v.status, v.header = e.Status, e.Header
		if v.stream && v.status < 400 && v.exchange.status == 0 {
			v.copyHeader()
			v.exchange.WriteHeader(v.status)
			v.deadline, v.hold = time.Time{}, time.Time{} // from here on, bytes keep it alive
		}
	case queue.Bytes:
		if !v.stream || v.status >= 400 {
			_, err := v.exchange.answer.Write(e.Data)
			return err
		}
		if err := v.pass(e.Data); err != nil {
			return err
		}
		return v.exchange.flush()
	case queue.End: // an error's answer is complete although its job failed
		v.ended = v.status != 0 && (e.OK || v.status >= 400)
	}
	return nil
}

func (v *waitingCaller) copyHeader() {
	maps.Copy(v.exchange.Header(), v.header)
	v.exchange.Header().Set(headerJob, v.job.ID)
}

// finish completes the answer, or reports why there is none. A connected caller's job expires before its
// caller's patience ends if the reply of a call of Expire was lost.
func (v *waitingCaller) finish() error {
	x := v.exchange
	switch {
	case v.ended && x.status == 0: // a plain answer, or an error before anything was written
		v.copyHeader()
		x.Header().Set("Content-Length", strconv.FormatInt(x.answer.Size(), 10))
		x.WriteHeader(v.status)
		_, err := x.answer.WriteTo(x)
		return err
	case v.ended && v.status < 400: // a stream that was relayed to its end
		_, err := x.Write(v.events.cut.Rest())
		return err
	default:
		ctx, cancel := context.WithTimeout(x.request.Context(), storeTimeout)
		defer cancel()
		job, err := v.calls.opts.Queue.Job(ctx, v.job.Org, v.job.ID)
		if err != nil {
			return v.end(unreadable(err))
		}
		if job.State == queue.Expired && job.Class == queue.Interactive && !job.ByDeadline {
			v.exchange.outlast(v.job, queue.Place{})
			return v.end(wire.RateLimited("The call waited as long as it may and is still over the limit", time.Second))
		}
		return v.end(jobError(job))
	}
}

// unreadable returns the answer to a caller whose job cannot be read.
func unreadable(err error) *wire.Error {
	if public, ok := errors.AsType[*wire.Error](err); ok {
		return public
	}
	return wire.ServiceUnavailable("The queue is temporarily unavailable", time.Second, err)
}

// end reports a failure to the caller: as a status if possible, as an in-stream error once 200 was
// sent.
func (v *waitingCaller) end(e *wire.Error) error {
	x := v.exchange
	if x.status == 0 || !v.stream {
		return e
	}
	x.err = e
	frame := e.Frame(v.job.Endpoint, v.events.next)
	nothing := v.status == 0 || v.status >= http.StatusBadRequest // of an answer was passed
	if v.job.Endpoint == wire.Messages && nothing && len(v.job.Header[wire.HeaderClaudeSession]) > 0 {
		frame = e.Closing(wire.MessageBlocks{}, v.job.Model)
	}
	if _, err := x.Write(frame); err != nil {
		return guard.ErrGone
	}
	return x.flush()
}

// passing is a stream with numbered events being forwarded to its caller in complete events, so that an
// error with the next number can follow them.
type passing struct {
	cut  wire.Events
	next int64
}

func (v *waitingCaller) pass(p []byte) error {
	if !v.job.Endpoint.Traits().Numbered {
		_, err := v.exchange.Write(p)
		return err
	}
	if err := v.events.cut.Feed(p); err != nil {
		return err
	}
	if err := v.room.Resize(v.exchange.request.Context(), v.events.cut.Held()); err != nil {
		return err
	}
	for {
		event, ok := v.events.cut.Next()
		if !ok {
			return nil
		}
		if e, err := wire.ParseEvent(wire.EventData(event), ""); err == nil && e.Kind != "" {
			v.events.next = e.Sequence + 1
		}
		if _, err := v.exchange.Write(event); err != nil {
			return err
		}
	}
}

// bill records what the call cost once its job is over: in the access record and, for a stream, in
// a trailer.
func (v *waitingCaller) bill(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if !v.ended && !v.over {
		return
	}
	for !v.over { // the answer ends a moment before the job
		if _, err := v.watch.Next(ctx); err != nil {
			v.over = true
		}
	}
	job, err := v.calls.opts.Queue.Job(ctx, v.job.Org, v.job.ID)
	if err != nil || !job.State.Terminal() {
		return
	}
	if !v.stream && job.State == queue.Succeeded {
		v.calls.runs.add(job.Org, job.Model, job.Finished.Sub(job.Started))
	}
	v.exchange.ended = job
	v.exchange.stays = job.State == queue.Succeeded
	if v.stream && v.exchange.status == http.StatusOK {
		h := v.exchange.Header()
		h.Set(http.TrailerPrefix+guard.HeaderCost, usd(int64(job.Charged)))
		h[http.TrailerPrefix+guard.HeaderWaited] = v.header[guard.HeaderWaited]
	}
}

// jobError returns the answer for a job that ended without one.
func jobError(j *queue.Job) *wire.Error {
	if j.Error != nil {
		return j.Error
	}
	return wire.ServiceUnavailable("The queued call ended with status "+string(j.State), time.Second, nil)
}
