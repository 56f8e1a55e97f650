package proxy

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/queue"
)

// newJob makes the record of a call that waits. Its body goes beside it.
func (s *Server) newJob(x *exchange, r *http.Request, plan *guard.Plan, class queue.Class) *queue.Job {
	return &queue.Job{
		ID: s.queue.NewID(plan.Target.Pool), Pool: plan.Target.Pool, CallID: x.id,
		Org: x.caller.Org.ID, User: x.caller.User, Key: x.caller.Key, Class: class,
		Endpoint: plan.Request.Endpoint, Model: plan.Request.Model, Stream: plan.Request.Stream,
		Tokens: plan.Quota, Cost: plan.Max.Cost, Header: kept(r.Header), Query: r.URL.RawQuery, IP: x.caller.IP,
	}
}

// kept picks the request headers a job takes along.
func kept(h http.Header) http.Header {
	out := http.Header{}
	for _, name := range []string{"Openai-Beta", "X-Client-Request-Id"} {
		if v := h.Values(name); len(v) > 0 {
			out[name] = v
		}
	}
	return out
}

// accept answers Prefer: respond-async with a job.
func (s *Server) accept(x *exchange, r *http.Request, plan *guard.Plan) error {
	if err := plan.Check(); err != nil {
		return err
	}
	job := s.newJob(x, r, plan, queue.Async)
	if most := plan.Caller.Org.MaxWait; most > 0 {
		job.Deadline = time.Now().Add(most)
	}
	if err := s.put(r.Context(), job, plan.Request.Body); err != nil {
		return err
	}
	x.job = job.ID
	h := x.Header()
	h.Set("Location", "/v1/jobs/"+job.ID)
	h.Set("Preference-Applied", "respond-async")
	h.Set("Vary", "Prefer")
	return x.json(http.StatusAccepted, s.view(r.Context(), job))
}

// put writes a job; the caller waits for Redis no longer than a live call does.
func (s *Server) put(ctx context.Context, job *queue.Job, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	return unavailable(s.queue.Put(ctx, job, body))
}

const putTimeout = 2 * time.Second

// wait queues a call whose caller stays connected, unless the wait that can be
// foreseen is longer than the caller's patience.
func (s *Server) wait(x *exchange, r *http.Request, plan *guard.Plan, wish wish, why error) error {
	patience := s.patience(x, r, plan.Request.Stream, wish)
	if foreseen(why) > patience {
		return why
	}
	job := s.newJob(x, r, plan, queue.Interactive)
	job.Deadline = time.Now().Add(patience + deadlineSlack)
	if err := s.put(r.Context(), job, plan.Request.Body); err != nil {
		return err
	}
	x.call, x.job = nil, job.ID
	started := time.Now()
	defer func() { x.waited = time.Since(started) }()
	s.metrics.waiting.Inc()
	defer s.metrics.waiting.Dec()

	watch := s.queue.Watch(r.Context(), job)
	defer watch.Close(context.WithoutCancel(r.Context()), 0)
	if len(wish.applied) > 0 {
		x.Header().Set("Preference-Applied", strings.Join(wish.applied, ", "))
	}
	waiting, stop := s.untilDrained(r.Context())
	defer stop()
	v := &visitor{
		server: s, exchange: x, job: job, watch: watch, stream: plan.Request.Stream,
		patience: started.Add(patience), waiting: waiting,
	}
	v.deadline = v.patience
	err := v.run(r.Context())
	v.bill(r.Context())
	return err
}

// deadlineSlack lets the caller's own end of patience come before the job's,
// so that the caller is told by its proxy and not by the queue.
const deadlineSlack = 5 * time.Second

// foreseen is the wait a refusal announces; held money may come back sooner.
func foreseen(err error) time.Duration {
	var exceeded *guard.Refusal
	var noQuota *queue.BusyError
	var busy *guard.BusyError
	switch {
	case errors.As(err, &exceeded):
		if exceeded.Soon {
			return 0
		}
		return exceeded.Binding.Wait
	case errors.As(err, &noQuota):
		return noQuota.Wait
	case errors.As(err, &busy):
		return busy.RetryAfter
	default:
		return 0
	}
}
