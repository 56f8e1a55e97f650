package proxy

import (
	"net/http"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/quota"
)

const (
	headerPriority = "Llmguard-Priority"
	headerDeadline = "Llmguard-Deadline"
	// headerPriorityIs reports the priority of a call in its answer.
	headerPriorityIs = "X-Llmguard-Priority"
)

// chosenPriority returns the priority that a request names, or nil.
func chosenPriority(h http.Header) (*quota.Priority, error) {
	list := h.Values(headerPriority)
	if len(list) == 0 {
		return nil, nil
	}
	p, err := quota.ParsePriority(list[0])
	if err != nil || len(list) > 1 {
		return nil, wire.BadRequest(headerPriority, "invalid_priority", "%s must be high, normal or low, not %q",
			headerPriority, shorten(list[len(list)-1]))
	}
	return &p, nil
}

// deadlineOf returns the time by which a request has to start; zero if it names none.
func deadlineOf(h http.Header, now time.Time) (time.Time, error) {
	list := h.Values(headerDeadline)
	if len(list) == 0 {
		return time.Time{}, nil
	}
	text := list[0]
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		var d time.Duration
		d, err = settings.ParseDuration(text)
		at = now.Add(d)
	}
	switch {
	case err != nil || len(list) > 1:
		return time.Time{}, wire.BadRequest(headerDeadline, "invalid_deadline",
			"%s must be one duration from now such as 30s, 5m or 1h, or one time such as 2027-01-31T18:00:00Z, not %q",
			headerDeadline, shorten(text))
	case !at.After(now):
		return time.Time{}, wire.BadRequest(headerDeadline, "invalid_deadline",
			"%s must be in the future; %q is not", headerDeadline, shorten(text))
	}
	return at, nil
}

// prioritize reads the priority and the deadline of a call, and reports the priority if the call
// chose one or has another than normal.
func (w *preferences) prioritize(x *request, h http.Header, plan *guard.Plan) error {
	chosen, err := chosenPriority(h)
	if err != nil {
		return err
	}
	w.deadline, err = deadlineOf(h, x.arrived)
	if err != nil {
		return err
	}
	w.priority = plan.Priority(chosen)
	if chosen != nil || w.priority != quota.Normal {
		x.Header().Set(headerPriorityIs, w.priority.String())
	}
	return nil
}

// order sets a job's priority, and its deadline unless it has an earlier one.
func (w *preferences) order(job *queue.Job) {
	job.Priority = w.priority
	if w.deadline.IsZero() {
		return
	}
	job.ByDeadline = true
	if job.Deadline.IsZero() || w.deadline.Before(job.Deadline) {
		job.Deadline = w.deadline
	}
}
