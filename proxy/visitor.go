package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/rejoin"
	"github.com/llmguard/llmguard/tracing"
	"github.com/llmguard/llmguard/wire"
)

// visitor is one connected caller in the queue: it hands the job's output on
// as it comes and keeps the connection alive until then.
type visitor struct {
	server   *Server
	exchange *exchange
	job      *queue.Job
	watch    *queue.Watch
	stream   bool
	wish     wish
	print    rejoin.Print    // of the request
	waiting  context.Context // the request's, until the process shuts down; nil once that is over
	patience time.Time       // how long the caller waits for the job to run
	hold     time.Time       // how long for its answer; zero for a stream
	deadline time.Time       // patience while the job waits, hold while it runs
	started  time.Time
	span     tracing.Span // of the wait
	stop     func()       // ends waiting

	running bool
	since   time.Time // when it was first seen running
	counted bool      // among the server's waiting flows
	attempt int       // the attempt head and body belong to
	status  int       // of the answer; 0 until it is known
	header  http.Header
	body    []byte // of a plain answer, or of an error that came after 200
	events  passing
	ended   bool // the answer is complete
	over    bool // the job has ended
}

// run relays until the answer is complete, the job has ended without one, the
// caller's patience is at its end, or the caller is gone.
func (v *visitor) run(ctx context.Context) error {
	tick := time.Now().Add(v.server.opts.KeepAlive)
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
		case errors.Is(err, context.DeadlineExceeded):
			if v.late() {
				return v.giveUp(ctx)
			}
			if v.newline() != nil {
				return v.leave(ctx)
			}
			tick = time.Now().Add(v.server.opts.KeepAlive)
		case err != nil:
			return v.end(unreadable(err))
		default:
			if err := v.take(event); err != nil {
				return v.leave(ctx)
			}
			if v.ended && v.status < 400 {
				return v.finish()
			}
		}
	}
}

// errDraining ends the wait for an event when the process shuts down.
var errDraining = errors.New("the process shuts down")

// untilDrained returns ctx, ended with errDraining when the process shuts down.
func (s *Server) untilDrained(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.drained, func() { cancel(errDraining) })
	return ctx, func() { stop(); cancel(nil) }
}

// next waits for the next event, no longer than to the next newline, the end
// of the caller's patience, or the beginning of a shutdown while the job waits.
func (v *visitor) next(ctx context.Context, tick time.Time) (queue.Event, error) {
	until := v.deadline
	if !v.running && v.waiting != nil {
		ctx = v.waiting
	}
	if v.silent() && (until.IsZero() || tick.Before(until)) {
		until = tick
	}
	return v.watch.NextBefore(ctx, until)
}

// silent reports whether a stream's connection has to be kept alive by us. One
// that may yet be answered with 202 gets nothing before.
func (v *visitor) silent() bool { return v.stream && v.status == 0 && !v.wish.async }

func (v *visitor) late() bool { return !v.deadline.IsZero() && !time.Now().Before(v.deadline) }

// newline keeps the connection alive with what every SSE client skips
// (contract R8). The first one commits to status 200.
func (v *visitor) newline() error {
	x := v.exchange
	if x.status == 0 {
		h := x.Header()
		h.Set("Content-Type", "text/event-stream; charset=utf-8")
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		h.Set(headerJob, v.job.ID)
		x.WriteHeader(http.StatusOK)
	}
	if _, err := x.Write([]byte("\n")); err != nil {
		return err
	}
	return x.flush()
}

// headerJob names the job a waiting call became.
const headerJob = "X-Llmguard-Job-Id"

// take handles one event. The error is that of writing to the caller.
func (v *visitor) take(e queue.Event) error {
	if e.Attempt > v.attempt { // what a dead attempt left of a plain answer is void
		v.attempt, v.status, v.body, v.ended, v.events.cut = e.Attempt, 0, nil, false, wire.Events{}
	}
	switch e.Kind {
	case queue.Changed:
		v.await(e.State == queue.Queued && v.job.Class == queue.Interactive)
		switch e.State {
		case queue.Running:
			v.running, v.deadline, v.since = true, v.hold, time.Now() // it costs money now
		case queue.Queued:
			v.running, v.deadline = false, v.patience // for the first time, or again
		}
	case queue.Head:
		v.status, v.header = e.Status, e.Header
		if v.stream && v.status < 400 && v.exchange.status == 0 {
			v.copyHeader()
			v.exchange.WriteHeader(v.status)
			v.deadline, v.hold = time.Time{}, time.Time{} // bytes keep it alive from here
		}
	case queue.Bytes:
		if !v.stream || v.status >= 400 {
			v.body = append(v.body, e.Data...)
			return nil
		}
		if err := v.pass(e.Data); err != nil {
			return err
		}
		return v.exchange.flush()
	case queue.End: // an error's answer is whole although its job failed
		v.ended = v.status != 0 && (e.OK || v.status >= 400)
	}
	return nil
}

