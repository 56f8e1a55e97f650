package proxy

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// jobView is a job as its owner sees it. Times are Unix seconds.
type jobView struct {
	ID         string        `json:"id"`
	Object     string        `json:"object"`
	Status     queue.State   `json:"status"`
	Cancelling bool          `json:"cancelling,omitempty"`
	Endpoint   string        `json:"endpoint"`
	Model      string        `json:"model"`
	Labels     ledger.Labels `json:"labels,omitempty"`
	Run        string        `json:"run,omitempty"`
	Created    int64         `json:"created_at"`
	Started    *int64        `json:"started_at"`
	Finished   *int64        `json:"finished_at"`
	Expires    *int64        `json:"expires_at,omitempty"`
	Priority   string        `json:"priority"`
	Deadline   *int64        `json:"deadline,omitempty"`
	Attempts   int           `json:"attempts"`
	Next       *int64        `json:"next_attempt_at,omitempty"`
	Ahead      *int          `json:"ahead,omitempty"`
	ETA        *int64        `json:"eta_seconds,omitempty"`
	WaitingFor string        `json:"waiting_for,omitempty"`
	Estimate   string        `json:"estimated_cost_usd"`
	Held       *string       `json:"held_cost_usd"`
	Charged    *string       `json:"charged_cost_usd"`
	HTTPStatus *int          `json:"status_code,omitempty"`
	Error      *viewError    `json:"error,omitempty"`
	ResultURL  string        `json:"result_url,omitempty"`
}

type viewError struct {
	Type    string `json:"type"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message"`
}

// jobHandler serves /v1/jobs.
type jobHandler struct {
	opts        *Options
	connections *connections
	stopWait    time.Duration // how long a cancel waits for the job's worker
}

// view describes a job, with its place in the queue while it waits.
func (jh *jobHandler) view(ctx context.Context, j *queue.Job) jobView {
	v := viewOf(j)
	if j.State == queue.Queued {
		if place, err := jh.opts.Queue.Place(ctx, jh.opts.Guard.Rooms(), j); err == nil {
			v.place(place)
		}
	}
	return v
}

func (v *jobView) place(at queue.Place) {
	v.Ahead, v.WaitingFor = &at.Ahead, at.Cause.Public()
	if at.ETA >= 0 {
		v.ETA = new(wholeSeconds(at.ETA))
	}
}

// wholeSeconds rounds up, so that no caller retries too early.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// viewOf returns a job without its place in the queue.
func viewOf(j *queue.Job) jobView {
	v := jobView{
		ID: j.ID, Object: "job", Status: j.State, Cancelling: j.Cancelling, Endpoint: "/v1" + j.Endpoint.Path(),
		Model: j.Model, Labels: j.Labels, Run: j.Run.ID(),
		Created: j.Created.Unix(), Started: unix(j.Started), Finished: unix(j.Finished), Expires: unix(j.Deadline),
		Attempts: j.Attempt, Estimate: usd(int64(j.Cost)), Priority: j.Priority.String(),
	}
	if j.ByDeadline {
		v.Deadline = v.Expires
	}
	if j.State == queue.Queued && j.Again.After(time.Now()) {
		v.Next = unix(j.Again)
	}
	if j.State == queue.Running {
		v.Held = &v.Estimate
	}
	if j.State.Terminal() {
		v.Charged = new(usd(int64(j.Charged)))
	}
	if j.Status != 0 {
		v.HTTPStatus = &j.Status
		v.ResultURL = "/v1/jobs/" + j.ID + "/result"
	}
	if e := j.Error; e != nil {
		v.Error = &viewError{Type: e.Type, Code: e.Code, Message: e.Message}
	}
	return v
}

func unix(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return new(t.Unix())
}

// ownJob returns a job of the caller's org and user. The jobs of others do not exist.
func (jh *jobHandler) ownJob(ctx context.Context, x *request, id string) (*queue.Job, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	job, err := jh.opts.Queue.Job(ctx, x.caller.Org.ID, id)
	if errors.Is(err, queue.ErrNotFound) || (err == nil && !x.owns(job)) {
		return nil, wire.NotFound("id", "job_not_found", "No such job: %s", shorten(id))
	}
	return job, unavailable(err)
}

// owns reports whether a job is the caller's own; for the key of a run that has ended, whether it is of that run.
func (x *request) owns(j *queue.Job) bool {
	return j.User == x.caller.User && j.UserBorn == x.caller.UserBorn && (!x.past || j.Run.Within(x.caller.Run))
}

const storeTimeout = 2 * time.Second

func (jh *jobHandler) oneJob(x *request, r *http.Request, id string) error {
	if r.Method == http.MethodDelete {
		return jh.cancelJob(x, r, id)
	}
	job, err := jh.ownJob(r.Context(), x, id)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, jh.view(r.Context(), job))
}

