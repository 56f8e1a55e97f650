package console

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/queue"
)

const flowAge = 3 * time.Second

// waiting returns the flows waiting in each pool. With a hundred thousand waiting jobs, reading them takes longer than
// a page may take.
func (c *Console) waiting(ctx context.Context) (map[string][]queue.Waiting, error) {
	out := map[string][]queue.Waiting{}
	for _, p := range c.o.Pools() {
		list, err := c.o.Queue.Waiting(ctx, p.ID)
		if err != nil {
			return nil, err
		}
		out[p.ID] = list
	}
	return out, nil
}

// shownFlows is how many flows a pool's table has, longest waiting first.
const shownFlows = 25

type poolView struct {
	poolLine
	Flows     []queue.Waiting
	AllFlows  int
	FlowsAt   time.Time // when the flows were read; zero: not yet
	At        time.Time // of everything else
	Parked    []queue.Parked
	AllParked int
	DeadJobs  []*queue.Job
	MoreDead  bool
}

// queuePage shows the pools: quota, waiting jobs, paused flows, dead letters.
func (c *Console) queuePage(v *visit) error {
	ctx := v.r.Context()
	lines, err := c.poolLines(ctx)
	if err != nil {
		return err
	}
	var views []poolView
	flows, read, _ := c.flows.load(ctx)
	for _, line := range lines {
		view := poolView{poolLine: line, At: c.o.Now(), Flows: flows[line.ID], FlowsAt: read}
		view.AllFlows = len(view.Flows)
		view.Flows = view.Flows[:min(shownFlows, len(view.Flows))]
		view.Parked, err = c.o.Queue.Parked(ctx, line.ID)
		if err != nil {
			return err
		}
		view.AllParked = len(view.Parked)
		view.Parked = view.Parked[:min(shownFlows, len(view.Parked))]
		view.DeadJobs, view.MoreDead, err = c.o.Queue.DeadLetters(ctx, line.ID, "", 10)
		if err != nil {
			return err
		}
		views = append(views, view)
	}
	return v.show("queue", "Queue", views)
}

type jobsView struct {
	Orgs                     []string
	Org, User, Model, Status string
	Statuses                 []queue.State
	Jobs                     []*queue.Job
	Next                     string // id to continue after; empty: the end
	Cut                      bool   // there are more jobs of all orgs
}

var statuses = []queue.State{queue.Queued, queue.Running, queue.Succeeded, queue.Failed, queue.Cancelled, queue.Expired}

// jobs lists jobs, unfinished ones first, then those with the highest cost. A page of one org has the newest jobs.
func (c *Console) jobs(v *visit) error {
	q := v.r.URL.Query()
	view := jobsView{
		User: q.Get("user"), Model: q.Get("model"), Status: q.Get("status"), Org: q.Get("org"),
		Statuses: statuses,
	}
	view.Orgs = c.o.orgs()
	f := queue.Filter{User: view.User, Model: view.Model}
	if slices.Contains(statuses, queue.State(view.Status)) {
		f.State = queue.State(view.Status)
	}
	page, err := c.jobsOf(v.r.Context(), view.Org, f, q.Get("after"))
	if err != nil && q.Get("after") != "" {
		return errNotFound
	}
	if err != nil {
		return err
	}
	view.Jobs = page.Jobs
	slices.SortStableFunc(view.Jobs, func(a, b *queue.Job) int { return cmp.Compare(burns(b), burns(a)) })
	if view.Org == "" {
		view.Jobs, view.Cut = view.Jobs[:min(len(view.Jobs), perPage)], page.More || len(view.Jobs) > perPage
	} else if page.More {
		view.Next = page.Next
	}
	return v.show("jobs", "Jobs", view)
}

// burns orders jobs: those that hold money come before those that are finished, the most expensive first.
func burns(j *queue.Job) int64 {
	if j.Finished.IsZero() {
		return math.MaxInt64/2 + int64(j.Cost)
	}
	return int64(j.Charged)
}

// jobsOf returns jobs of an org. Those of all orgs are the unfinished ones, and the newest of the orgs that spend most.
func (c *Console) jobsOf(ctx context.Context, org string, f queue.Filter, after string) (queue.Page, error) {
	if org != "" || f.State == queue.Queued || f.State == queue.Running {
		return c.o.Queue.List(ctx, org, f, after, perPage)
	}
	var all queue.Page
	add := func(org string, f queue.Filter) error {
		page, err := c.o.Queue.List(ctx, org, f, "", perPage)
		all.Jobs, all.More = append(all.Jobs, page.Jobs...), all.More || page.More
		return err
	}
	for _, state := range []queue.State{queue.Running, queue.Queued} {
		open := f
		open.State = state
		if f.State != "" {
			break
		}
		if err := add("", open); err != nil {
			return all, err
		}
	}
	orgs, more := c.spenders(ctx, shownOrgs)
	for _, one := range orgs {
		if err := add(one, f); err != nil {
			return all, err
		}
	}
	all.More = all.More || more
	known := map[string]bool{}
	all.Jobs = slices.DeleteFunc(all.Jobs, func(j *queue.Job) bool {
		again := known[j.ID]
		known[j.ID] = true
		return again
	})
	return all, nil
}

type jobView struct {
	*queue.Job
	queue.Place
}

// job shows one job without its request and response, which belong to the user.
func (c *Console) job(v *visit) error {
	ctx := v.r.Context()
	j, err := c.o.Queue.Job(ctx, v.r.PathValue("org"), v.r.PathValue("job"))
	if err != nil {
		return notFound(err, queue.ErrNotFound)
	}
	view := jobView{Job: j}
	if j.State == queue.Queued {
		view.Place, err = c.o.Queue.Place(ctx, guard.Rooms{Policy: c.o.Policy(), Store: c.o.Budget}, j)
		if err != nil {
			return err
		}
	}
	return v.show("job", "Job", view)
}
