package admin

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"time"

	"github.com/llmguard/llmguard/queue"
)

// JobEvent is an event of a watched job.
type JobEvent struct {
	At      time.Time   `json:"at"`
	Status  queue.State `json:"status"` // at this time
	Attempt int         `json:"attempt"`
	// Data is the next part of the response, in base64. It is present only for local commands
	// with access to Redis, because over the network the response belongs to the caller.
	Data string `json:"data,omitempty"`
	// Error is why the job did not succeed.
	Error string `json:"error,omitempty"`
}

// quiet is the interval of keep-alive events while a job's state does not change.
// Intermediaries would close a connection that is silent for longer.
const quiet = 15 * time.Second

// followJob streams a job's states and, for local commands, its response.
func (h *jobHandler) followJob(c *call) (any, error) {
	q, j, err := h.job(c)
	if err != nil {
		return nil, err
	}
	return followed(func(line func(any) error) error {
		watch := q.Follow(j)
		defer watch.Close()
		return h.tell(c, q, j, watch, line)
	}), nil
}

func (h *jobHandler) tell(c *call, q *queue.Queue, j *queue.Job, watch *queue.Watch, line func(any) error) error {
	now, ctx := JobEvent{Status: j.State, Attempt: j.Attempt}, c.r.Context()
	for {
		e, err := watch.NextBefore(ctx, time.Now().Add(quiet))
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
			e = queue.Event{Kind: queue.Changed, Attempt: now.Attempt, State: now.Status}
		case ctx.Err() != nil:
			return errors.Join(errGone, err)
		case err != nil:
			return jobError(err)
		}
		now.At = time.Now().UTC()
		now.Attempt = e.Attempt
		now.Data = ""
		switch e.Kind {
		case queue.Changed:
			now.Status = e.State
			if e.State.Terminal() {
				now.Error, err = whyEnded(ctx, q, j)
				if err != nil {
					return jobError(err)
				}
			}
		case queue.Bytes:
			if !c.actor.local {
				continue
			}
			now.Data = base64.StdEncoding.EncodeToString(e.Data)
		default:
			continue
		}
		if err := line(now); err != nil {
			return err
		}
	}
}

func whyEnded(ctx context.Context, q *queue.Queue, j *queue.Job) (string, error) {
	end, err := q.Job(ctx, j.Org, j.ID)
	if err != nil || end.Error == nil {
		return "", err
	}
	return end.Error.Message, nil
}
