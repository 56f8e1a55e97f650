package tasks

import (
	"slices"
	"sync"
	"time"
)

const (
	// lateAfter is how long a claimed job waits for a task that a fetch has not found. Then it
	// starts without one: its task was lost, or Redis has no memory for asynq's writes.
	lateAfter = 20 * time.Millisecond
	// stuckAfter is how long a claimed job waits for an asynq server that does not fetch at all.
	stuckAfter = 100 * time.Millisecond
	// lateFetch is the interval between fetches for jobs that run without a task.
	lateFetch = 250 * time.Millisecond
)

// gate couples the fetches of an asynq server to the jobs that its worker has claimed: a fetch waits
// until a job of the queue is claimed, so that every active task runs a job.
type gate struct {
	quiet func(pool string) bool

	mu     sync.Mutex
	pools  map[string]*poolTurns
	served map[string]int // pools of the server, and their numbers of concurrent jobs
	kick   chan struct{}  // closed, and replaced, when a job starts to wait
}

// poolTurns are the tasks that one pool wants from asynq.
type poolTurns struct {
	ready    []*turn
	fetching int       // tasks requested from Redis
	fetched  []string  // tasks that asynq has not requested yet
	handed   int       // tasks that have not reached their handler yet
	again    time.Time // of the next fetch, after one that found nothing
	failed   time.Time // until which nothing is fetched, after a fetch that failed
}

// turn is a claimed job that waits for a task, or runs without one until it comes.
type turn struct {
	pool, job string
	run       func() error
	late      *time.Timer // starts it without a task
	missed    bool        // a fetch found no task for it
	running   bool        // without a task
	end       chan error  // of its run without a task, for the handler of a task that came later
}

func newGate(quiet func(pool string) bool) *gate {
	return &gate{quiet: quiet, pools: map[string]*poolTurns{}, kick: make(chan struct{})}
}

// of returns the turns of a pool. mu must be held.
func (g *gate) of(pool string) *poolTurns {
	p := g.pools[pool]
	if p == nil {
		p = &poolTurns{}
		g.pools[pool] = p
	}
	return p
}

// serve sets the pools of the server. Tasks that were fetched for others are given up: their leases expire.
func (g *gate) serve(handlers map[string]int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.served = handlers
	for id, p := range g.pools {
		if handlers[id] == 0 {
			p.fetched = nil
		}
	}
}

// lacks returns how many jobs wait for a task that nobody fetches yet.
func (p *poolTurns) lacks() int { return len(p.ready) - p.handed - len(p.fetched) - p.fetching }

// pop hands a fetched task to asynq; "" if there is none.
func (p *poolTurns) pop() (task string) {
	if len(p.fetched) > 0 {
		task, p.fetched = p.fetched[0], p.fetched[1:]
		p.handed++
	}
	return task
}

// wait lets a claimed job wait for a task. If none comes, late starts it without one.
func (g *gate) wait(t *turn, late func(*turn)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.of(t.pool)
	t.end = make(chan error, 1)
	t.late = time.AfterFunc(stuckAfter, func() {
		if g.start(t) {
			late(t)
		}
	})
	p.ready = append(p.ready, t)
	p.again = time.Time{}
	close(g.kick)
	g.kick = make(chan struct{})
}

// next returns a fetched task of a pool, or how many to fetch; fetched must follow. With neither, the
// caller waits for kick, at most for the given time.
func (g *gate) next(pool string) (task string, n int, kick chan struct{}, rest time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rest = fetchEvery
	for id, p := range g.pools {
		until := max(time.Until(p.again), time.Until(p.failed))
		switch {
		case g.served[id] == 0 && id != pool:
		case len(p.fetched) == 0 && p.lacks() <= 0:
		case len(p.fetched) == 0 && until > 0:
			rest = min(rest, until)
		case id != pool:
			rest = 0
		case len(p.fetched) > 0:
			return p.pop(), 0, nil, 0
		default:
			n = p.lacks()
			p.fetching += n
			return "", n, nil, 0
		}
	}
	return "", 0, g.kick, rest
}

// fetched records the tasks that a fetch of n has found, and whether it failed. It hands one to asynq; "" if there
// is none.
func (g *gate) fetched(pool string, n int, tasks []string, failed bool) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.of(pool)
	p.fetching -= n
	p.fetched = append(p.fetched, tasks...)
	if len(tasks) < n {
		p.miss()
	}
	if failed {
		p.failed = time.Now().Add(failureTakes)
	}
	task := p.pop()
	if g.served[pool] == 0 { // by a server that is being replaced
		p.fetched = nil
	}
	return task
}

// miss lets jobs for which a fetch has found no task start soon without one. mu must be held.
func (p *poolTurns) miss() {
	p.again = time.Now().Add(lateFetch)
	for _, t := range p.ready[min(p.handed+len(p.fetched), len(p.ready)):] {
		if !t.running {
			p.again = time.Time{}
		}
		if !t.missed {
			t.missed = true
			t.late.Reset(lateAfter)
		}
	}
}

// take returns the job for a task that has reached its handler; nil if none waits.
func (g *gate) take(pool string) *turn {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.of(pool)
	p.handed = max(p.handed-1, 0)
	if len(p.ready) == 0 {
		return nil
	}
	t := p.ready[0]
	p.ready = p.ready[1:]
	t.late.Stop()
	return t
}

// none records that a task that has reached its handler is for no job.
func (g *gate) none(pool string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.of(pool)
	p.handed = max(p.handed-1, 0)
	close(g.kick)
	g.kick = make(chan struct{})
}

// start marks a job as running without a task, and reports whether it still waited for one.
func (g *gate) start(t *turn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.of(t.pool)
	if t.running || !slices.Contains(p.ready, t) {
		return false
	}
	t.running = true
	if !t.missed { // no fetch was for it: asynq has dropped tasks on the way to their handlers
		p.handed = 0
	}
	return true
}

// leave removes a job that has run without a task, and reports whether none has come.
func (g *gate) leave(t *turn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.of(t.pool)
	i := slices.Index(p.ready, t)
	if i >= 0 {
		p.ready = slices.Delete(p.ready, i, i+1)
	}
	return i >= 0
}