func (v *visitor) copyHeader() {
	h := v.exchange.Header()
	for name, values := range v.header {
		h[name] = values
	}
	h.Set(headerJob, v.job.ID)
}

// finish completes the answer, or tells why there is none.
func (v *visitor) finish() error {
	x := v.exchange
	switch {
	case v.ended && x.status == 0: // a plain answer, or an error before anything was written
		v.copyHeader()
		x.Header().Set("Content-Length", strconv.Itoa(len(v.body)))
		x.WriteHeader(v.status)
		_, err := x.Write(v.body)
		return err
	case v.ended && v.status < 400: // a stream, relayed to its end
		_, err := x.Write(v.events.cut.Rest())
		return err
	default:
		ctx, cancel := context.WithTimeout(x.request.Context(), storeTimeout)
		defer cancel()
		job, err := v.server.queue.Job(ctx, v.job.Org, v.job.ID)
		if err != nil {
			return v.end(unreadable(err))
		}
		return v.end(jobError(job))
	}
}

// unreadable is the answer to a caller whose job cannot be read.
func unreadable(err error) *wire.Error {
	var public *wire.Error
	if errors.As(err, &public) {
		return public
	}
	return wire.ServiceUnavailable("The queue cannot be read at the moment", time.Second, err)
}

// end tells the caller of a failure: as a status while that is possible, as an
// in-stream error once 200 is out.
func (v *visitor) end(e *wire.Error) error {
	x := v.exchange
	if x.status == 0 || !v.stream {
		return e
	}
	x.err = e
	frame := e.Frame(v.job.Endpoint)
	if v.job.Endpoint == wire.Responses {
		frame = e.ResponsesFrame(v.events.next)
	}
	if _, err := x.Write(frame); err != nil {
		return guard.ErrGone
	}
	return x.flush()
}

// passing is a stream of Responses on its way to its caller: whole events, so
// that an error can follow them, which bears the next number.
type passing struct {
	cut  wire.Events
	next int64
}

