package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// backgroundStream streams the events of a background response from its job's recorded output,
// under the response's own id. It starts with two events of its own, created and queued, which
// replace the provider's first event, so that all readers see the same numbers at any time.
type backgroundStream struct {
	x       *request
	job     *queue.Job
	id      string
	after   int64 // number of the last event that the reader has
	events  wire.Events
	room    spool.Room // memory for buffered events
	attempt int        // attempt of the events sent so far
	next    int64
	begun   bool // the events of its own are written
	final   bool
	failed  bool // the answer is an error, not a stream
}

// firstTold is the number of the first event that comes from the provider.
const firstTold = 2

// resume streams a background response's events after a number, if its reader may open a stream.
func (rh *responseHandler) resume(x *request, r *http.Request, job *queue.Job, after int64) error {
	done, err := rh.connections.lasting(x)
	if err != nil {
		return err
	}
	defer done()
	return rh.streamed(x, r, job, after)
}

// streamed is resume for a reader that already has a stream.
func (rh *responseHandler) streamed(x *request, r *http.Request, job *queue.Job, after int64) error {
	ctx := r.Context()
	x.job = job.ID
	t := &backgroundStream{x: x, job: job, id: queue.ResponseID(job.ID), after: after, next: firstTold}
	t.room = rh.opts.Spool.Room(job.Org, rh.bodies.roomWait)
	defer t.room.Close()
	if err := rh.begun(ctx, t); err != nil {
		return err
	}
	return rh.follow(ctx, t)
}

// begun writes the header, and the first events of a background response whose request is still stored.
// The others begin with the provider's first event, which echoes the request too.
func (rh *responseHandler) begun(ctx context.Context, t *backgroundStream) error {
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	request, done, err := rh.requestOf(bounded, t.job)
	if err != nil {
		return err
	}
	defer done()
	t.x.beginEvents()
	if request != nil {
		err = t.begin(request)
	}
	if err != nil || t.x.flush() != nil {
		return guard.ErrGone
	}
	return nil
}

// begin writes the first events once. They echo a request, or the response to it; nil if neither is known.
func (t *backgroundStream) begin(echoed []byte) error {
	if t.begun {
		return nil
	}
	t.begun = true
	if echoed == nil {
		echoed = modelOf(t.job)
	}
	pending := wire.Pending(echoed, t.id, "queued", t.job.Created.Unix(), nil)
	for i, kind := range []string{"response.created", "response.queued"} {
		event, err := wire.ParseEvent([]byte(`{"type":"`+kind+`","sequence_number":0,"response":`+string(pending)+`}`), t.id)
		if err != nil {
			return err
		}
		if int64(i) > t.after {
			if _, err := t.x.Write(event.Append(nil, int64(i))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (rh *responseHandler) follow(ctx context.Context, t *backgroundStream) error {
	watch := rh.opts.Queue.Follow(t.job)
	defer watch.Close()
	waiting, stop := rh.connections.untilDrained(ctx)
	defer stop(nil)
	for !t.final {
		next, cancel := context.WithTimeout(waiting, rh.opts.KeepAlive)
		e, err := watch.Next(next)
		cancel()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, queue.ErrNotFound):
			return t.end(ctx)
		case errors.Is(err, errDraining): // the reader continues at another proxy
			return guard.ErrGone
		case errors.Is(err, context.DeadlineExceeded):
			_, err = t.x.Write([]byte("\n"))
		case err == nil:
			err = t.take(ctx, e)
		}
		if err != nil || t.x.flush() != nil {
			return guard.ErrGone
		}
	}
	return nil
}

func (t *backgroundStream) take(ctx context.Context, e queue.Event) error {
	if e.Attempt != t.attempt {
		if t.next > firstTold { // the reader has part of an answer that is now void
			return t.fail(wire.BadGateway("The worker failed, so the response is being generated again. Retrieve it once it "+
				"is completed", nil))
		}
		t.attempt = e.Attempt
		t.events = wire.Events{}
		t.failed = false
	}
	switch e.Kind {
	case queue.Head:
		t.failed = e.Status >= 400
	case queue.Bytes:
		if t.failed {
			return nil
		}
		if err := t.events.Feed(e.Data); err != nil {
			return t.fail(wire.BadGateway("The provider's stream contains an event that is too large", err))
		}
		held := t.events.Held()
		if !t.begun { // the first events repeat it
			held *= requestCopies
		}
		if err := t.room.Resize(ctx, held); err != nil {
			return t.fail(noRoom(err))
		}
		return t.tell()
	}
	return nil
}

func (t *backgroundStream) tell() error {
	for {
		raw, ok := t.events.Next()
		if !ok || t.final {
			return nil
		}
		e, err := wire.ParseEvent(wire.EventData(raw), t.id)
		if err != nil || e.Kind == "" {
			continue
		}
		if err := t.begin(e.Response); err != nil {
			return err
		}
		if e.Kind == "response.created" {
			continue
		}
		number := e.Sequence + 1
		t.next, t.final = number+1, e.Final()
		if number <= t.after {
			continue
		}
		if _, err := t.x.Write(e.Append(nil, number)); err != nil {
			return err
		}
	}
}

// end reports the job's end if its output did not.
func (t *backgroundStream) end(ctx context.Context) error {
	if t.final {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	job, err := t.x.server.queue.Job(ctx, t.job.Org, t.job.ID)
	if err != nil {
		err = t.fail(unreadable(err))
	} else {
		err = t.fail(jobError(job))
	}
	if err != nil || t.x.flush() != nil {
		return guard.ErrGone
	}
	return nil
}

func (t *backgroundStream) fail(e *wire.Error) error {
	t.final, t.x.err = true, e
	if err := t.begin(nil); err != nil {
		return err
	}
	_, err := t.x.Write(e.Frame(wire.Responses, t.next))
	return err
}
