package admin

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// JobLine is a job in machine-readable form; amounts are in nano-USD, times in RFC 3339.
type JobLine struct {
	ID       string      `json:"id"`
	State    queue.State `json:"status"`
	Stopping bool        `json:"cancelling,omitempty"`
	Pool     string      `json:"pool"`
	Class    string      `json:"class"`
	Org      string      `json:"org"`
	User     string      `json:"user"`
	Key      string      `json:"key"`
	Model    string      `json:"model"`
	Endpoint string      `json:"endpoint"`
	Stream   bool        `json:"stream"`
	Tokens   int64       `json:"tokens"`
	Bytes    int64       `json:"bytes"`
	Attempts int         `json:"attempts"`
	Next     *time.Time  `json:"next_attempt_at,omitempty"`
	Created  time.Time   `json:"created_at"`
	Started  *time.Time  `json:"started_at"`
	Finished *time.Time  `json:"finished_at"`
	Deadline *time.Time  `json:"expires_at"`
	Priority string      `json:"priority"`
	// StartBy is the deadline that the request named; null: it named none.
	StartBy *time.Time `json:"deadline"`
	Ahead   *int       `json:"ahead,omitempty"`
	ETA     *int64     `json:"eta_seconds,omitempty"`
	// WaitingFor is a cause, such as limit:<id> or pool:<id>, or cap.
	WaitingFor string       `json:"waiting_for,omitempty"`
	Estimate   pricing.Nano `json:"estimated_nano_usd"`
	Charged    pricing.Nano `json:"charged_nano_usd"`
	Status     int          `json:"status_code,omitempty"`
	Code       string       `json:"code,omitempty"`
	Error      string       `json:"error,omitempty"`

	ReplayOf   string `json:"replay_of,omitempty"`
	ReplayedAs string `json:"replayed_as,omitempty"`
}

// JobLineOf returns a job in machine-readable form.
func JobLineOf(j *queue.Job) JobLine {
	l := JobLine{
		ID: j.ID, State: j.State, Stopping: j.Cancelling, Pool: j.Pool, Class: j.Class.String(), Org: j.Org, User: j.User,
		Key:   j.Key,
		Model: j.Model, Endpoint: string(j.Endpoint), Stream: j.Stream, Tokens: j.Tokens, Bytes: j.Bytes, Attempts: j.Attempt,
		Created: j.Created.UTC(), Started: moment(j.Started), Finished: moment(j.Finished), Deadline: moment(j.Deadline),
		Estimate: j.Cost, Charged: j.Charged, Status: j.Status, Code: j.Code, ReplayOf: j.Origin, ReplayedAs: j.Replay,
		Priority: j.Priority.String(),
	}
	if j.ByDeadline {
		l.StartBy = l.Deadline
	}
	if j.Error != nil {
		l.Error = j.Error.Message
	}
	if j.State == queue.Queued && j.Again.After(time.Now()) {
		l.Next = moment(j.Again)
	}
	return l
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

type jobPage struct {
	page[JobLine]
	HasMore bool `json:"has_more"`
}

var jobStates = []string{
	string(queue.Queued), string(queue.Running), string(queue.Succeeded), string(queue.Failed), string(queue.Cancelled),
	string(queue.Expired),
}

type jobHandler struct {
	base
	batches *batchHandler
}

// listJobs merges the newest jobs of the orgs.
func (h *jobHandler) listJobs(c *call) (any, error) {
	q := c.r.URL.Query()
	want := queue.Filter{User: q.Get("user"), Model: q.Get("model"), State: queue.State(q.Get("status"))}
	if want.State != "" && !slices.Contains(jobStates, string(want.State)) {
		return nil, invalid("status", "status must be one of %s", strings.Join(jobStates, ", "))
	}
	limit, err := c.most(50)
	if err != nil {
		return nil, err
	}
	if err := c.instant("since", &want.Since); err != nil {
		return nil, err
	}
	orgs, err := h.dir.wantedOrgs(c)
	if err != nil {
		return nil, err
	}
	jobs, err := h.queue(c)
	if err != nil {
		return nil, err
	}
	var out []JobLine
	more := false
	for _, org := range orgs {
		list, rest, err := h.jobsOf(c, jobs, org, want, limit)
		if err != nil {
			return nil, err
		}
		out, more = append(out, list...), more || rest
	}
	slices.SortStableFunc(out, func(a, b JobLine) int { return b.Created.Compare(a.Created) })
	if len(out) > limit {
		out, more = out[:limit], true
	}
	return jobPage{listOf(out), more}, nil
}

// jobsOf reads up to limit of an org's newest jobs of a kind, page by page.
func (h *jobHandler) jobsOf(c *call, q *queue.Queue, org string, want queue.Filter,
	limit int,
) (out []JobLine, more bool, err error) {
	for after := ""; ; {
		page, err := q.List(c.r.Context(), org, want, after, limit)
		if err != nil {
			return nil, false, err
		}
		for _, j := range page.Jobs {
			out = append(out, JobLineOf(j))
		}
		after = page.Next
		if !page.More || len(out) >= limit {
			return out, page.More, nil
		}
	}
}

// getJob shows a job of any org, with its position while it waits.
func (h *jobHandler) getJob(c *call) (any, error) {
	q, j, err := h.job(c)
	if err != nil {
		return nil, err
	}
	l := JobLineOf(j)
	if j.State == queue.Queued {
		_, err = h.place(c, q, j, &l)
	}
	return l, err
}

// job finds the job of the path in the wanted orgs, and returns it with its queue.
func (h *jobHandler) job(c *call) (*queue.Queue, *queue.Job, error) {
	q, err := h.queue(c)
	if err != nil {
		return nil, nil, err
	}
	orgs, err := h.dir.wantedOrgs(c)
	if err != nil {
		return nil, nil, err
	}
	id := c.r.PathValue("job")
	for _, org := range orgs {
		j, err := q.Job(c.r.Context(), org, id)
		if !errors.Is(err, queue.ErrNotFound) {
			return q, j, err
		}
	}
	return nil, nil, wire.NotFound("job", "job_not_found",
		"There is no job %.80q. Finished jobs are deleted after %s (queue.result_ttl)", id,
		figures.Lasting(h.opts.File().ResultTTL))
}

// place sets the position of a waiting job.
func (h *jobHandler) place(c *call, q *queue.Queue, j *queue.Job, l *JobLine) (queue.Place, error) {
	at, err := q.Place(c.r.Context(), guard.Rooms{Policy: h.opts.Policy(), Store: h.opts.Budget}, j)
	if err != nil {
		return at, err
	}
	l.Ahead = &at.Ahead
	l.WaitingFor = at.Cause.Public()
	if at.ETA >= 0 {
		seconds := int64((at.ETA + time.Second - 1) / time.Second)
		l.ETA = &seconds
	}
	return at, nil
}

// Job is the state of a job.
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
	return Job{
		ID: j.ID, Org: j.Org, User: j.User, Model: j.Model, Status: string(j.State), Cancelling: j.Cancelling,
		ReplayOf: j.Origin, ReplayedAs: j.Replay,
	}
}

