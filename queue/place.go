package queue

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
)

// Place is the position of a waiting job in the queue and relative to its limits.
type Place struct {
	// Ahead is how many jobs of its pool run before it.
	Ahead int
	// ETA is the estimated time until the job may run, if nothing else changes: no new calls, no other
	// limits, and calls that take and cost what they did lately. It is negative if that is unknown, or
	// if time alone does not free room in a limit.
	ETA time.Duration
	// Cause is what makes it wait last: a limit, a spend cap, a stop, the provider or its quota,
	// [ForRetry] or [ForWorker]. It is empty if the job does not wait.
	Cause budget.Cause
	Room  *guard.Room // nil if its limits are no longer known

	in  *forecast // nil: it has another cause
	job *prospect
}

// Before returns the ids of the waiting jobs of the job's org that run before it, in this order; if it is not known
// ever to run, also of those that do not run either and had their turn before it.
func (p Place) Before() []string {
	if p.in == nil {
		return nil
	}
	var ids []string
	for id, one := range p.in.jobs {
		if one.job.Flow.Org == p.job.job.Flow.Org && one.rank < p.job.rank && (one.start > 0 || p.job.start == 0) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Compare(p.in.jobs[a].rank, p.in.jobs[b].rank) })
	return ids
}

// What a job waits for that nothing refuses.
const (
	ForRetry  budget.Cause = "retry"  // its next attempt
	ForWorker budget.Cause = "worker" // a worker: it is next
)

// Place returns the place of a waiting job. For a job that does not wait only Room is set.
func (q *Queue) Place(ctx context.Context, rooms guard.Rooms, j *Job) (Place, error) {
	room, err := rooms.Room(ctx, j.waiter())
	if errors.Is(err, budget.ErrUnavailable) {
		return Place{}, err
	}
	if err != nil { // its org or model is no longer configured: its turn will show
		room = nil
	}
	place, err := q.Expect(ctx, rooms, j)
	if err != nil {
		return Place{}, err
	}
	place.Room = room
	return place, nil
}

// Expect is Place without the state of the limits.
func (q *Queue) Expect(ctx context.Context, rooms guard.Rooms, j *Job) (Place, error) {
	p, err := q.settings.pool(j.Pool)
	if err != nil {
		return Place{}, err
	}
	if again := time.Until(j.Again); j.State == Queued && again > 0 {
		return Place{ETA: again, Cause: ForRetry}, nil
	}
	pf := q.forecasts.of(p.ID)
	pf.mu.Lock()
	defer pf.mu.Unlock()
	if !pf.has(j.ID, q.forecasts.fresh) {
		if err := pf.renew(ctx, q, rooms, p); err != nil {
			return Place{}, err
		}
	}
	next := pf.last.jobs[j.ID]
	switch {
	case next != nil:
		return pf.last.place(next, time.Since(pf.made)), nil
	case pf.last.left > 0:
		return q.reader.extend(ctx, p, pf.last, j)
	}
	return Place{}, nil
}

// place returns the place of a job some time after the forecast.
func (f *forecast) place(p *prospect, passed time.Duration) Place {
	eta := time.Duration(-1)
	if p.start > 0 {
		eta = max(time.Duration(p.start-f.now)*time.Microsecond-passed, 0)
	}
	return Place{Ahead: p.ahead, ETA: eta, Cause: p.by, in: f, job: p}
}

// forecasts are the last forecasts of this process, by pool. It is safe for concurrent use.
type forecasts struct {
	fresh time.Duration // how long a forecast is used
	rest  int           // at most one part in this many of the time is spent on forecasts
	mu    sync.Mutex
	pools map[string]*poolForecast
}

func newForecasts() *forecasts {
	return &forecasts{fresh: time.Second, rest: 10, pools: map[string]*poolForecast{}}
}

func (f *forecasts) of(pool string) *poolForecast {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pools[pool] == nil {
		f.pools[pool] = &poolForecast{known: map[string]guard.Waiter{}}
	}
	return f.pools[pool]
}

// poolForecast is the last forecast of a pool.
type poolForecast struct {
	mu    sync.Mutex
	known map[string]guard.Waiter
	last  *forecast
	made  time.Time     // when it was begun
	took  time.Duration // to make
}

// has reports whether the last forecast is fresh and has a job. One that leaves jobs out may have left
// this one out.
func (pf *poolForecast) has(id string, fresh time.Duration) bool {
	return pf.last != nil && time.Since(pf.made) < fresh && (pf.last.jobs[id] != nil || pf.last.left > 0)
}

// renew makes a forecast, unless one was made a moment ago.
func (pf *poolForecast) renew(ctx context.Context, q *Queue, rooms guard.Rooms, p *pool) error {
	if pf.last != nil {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Until(pf.made.Add(pf.took * time.Duration(q.forecasts.rest)))):
		}
	}
	made := time.Now()
	last, err := q.reader.foresee(ctx, rooms, p, pf.known)
	if err != nil {
		return err
	}
	pf.last, pf.made, pf.took = last, made, time.Since(made)
	return nil
}

// extend estimates the place of a job that a forecast leaves out, from the jobs of its flow that it has,
// or from all.
func (r *reader) extend(ctx context.Context, p *pool, f *forecast, j *Job) (Place, error) {
	if j.member == "" {
		var err error
		j, err = r.job(ctx, j.Org, j.ID)
		if err != nil {
			return Place{}, err
		}
	}
	reply, err := r.scripts.eval(ctx, "place", placeScript, p.keys, uint8(j.Class), j.member)
	if err != nil || reply == "gone" {
		return Place{}, err
	}
	own, err := strconv.Atoi(reply)
	if err != nil {
		return Place{}, err
	}
	last, n := f.lastOf(func(p *prospect) bool { return p.job.Class == j.Class && p.job.Flow == Flow{j.Org, j.User} })
	parts := float64(own+1) / float64(n)
	if last == nil {
		last, n = f.lastOf(func(*prospect) bool { return true })
		parts = float64(n+int(f.left)) / float64(n)
	}
	if last == nil || last.start == 0 {
		return Place{Ahead: own, ETA: -1, Cause: ForWorker}, nil
	}
	behind := *last
	behind.rank = math.MaxInt
	behind.start = f.now + int64(float64(last.start-f.now)*parts)
	behind.ahead = int(math.Round(float64(last.ahead+1)*parts)) - 1
	return f.place(&behind, 0), nil
}

// lastOf returns which of some jobs runs last, one that does not run before all others, and how many there are.
func (f *forecast) lastOf(some func(*prospect) bool) (last *prospect, n int) {
	for _, p := range f.jobs {
		if !some(p) {
			continue
		}
		n++
		if last == nil || last.start != 0 && (p.start == 0 || p.start > last.start) {
			last = p
		}
	}
	return last, n
}

// waiter returns the job as its limits see it.
func (j *Job) waiter() guard.Waiter {
	return guard.Waiter{Call: j.Call(), Want: budget.Amounts{Cost: j.Cost, Tokens: cmp.Or(j.Held, j.Tokens)}}
}