func wantedJobs(query url.Values) (f queue.Filter, limit int, err error) {
	limit, err = limitOf(query, 20, 100)
	if err != nil {
		return f, 0, err
	}
	f.Model, f.State = query.Get("model"), queue.State(query.Get("status"))
	if f.State != "" && f.State != queue.Queued && f.State != queue.Running && !f.State.Terminal() {
		return f, 0, wire.BadRequest("status", "invalid_value",
			"status must be queued, running, succeeded, failed, cancelled or expired, not %q", shorten(string(f.State)))
	}
	if text := query.Get("since"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds < 0 || seconds > 1<<40 {
			return f, 0, wire.BadRequest("since", "invalid_value", "since must be a Unix time in seconds, not %q", shorten(text))
		}
		f.Since = time.Unix(seconds, 0)
	}
	return f, limit, nil
}

// listJobs lists the caller's own jobs. For a caller, other users have no jobs.
func (jh *jobHandler) listJobs(x *request, r *http.Request, _ string) error {
	query := r.URL.Query()
	f, limit, err := wantedJobs(query)
	if err != nil {
		return err
	}
	// LastID is where the next page continues; with filters it need not be in Data.
	list := list[jobView]{Object: "list", Data: []jobView{}}
	if user := query.Get("user"); user != "" && user != x.caller.User {
		return x.json(http.StatusOK, list)
	}
	f.User, f.Born = x.caller.User, &x.caller.UserBorn
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	page, err := jh.opts.Queue.List(ctx, x.caller.Org.ID, f, query.Get("after"), limit)
	if errors.Is(err, queue.ErrNotFound) {
		return wire.BadRequest("after", "invalid_value", "after must be the id of one of your jobs")
	}
	if err != nil {
		return unavailable(err)
	}
	for _, j := range page.Jobs {
		list.Data = append(list.Data, jh.view(ctx, j))
	}
	if n := len(page.Jobs); n > 0 {
		list.FirstID = &page.Jobs[0].ID
	}
	list.HasMore = page.More
	if page.More || len(page.Jobs) > 0 {
		list.LastID = &page.Next
		if !page.More {
			list.LastID = &page.Jobs[len(page.Jobs)-1].ID
		}
	}
	return x.json(http.StatusOK, list)
}

// cancelJob cancels a waiting job immediately. For a job that a worker holds, it waits briefly and
// returns its state: canceled, or still canceling. A job that has already ended is returned
// unchanged.
func (jh *jobHandler) cancelJob(x *request, r *http.Request, id string) error {
	job, err := jh.ownJob(r.Context(), x, id)
	if err != nil {
		return err
	}
	job, err = jh.cancelled(r.Context(), job)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, jh.view(r.Context(), job))
}

// cancelled cancels a job and gives a worker that holds it a moment to stop, so that the caller
// sees the end.
func (jh *jobHandler) cancelled(ctx context.Context, job *queue.Job) (*queue.Job, error) {
	ask, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	job, err := jh.opts.Queue.Cancel(ask, job.Org, job.ID)
	if err != nil {
		return nil, unavailable(err)
	}
	wait, stop := context.WithTimeout(ctx, jh.stopWait)
	defer stop()
	job, err = jh.opts.Queue.Ended(wait, job)
	return job, unavailable(err)
}

// jobResult returns the stored answer in the form of a live answer.
func (jh *jobHandler) jobResult(x *request, r *http.Request, id string) error {
	job, err := jh.ownJob(r.Context(), x, id)
	if err != nil {
		return err
	}
	x.job = job.ID
	if !job.State.Terminal() {
		return wire.NotFinished("The job is "+string(job.State)+". Retry later, or poll GET /v1/jobs/"+job.ID,
			2*time.Second)
	}
	return jh.replay(r.Context(), x, job)
}

func (jh *jobHandler) replay(ctx context.Context, x *request, job *queue.Job) error {
	watch := jh.opts.Queue.Watch(ctx, job)
	defer watch.Close()
	for {
		next, cancel := context.WithTimeout(ctx, storeTimeout)
		e, err := watch.Next(next)
		cancel()
		switch {
		case errors.Is(err, io.EOF) && x.status == 0:
			return jobError(job)
		case errors.Is(err, queue.ErrNotFound):
			return wire.NotFound("id", "job_not_found", "The job's result has expired: %s", shorten(job.ID))
		case err != nil: // including an answer that broke off
			return unavailable(err)
		case e.Kind == queue.Head:
			maps.Copy(x.Header(), e.Header)
			x.Header().Set(headerJob, job.ID)
			x.WriteHeader(e.Status)
		case e.Kind == queue.Bytes:
			if _, err := x.Write(e.Data); err != nil {
				return guard.ErrGone
			}
		case e.Kind == queue.End && (e.OK || x.status >= 400):
			return nil
		}
	}
}
