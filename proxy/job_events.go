package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// eventReader streams a job's events to its owner as server-sent events. It is not a caller: the
// job neither waits for it nor ends with it.
type eventReader struct {
	jobs     *jobHandler
	exchange *request
	job      *queue.Job
	output   bool // include the answer

	cursor cursor // of the last event sent
	skip   int64  // bytes of the attempt's answer that a reconnecting reader already has
	rest   []byte // an incomplete character
	place  string // as last sent
}

// cursor is an event's id: how far its reader has read. Redis is read again from the beginning of
// the attempt, so that any proxy can continue.
type cursor struct {
	attempt int
	bytes   int64
	over    bool // the job has ended and everything was sent
}

func (c cursor) String() string {
	text := fmt.Sprintf("%d-%d", c.attempt, c.bytes)
	if c.over {
		text += "-end"
	}
	return text
}

func parseCursor(text string) (c cursor, err error) {
	if text == "" {
		return c, nil
	}
	rest, over := strings.CutSuffix(text, "-end")
	attempt, bytes, _ := strings.Cut(rest, "-")
	a, errA := strconv.ParseUint(attempt, 10, 31)
	b, errB := strconv.ParseUint(bytes, 10, 62)
	if errA != nil || errB != nil {
		return c, wire.BadRequest("Last-Event-ID", "invalid_value", "Last-Event-ID %q is not the id of an event of a job",
			shorten(text))
	}
	return cursor{int(a), int64(b), over}, nil
}

// jobEvents streams a job's changes of state, and with ?output=true its answer, until the job has
// ended. With Last-Event-ID it continues where a broken stream ended.
func (jh *jobHandler) jobEvents(x *request, r *http.Request, id string) error {
	at, err := parseCursor(r.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	job, err := jh.ownJob(r.Context(), x, id)
	if err != nil {
		return err
	}
	x.job = job.ID
	if at.over { // browsers reconnect until they get this status
		x.WriteHeader(http.StatusNoContent)
		return nil
	}
	done, err := jh.connections.lasting(x)
	if err != nil {
		return err
	}
	defer done()
	o := &eventReader{
		jobs: jh, exchange: x, job: job, output: r.URL.Query().Get("output") == "true",
		cursor: cursor{attempt: at.attempt}, skip: at.bytes,
	}
	x.beginEvents()
	if err := x.flush(); err != nil {
		return guard.ErrGone
	}
	return o.run(r.Context())
}

func (o *eventReader) run(ctx context.Context) error {
	watch := o.jobs.opts.Queue.Follow(o.job)
	defer watch.Close()
	waiting, stop := o.jobs.connections.untilDrained(ctx)
	defer stop(nil)
	for {
		next, cancel := context.WithTimeout(waiting, o.jobs.opts.KeepAlive)
		event, err := watch.Next(next)
		cancel()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, queue.ErrNotFound):
			return nil
		case errors.Is(err, errDraining): // the reader reconnects to another proxy
			return guard.ErrGone
		case errors.Is(err, context.DeadlineExceeded):
			err = o.idle(ctx)
		case err == nil:
			err = o.tell(ctx, event)
		}
		if err != nil {
			return guard.ErrGone
		}
	}
}

// idle keeps the connection alive, and reports a waiting job's place when it has changed.
func (o *eventReader) idle(ctx context.Context) error {
	if v, err := o.look(ctx); err == nil && v.Status == queue.Queued && v.Ahead != nil {
		if place := v.standing(); place != o.place {
			o.place = place
			return o.send("position", v)
		}
	}
	if _, err := o.exchange.Write([]byte("\n")); err != nil {
		return err
	}
	return o.exchange.flush()
}

// standing formats a waiting job's place for comparison.
func (v *jobView) standing() string {
	eta := int64(-1)
	if v.ETA != nil {
		eta = *v.ETA
	}
	return fmt.Sprint(*v.Ahead, " ", eta, " ", v.WaitingFor)
}

func (o *eventReader) look(ctx context.Context) (jobView, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	job, err := o.jobs.opts.Queue.Job(ctx, o.job.Org, o.job.ID)
	if err != nil {
		return jobView{}, err
	}
	return o.jobs.view(ctx, job), nil
}

// outputEvent is a part of the answer. The head is sent first in an attempt.
type outputEvent struct {
	Attempt int         `json:"attempt"`
	Status  int         `json:"status_code,omitempty"`
	Header  http.Header `json:"headers,omitempty"`
	Text    string      `json:"text,omitempty"`
}

func (o *eventReader) tell(ctx context.Context, e queue.Event) error {
	if e.Attempt != o.cursor.attempt { // the output of earlier attempts is void
		o.cursor = cursor{attempt: e.Attempt}
		o.skip = 0
		o.rest = nil
	}
	switch {
	case e.Kind == queue.Changed:
		v, err := o.look(ctx)
		if err != nil {
			return err
		}
		v.Status, o.cursor.over = e.State, e.State.Terminal()
		return o.send("state", v)
	case !o.output:
		return nil
	case e.Kind == queue.Head && o.skip == 0:
		return o.send("head", outputEvent{Attempt: e.Attempt, Status: e.Status, Header: e.Header})
	case e.Kind == queue.Bytes:
		return o.text(e)
	}
	return nil
}

// text sends the bytes of the answer that the reader does not have yet, in complete characters.
func (o *eventReader) text(e queue.Event) error {
	data := e.Data
	n := min(o.skip, int64(len(data)))
	o.skip -= n
	o.cursor.bytes += n
	data = append(o.rest, data[n:]...)
	end := len(data)
	for i := 1; i < utf8.UTFMax && i <= len(data); i++ {
		if tail := data[len(data)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				end -= i
			}
			break
		}
	}
	o.rest = append([]byte(nil), data[end:]...)
	if end == 0 {
		return nil
	}
	o.cursor.bytes += int64(end)
	return o.send("output", outputEvent{Attempt: e.Attempt, Text: string(data[:end])})
}

func (o *eventReader) send(kind string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(o.exchange, "id: %s\nevent: %s\ndata: %s\n\n", o.cursor, kind, data); err != nil {
		return err
	}
	return o.exchange.flush()
}
