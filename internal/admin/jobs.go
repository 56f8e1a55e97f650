package admin

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// JobLine is a job for programs; amounts are nano-USD, times RFC 3339.
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
	Ahead    *int        `json:"ahead,omitempty"`
	ETA      *int64      `json:"eta_seconds,omitempty"`
	// WaitingFor is limit:<id>, cap or pool:<id>.
	WaitingFor string       `json:"waiting_for,omitempty"`
	Estimate   pricing.Nano `json:"estimated_nano_usd"`
	Charged    pricing.Nano `json:"charged_nano_usd"`
	Status     int          `json:"status_code,omitempty"`
	Code       string       `json:"code,omitempty"`
	Error      string       `json:"error,omitempty"`

	ReplayOf   string `json:"replay_of,omitempty"`
	ReplayedAs string `json:"replayed_as,omitempty"`
}

// JobLineOf is a job for programs.
func JobLineOf(j *queue.Job) JobLine {
	l := JobLine{
		ID: j.ID, State: j.State, Stopping: j.Cancelling, Pool: j.Pool, Class: j.Class.String(), Org: j.Org, User: j.User, Key: j.Key,
		Model: j.Model, Endpoint: string(j.Endpoint), Stream: j.Stream, Tokens: j.Tokens, Bytes: j.Bytes, Attempts: j.Attempt,
		Created: j.Created.UTC(), Started: moment(j.Started), Finished: moment(j.Finished), Deadline: moment(j.Deadline),
		Estimate: j.Cost, Charged: j.Charged, Status: j.Status, Code: j.Code, ReplayOf: j.Origin, ReplayedAs: j.Replay,
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

var jobStates = []queue.State{queue.Queued, queue.Running, queue.Succeeded, queue.Failed, queue.Cancelled, queue.Expired}

var orgsParameter = parameter{"org", "Only these orgs', with commas between; left out: all"}

// wantedOrgs are the orgs that the query names, all of them when it names none.
func (c *call) wantedOrgs() ([]string, error) {
	text := c.r.URL.Query().Get("org")
	if text == "" {
		var out []string
		for _, o := range c.o.Effective().Orgs {
			out = append(out, o.ID)
		}
		return out, nil
	}
	out := strings.Split(text, ",")
	for i, org := range out {
		org = strings.TrimSpace(org)
		out[i] = org
		if _, _, err := c.org(org); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// most reads the limit of a list: 1 to 1000.
func (c *call) most(usual int) (int, error) {
	text := c.r.URL.Query().Get("limit")
	if text == "" {
		return usual, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1000 {
		return 0, wire.BadRequest("limit", "invalid_value", "limit must be a whole number from 1 to 1000")
	}
	return n, nil
}

// listJobs merges the orgs' newest jobs.
func (c *call) listJobs() (any, error) {
	q := c.r.URL.Query()
	want := queue.Filter{User: q.Get("user"), Model: q.Get("model"), State: queue.State(q.Get("status"))}
	if want.State != "" && !slices.Contains(jobStates, want.State) {
		return nil, wire.BadRequest("status", "invalid_value", "status must be one of %s", stateNames())
	}
	limit, err := c.most(50)
	if err != nil {
		return nil, err
	}
	if err := c.instant("since", &want.Since); err != nil {
		return nil, err
	}
	orgs, err := c.wantedOrgs()
	if err != nil {
		return nil, err
	}
	jobs, err := c.queue()
	if err != nil {
		return nil, err
	}
	var out []JobLine
	more := false
	for _, org := range orgs {
		list, rest, err := c.jobsOf(jobs, org, want, limit)
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

func stateNames() string {
	texts := make([]string, len(jobStates))
	for i, s := range jobStates {
		texts[i] = string(s)
	}
	return strings.Join(texts, ", ")
}

// jobsOf reads an org's newest jobs of a kind, page by page until there are enough.
func (c *call) jobsOf(q *queue.Queue, org string, want queue.Filter, limit int) (out []JobLine, more bool, err error) {
	for after := ""; ; {
		page, err := q.List(c.r.Context(), org, want, after, limit)
		if err != nil {
			return nil, false, err
		}
		for _, j := range page.Jobs {
			out = append(out, JobLineOf(j))
		}
		if after = page.Next; !page.More || len(out) >= limit {
			return out, page.More, nil
		}
	}
}

// getJob shows a job of any org, with its place while it waits.
func (c *call) getJob() (any, error) {
	q, j, err := c.job()
	if err != nil {
		return nil, err
	}
	l := JobLineOf(j)
	if j.State == queue.Queued {
		err = c.place(q, j, &l)
	}
	return l, err
}

// job finds the job of the path, of any of the orgs that are wanted, and its queue.
func (c *call) job() (*queue.Queue, *queue.Job, error) {
	q, err := c.queue()
	if err != nil {
		return nil, nil, err
	}
	orgs, err := c.wantedOrgs()
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
	return nil, nil, wire.NotFound("job", "job_not_found", "There is no job %.80q. It is forgotten %s after its end (queue.result_ttl)", id, budget.LastingText(c.o.File().ResultTTL))
}

// place notes where a waiting job stands.
func (c *call) place(q *queue.Queue, j *queue.Job, l *JobLine) error {
	at, err := q.Place(c.r.Context(), func(ctx context.Context, w guard.Waiter) (*guard.Room, error) {
		return c.o.Policy().Room(ctx, c.o.Budget, w)
	}, j)
	if err != nil {
		return err
	}
	l.Ahead = &at.Ahead
	l.WaitingFor = at.WaitingFor
	if at.ETA >= 0 {
		seconds := int64((at.ETA + time.Second - 1) / time.Second)
		l.ETA = &seconds
	}
	return nil
}