// pass hands a piece of a stream on.
func (v *visitor) pass(p []byte) error {
	if v.job.Endpoint != wire.Responses {
		_, err := v.exchange.Write(p)
		return err
	}
	if err := v.events.cut.Feed(p); err != nil {
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

// giveUp ends a wait that outlasted the caller's patience. While a status can
// still be sent the place is kept; a job that runs goes on.
func (v *visitor) giveUp(ctx context.Context) error {
	if v.wish.async {
		return v.defer202(ctx)
	}
	if v.running && !v.stream {
		v.server.runs.outlasted(v.job.Org, v.job.Model, time.Since(v.since))
	}
	const late = "The call waited as long as its caller allowed"
	if kept, err := v.keepPlace(ctx); kept > 0 {
		return v.end(wire.RateLimited(fmt.Sprintf("%s. Its place is kept for %d s for the SDK's own retry, or for the same Idempotency-Key; the job is %s",
			late, int(kept.Seconds()), v.job.ID), time.Second))
	} else if errors.Is(err, errGoesOn) {
		return v.run(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	job, err := v.server.queue.Expire(bounded, v.job.Org, v.job.ID)
	if err == nil && job.State != queue.Expired && job.State != queue.Cancelled {
		v.patience, v.deadline, v.running = time.Time{}, time.Time{}, true
		return v.run(ctx)
	}
	return v.end(wire.RateLimited(late+" and does not fit under the limit yet", time.Second))
}

// errGoesOn tells that there is no place to keep, but an answer to wait for.
var errGoesOn = errors.New("the job has an answer, or is about to")

// keepPlace keeps the caller's place for when it comes back, and returns for
// how long; 0 when that is impossible: the status is out, or the org's calls
// may wait no longer.
func (v *visitor) keepPlace(ctx context.Context) (time.Duration, error) {
	s := v.server
	if v.exchange.status != 0 {
		return 0, nil
	}
	d := s.opts.KeepPlace
	if most := v.exchange.caller.Org.MaxWait; most > 0 && !v.running {
		d = min(d, most-time.Since(v.job.Created))
	}
	if d <= 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	state, err := s.queue.Reserve(ctx, v.job.Org, v.job.ID, d)
	if err != nil {
		return 0, err
	}
	if state.Terminal() || state == queue.Running && v.stream {
		v.running, v.patience, v.deadline = true, time.Time{}, time.Time{}
		return 0, errGoesOn
	}
	if err := v.leavePlace(ctx, d); err != nil {
		return 0, err
	}
	v.exchange.Header().Set(headerJob, v.job.ID)
	return d, nil
}

// leavePlace lets the same call find its job again: by its key if it has one.
func (v *visitor) leavePlace(ctx context.Context, d time.Duration) error {
	v.server.metrics.kept.Inc()
	if v.exchange.stays = v.exchange.key != nil; v.exchange.stays {
		return nil
	}
	return v.server.rejoin.Keep(ctx, v.job.Org, v.print, v.job.ID, d)
}

// defer202 ends the wait a caller asked for with respond-async.
func (v *visitor) defer202(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	job, err := v.server.queue.Job(bounded, v.job.Org, v.job.ID)
	if err != nil {
		return unavailable(err)
	}
	return v.server.accepted(v.exchange, job, v.wish)
}

// sendAway ends a wait because this process shuts down. The caller's retry
// reaches another one, and finds its place there.
func (v *visitor) sendAway(ctx context.Context) error {
	if v.wish.async {
		return v.defer202(ctx)
	}
	kept, err := v.keepPlace(ctx)
	if kept == 0 && !errors.Is(err, errGoesOn) {
		job, dropErr := v.drop(ctx)
		if dropErr == nil && job.State == queue.Running {
			v.running, err = true, errGoesOn
		}
	}
	if errors.Is(err, errGoesOn) {
		v.waiting = nil // it costs money now: shutting down waits for it
		return v.run(ctx)
	}
	return v.end(wire.ServiceUnavailable("This proxy shuts down; try again", time.Second, nil))
}

// leave is called when the caller is gone. What runs on without it, because it
// is paid for, can be claimed by the caller's retry.
func (v *visitor) leave(ctx context.Context) error {
	if v.job.Class != queue.Interactive { // nobody has to wait for it
		return guard.ErrGone
	}
	ctx = context.WithoutCancel(ctx)
	job, err := v.drop(ctx)
	if err == nil && !v.stream && (job.State == queue.Running || job.State == queue.Succeeded) {
		bounded, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		err = v.leavePlace(bounded, v.server.opts.KeepPlace)
	}
	if err != nil {
		v.server.log.Warn("job of a caller who left is not dropped or kept; the queue drops it", "job", v.job.ID, "error", err)
	}
	return guard.ErrGone
}

// drop gives the job up on the caller's behalf: a waiting one is cancelled, a
// running one ends as a live call without its caller would.
func (v *visitor) drop(ctx context.Context) (*queue.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return v.server.queue.Leave(ctx, v.job.Org, v.job.ID)
}

// bill notes what the call cost, once its job is over: in the access record
// and, for a stream, in a trailer.
func (v *visitor) bill(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	if !v.ended && !v.over {
		return
	}
	for !v.over { // the answer's end comes a moment before the job's
		if _, err := v.watch.Next(ctx); err != nil {
			v.over = true
		}
	}
	job, err := v.server.queue.Job(ctx, v.job.Org, v.job.ID)
	if err != nil || !job.State.Terminal() {
		return
	}
	if !v.stream && job.State == queue.Succeeded {
		v.server.runs.add(job.Org, job.Model, job.Finished.Sub(job.Started))
	}
	v.exchange.ended = job
	v.exchange.stays = job.State == queue.Succeeded
	if v.stream && v.exchange.status == http.StatusOK {
		v.exchange.Header().Set(http.TrailerPrefix+guard.HeaderCost, usd(int64(job.Charged)))
	}
}

// jobError is the answer for a job that ended without one.
func jobError(j *queue.Job) *wire.Error {
	if j.Error != nil {
		return j.Error
	}
	return wire.ServiceUnavailable("The queued call ended as "+string(j.State), time.Second, nil)
}
