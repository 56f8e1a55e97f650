package admin

import (
	"errors"

	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// Job is where a job stands.
type Job struct {
	ID         string `json:"id"`
	Org        string `json:"org"`
	User       string `json:"user"`
	Model      string `json:"model"`
	Status     string `json:"status"` // queued, running, succeeded, failed, cancelled or expired
	Cancelling bool   `json:"cancelling"`
	ReplayOf   string `json:"replay_of,omitempty"`   // the dead letter that this one replays
	ReplayedAs string `json:"replayed_as,omitempty"` // the job that replays this dead letter
}

func viewJob(j *queue.Job) Job {
	return Job{ID: j.ID, Org: j.Org, User: j.User, Model: j.Model, Status: string(j.State), Cancelling: j.Cancelling, ReplayOf: j.Origin, ReplayedAs: j.Replay}
}

// Batch is where a batch stands.
type Batch struct {
	ID     string `json:"id"`
	Org    string `json:"org"`
	User   string `json:"user"`
	Status string `json:"status"`
}

func viewBatch(b *batch.Batch) Batch {
	return Batch{ID: b.ID, Org: b.Org, User: b.User, Status: string(b.Status)}
}

type workOrder struct {
	Reason string `json:"reason,omitempty"`
}

// jobError words an error of the queue's.
func jobError(err error) error {
	var full *queue.FullError
	switch {
	case errors.Is(err, queue.ErrNotFound):
		return wire.NotFound("job", "job_not_found", "There is no such job any more")
	case errors.Is(err, queue.ErrNotDead):
		return conflict("not_a_dead_letter", "The job is no dead letter. It cannot be replayed")
	case errors.As(err, &full):
		return conflict("queue_full", "The queue takes no more jobs now: "+err.Error())
	}
	return err
}

// work reads an order about jobs and opens the queue.
func (c *call) work() (workOrder, *queue.Queue, error) {
	var order workOrder
	if err := c.read(&order); err != nil {
		return order, nil, err
	}
	q, err := c.queue()
	return order, q, err
}

func (c *call) queue() (*queue.Queue, error) {
	if c.o.Queue == nil {
		return nil, noWork("jobs")
	}
	return c.o.Queue(c.r.Context())
}

func (c *call) cancelJob() (any, error) {
	order, q, err := c.work()
	if err != nil {
		return nil, err
	}
	before, err := q.Job(c.r.Context(), c.r.PathValue("org"), c.r.PathValue("job"))
	if err != nil {
		return nil, jobError(err)
	}
	after, err := c.endJob(q, before, order.Reason)
	return after, err
}

// endJob cancels a job and records that.
func (c *call) endJob(q *queue.Queue, before *queue.Job, reason string) (Job, error) {
	after, err := q.Cancel(c.r.Context(), before.Org, before.ID)
	if err != nil {
		return Job{}, jobError(err)
	}
	e := c.entry("job.cancel", before.Org, before.ID)
	e.Reason = reason
	return viewJob(after), c.commit(e, viewJob(before), viewJob(after))
}

func (c *call) replayJob() (any, error) {
	order, q, err := c.work()
	if err != nil {
		return nil, err
	}
	id := c.r.PathValue("job")
	made, err := q.Replay(c.r.Context(), id)
	switch {
	case errors.Is(err, queue.ErrNotFound):
		return nil, wire.NotFound("job", "job_not_found", "There is no such dead letter any more")
	case err != nil:
		return nil, jobError(err)
	}
	before := viewJob(made)
	before.ID, before.Status, before.ReplayOf = id, string(queue.Failed), "" // as every dead letter
	e := c.entry("job.replay", made.Org, id)
	e.Reason = order.Reason
	return created{viewJob(made)}, c.commit(e, before, viewJob(made))
}

func (c *call) cancelBatch() (any, error) {
	var order workOrder
	if err := c.read(&order); err != nil {
		return nil, err
	}
	if c.o.Batches == nil {
		return nil, noWork("batches")
	}
	org, user, id := c.r.PathValue("org"), c.r.PathValue("user"), c.r.PathValue("batch")
	before, err := c.o.Batches.Batch(c.r.Context(), org, user, id)
	if err != nil {
		return nil, batchError(err)
	}
	after, err := c.endBatch(before, order.Reason)
	return after, err
}

// endBatch cancels a batch and records that.
func (c *call) endBatch(before *batch.Batch, reason string) (Batch, error) {
	after, err := c.o.Batches.Cancel(c.r.Context(), before.Org, before.User, before.ID)
	if err != nil {
		return Batch{}, batchError(err)
	}
	e := c.entry("batch.cancel", before.Org, before.ID)
	e.Reason = reason
	return viewBatch(after), c.commit(e, viewBatch(before), viewBatch(after))
}

func batchError(err error) error {
	if errors.Is(err, batch.ErrNotFound) {
		return wire.NotFound("batch", "batch_not_found", "The batch is gone, or has ended")
	}
	return err
}

func noWork(what string) error {
	return wire.BadRequest("", "not_here", "This process has no %s", what)
}

func conflict(code, text string) error {
	return &wire.Error{Status: 409, Type: "invalid_request_error", Code: code, Message: text}
}

// cancelOf cancels what a key has under way: batches first, which would make new jobs.
func (c *call) cancelOf(org, user, key, reason string) error {
	q, err := c.queue()
	if err != nil {
		return err
	}
	if c.o.Batches != nil {
		if err := c.cancelBatchesOf(org, user, key, reason); err != nil {
			return err
		}
	}
	for after := ""; ; {
		page, err := q.List(c.r.Context(), org, queue.Filter{User: user}, after, 100)
		if err != nil {
			return err
		}
		for _, j := range page.Jobs {
			if j.Key != key || j.State.Terminal() {
				continue
			}
			if _, err := c.endJob(q, j, reason); err != nil {
				return err
			}
		}
		if after = page.Next; !page.More {
			return nil
		}
	}
}

func (c *call) cancelBatchesOf(org, user, key, reason string) error {
	for after := ""; ; {
		page, more, err := c.o.Batches.List(c.r.Context(), org, user, after, 100)
		if err != nil {
			return err
		}
		for _, b := range page {
			after = b.ID
			if b.Key != key || b.Status.Terminal() {
				continue
			}
			if _, err := c.endBatch(b, reason); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}
