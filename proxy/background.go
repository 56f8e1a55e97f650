package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// onceInBackground creates a background response, or finds the one that was created with the same
// Idempotency-Key, whatever its outcome.
func (rh *responseHandler) onceInBackground(x *request, r *http.Request, plan *guard.Plan, wish preferences) error {
	if len(r.Header["Idempotency-Key"]) == 0 {
		return rh.background(x, r, plan, wish)
	}
	id, _, err := rh.repeats.knownAs(x, r, plan) // such a key leads to a job, never to an answer
	if err != nil {
		return err
	}
	if id == "" {
		return rh.background(x, r, plan, wish)
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	job, err := rh.opts.Queue.Job(ctx, x.caller.Org.ID, id)
	switch {
	case errors.Is(err, queue.ErrNotFound): // it ended long ago
		return rh.background(x, r, plan, wish)
	case err != nil:
		return unavailable(err)
	}
	x.job = job.ID
	x.stays = true
	x.replayed = true
	rh.metrics.again.WithLabelValues("replayed").Inc()
	x.Header().Set(headerReplayed, "true")
	x.Header().Set(headerJob, job.ID)
	if plan.Request.Stream {
		x.dropBody()
		return rh.resume(x, r, job, -1)
	}
	return rh.show(x, r, job)
}

// background creates a job for a call whose caller does not wait, and answers with the future
// response.
func (rh *responseHandler) background(x *request, r *http.Request, plan *guard.Plan, wish preferences) error {
	if err := rh.opts.Guard.Stopped(x.caller.Org.ID); err != nil {
		return err
	}
	if err := rh.opts.Guard.Plans.Check(r.Context(), plan); err != nil {
		return err
	}
	if plan.Request.Stream { // before the job exists, because it would run anyway
		done, err := rh.connections.lasting(x)
		if err != nil {
			return err
		}
		defer done()
	}
	job := rh.calls.newJob(x, r, plan, queue.Async)
	if rh.opts.Webhooks != nil {
		job.Notice = rh.opts.Webhooks.ResponseNotice(job.Org, queue.ResponseID(job.ID), wish.webhook)
	}
	if most := plan.Caller.Org.MaxWait; most > 0 {
		job.Deadline = time.Now().Add(most)
	}
	wish.order(job)
	if err := rh.calls.put(r.Context(), x, job, plan.Request.Body, putTurn); err != nil {
		return err
	}
	x.job, x.stays = job.ID, true
	x.Header().Set(headerJob, job.ID)
	if plan.Request.Stream {
		x.dropBody()
		return rh.streamed(x, r, job, -1)
	}
	return x.document(wire.Pending(plan.Request.Body, queue.ResponseID(job.ID), "queued", job.Created.Unix(), nil))
}

func (x *request) document(body []byte) error {
	x.Header().Set("Content-Type", "application/json")
	return x.whole(http.StatusOK, body)
}

// backgroundJob returns the caller's job that creates a response, or nil if there is none.
func (rh *responseHandler) backgroundJob(ctx context.Context, x *request, id string) (*queue.Job, error) {
	name := queue.ResponseJob(id)
	if name == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	job, err := rh.opts.Queue.Job(ctx, x.caller.Org.ID, name)
	if errors.Is(err, queue.ErrNotFound) || err == nil && (!x.owns(job) || job.Endpoint != wire.Responses) {
		return nil, nil
	}
	return job, unavailable(err)
}

// retrieve answers with the current state of a background response.
func (rh *responseHandler) retrieve(x *request, r *http.Request, job *queue.Job) error {
	query := r.URL.Query()
	if query.Get("stream") != "true" {
		return rh.show(x, r, job)
	}
	if !job.Stream {
		return wire.BadRequest("stream", "invalid_value",
			"This response cannot be streamed: it was not created with stream=true")
	}
	after := int64(-1)
	if text := query.Get("starting_after"); text != "" {
		n, err := strconv.ParseInt(text, 10, 62)
		if err != nil || n < 0 {
			return wire.BadRequest("starting_after", "invalid_value",
				"starting_after must be the sequence_number of an event, not %q", shorten(text))
		}
		after = n
	}
	return rh.resume(x, r, job, after)
}

// requestCopies is how many copies of a request are in memory while its response is written: as
// stored in Redis, decrypted, and twice within the response.
const requestCopies = 4

// requestOf reads the request of a job; nil if it is no longer stored. Its memory is reserved until
// done is called.
func (rh *responseHandler) requestOf(ctx context.Context, job *queue.Job) (request []byte, done func(), err error) {
	room, memory := requestCopies*job.Bytes, rh.opts.Spool.Memory
	if err := memory.Take(ctx, job.Org, room, rh.bodies.roomWait); err != nil {
		return nil, nil, noRoom(err)
	}
	done = func() { memory.Give(job.Org, room) }
	request, err = rh.opts.Queue.Body(ctx, job)
	if err != nil && !errors.Is(err, queue.ErrNotFound) {
		done()
		return nil, nil, unavailable(err)
	}
	return request, done, nil
}

// modelOf returns what the record of a job tells of its request, as JSON.
func modelOf(job *queue.Job) []byte {
	request, _ := json.Marshal(map[string]string{"model": job.Model}) // strings only: cannot fail
	return request
}

func (rh *responseHandler) response(ctx context.Context, job *queue.Job) ([]byte, error) {
	id := queue.ResponseID(job.ID)
	if job.State == queue.Succeeded {
		if answer, err := rh.final(ctx, job); answer != nil || err != nil {
			return answer, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	request, done, err := rh.requestOf(ctx, job)
	if err != nil {
		return nil, err
	}
	defer done()
	if request == nil {
		request = modelOf(job)
	}
	status, failure := "in_progress", (*wire.Error)(nil)
	switch job.State {
	case queue.Queued:
		status = "queued"
	case queue.Cancelled:
		status = "cancelled"
	case queue.Failed, queue.Expired, queue.Succeeded:
		status, failure = "failed", jobError(job)
	}
	return wire.Pending(request, id, status, job.Created.Unix(), failure), nil
}

// show answers with the current state of a background response.
func (rh *responseHandler) show(x *request, r *http.Request, job *queue.Job) error {
	body, err := rh.response(r.Context(), job)
	if err != nil {
		return err
	}
	return x.document(body)
}

// record reads the whole output of a finished job.
func (rh *responseHandler) record(ctx context.Context, job *queue.Job, out io.Writer) error {
	watch := rh.opts.Queue.Follow(job)
	defer watch.Close()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for {
		e, err := watch.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return unavailable(err)
		case e.Kind == queue.Bytes:
			if _, err := out.Write(e.Data); err != nil {
				return noRoom(err)
			}
		}
	}
}

// final returns the response in the output of a finished job; nil if there is none.
func (rh *responseHandler) final(ctx context.Context, job *queue.Job) ([]byte, error) {
	kept := rh.opts.Spool.Buffer(ctx, job.Org, rh.bodies.roomWait)
	defer kept.Close()
	if err := rh.record(ctx, job, &kept); err != nil {
		return nil, err
	}
	answer, err := kept.Bytes()
	if err != nil {
		return nil, noRoom(err)
	}
	if job.Stream {
		answer = wire.FinalResponse(answer)
	}
	if len(answer) == 0 {
		return nil, nil
	}
	return wire.Renamed(answer, queue.ResponseID(job.ID)), nil
}

// cancelBackground cancels a job and waits briefly for a running one, so that its caller sees the
// end. A finished job is unchanged.
func (rh *responseHandler) cancelBackground(x *request, r *http.Request, job *queue.Job) error {
	job, err := rh.jobs.cancelled(r.Context(), job)
	if err != nil {
		return err
	}
	return rh.show(x, r, job)
}

// deleteBackground deletes a response, canceling it if it is still in progress.
func (rh *responseHandler) deleteBackground(x *request, r *http.Request, job *queue.Job) error {
	if _, err := rh.jobs.cancelled(r.Context(), job); err != nil {
		return err
	}
	if err := rh.opts.Queue.Erase(r.Context(), job.Org, job.ID); err != nil {
		return unavailable(err)
	}
	id := queue.ResponseID(job.ID)
	rh.forget(x, r, ownership.Note{ID: id})
	return x.json(http.StatusOK, map[string]any{"id": id, "object": "response", "deleted": true})
}