type workOrder struct {
	Reason string `json:"reason,omitempty"`
}

func jobError(err error) error {
	var full *queue.FullError
	switch {
	case errors.Is(err, queue.ErrNotFound):
		return wire.NotFound("job", "job_not_found", "The job no longer exists")
	case errors.Is(err, queue.ErrNotDead):
		return conflict("not_a_dead_letter", "The job is not a dead letter, so it cannot be replayed")
	case errors.As(err, &full):
		return conflict("queue_full", "The queue is full: "+err.Error())
	}
	return err
}

func (h *jobHandler) queue(c *call) (*queue.Queue, error) {
	if h.opts.Queue == nil {
		return nil, noWork("jobs")
	}
	return h.opts.Queue(c.r.Context())
}

// open makes a handler of one that needs the queue.
func (h *jobHandler) open(serve func(*call, *queue.Queue) (any, error)) handler {
	return func(c *call) (any, error) {
		q, err := h.queue(c)
		if err != nil {
			return nil, err
		}
		return serve(c, q)
	}
}

func (h *jobHandler) cancelJob(c *call, q *queue.Queue) (any, error) {
	before, err := q.Job(c.r.Context(), c.r.PathValue("org"), c.r.PathValue("job"))
	if err != nil {
		return nil, jobError(err)
	}
	return h.endJob(c, q, before)
}

func (h *jobHandler) endJob(c *call, q *queue.Queue, before *queue.Job) (Job, error) {
	after, err := q.Cancel(c.r.Context(), before.Org, before.ID)
	if err != nil {
		return Job{}, jobError(err)
	}
	return viewJob(after), h.audit.commit(c, c.entryOf("cancelJob", before.Org, before.ID), viewJob(before),
		viewJob(after))
}

func (h *jobHandler) replayJob(c *call, q *queue.Queue) (any, error) {
	id := c.r.PathValue("job")
	made, err := q.Replay(c.r.Context(), id)
	switch {
	case errors.Is(err, queue.ErrNotFound):
		return nil, wire.NotFound("job", "job_not_found", "The dead letter no longer exists")
	case err != nil:
		return nil, jobError(err)
	}
	before := viewJob(made)
	before.ID = id
	before.Status = string(queue.Failed)
	before.ReplayOf = "" // the dead letter itself replays nothing
	return created{viewJob(made)}, h.audit.commit(c, c.entry(made.Org, id), before, viewJob(made))
}

// cancelOf cancels a key's work in progress: batches first, because they would create new jobs.
func (h *jobHandler) cancelOf(c *call, org, user, key string) error {
	q, err := h.queue(c)
	if err != nil {
		return err
	}
	if h.opts.Batches != nil {
		if err := h.batches.cancelBatchesOf(c, org, user, key); err != nil {
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
			if _, err := h.endJob(c, q, j); err != nil {
				return err
			}
		}
		after = page.Next
		if !page.More {
			return nil
		}
	}
}

func noWork(what string) error {
	return wire.BadRequest("", "not_here", "This process has no %s", what)
}

func conflict(code, text string) *wire.Error {
	return &wire.Error{Status: http.StatusConflict, Type: "invalid_request_error", Code: code, Message: text}
}
