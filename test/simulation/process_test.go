package simulation

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/queue"
)

// process is a proxy or a worker from its start to its death.
type process struct {
	w      *world
	name   string
	ctx    context.Context
	stop   context.CancelFunc
	gone   atomic.Bool
	rdb    *redis.Client
	budget *budget.Store
	queue  *queue.Queue
	worker *queue.Worker
	puts   chan struct{} // held by who puts a job: Put keeps a lock while it asks for memory

	cut    time.Time // until then it does not reach the store
	silent bool      // and is not told so

	present time.Time // when the store last heard that its callers wait
	unheard time.Time // when it last did after a silence that was longer than usual
}

// Ways to the store.
type way int

const (
	open way = iota
	refused
	hole
)

// start makes a process. It comes back under its name, as another.
func (w *world) start(n, life int) *process {
	p := &process{w: w, name: fmt.Sprintf("p%d.%d", n, life)}
	p.ctx, p.stop = context.WithCancel(w.ctx)
	p.rdb = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, PoolSize: 1, ContextTimeoutEnabled: true})
	p.rdb.AddHook(hook{w.link, p})
	p.budget = budget.New(p.rdb, budget.Options{Lease: cmp.Or(w.fam.lease, lease)})
	p.every(func(ctx context.Context) { _ = p.budget.Step(ctx) })
	if err := p.newQueue(w); err != nil {
		w.fail("harness", "%v", err)
	}
	w.note("%s starts", p.name)
	return p
}

// every does something again and again, as the goroutines of a process do.
func (p *process) every(fn func(context.Context)) {
	pause := cmp.Or(p.w.fam.keep, keepEvery)
	p.w.do(p, func(ctx context.Context, d dice) {
		for {
			p.w.sleep(p, pause*3/4+time.Duration(d.Int64N(int64(pause/2))))
			fn(ctx)
			p.alive()
		}
	})
}

// presenceGap is longer than passes between two renewals of presence that both arrive.
const presenceGap = 8 * time.Second

// heard notes that the store has heard that the process's callers wait.
func (p *process) heard(now time.Time) {
	if now.Sub(p.present) > presenceGap {
		p.unheard = now
	}
	p.present = now
}

// silentLately reports whether the store may have taken the process's callers for gone,
// because one renewal after the other was lost.
func (p *process) silentLately(now time.Time) bool {
	return now.Sub(p.present) > presenceGap || now.Sub(p.unheard) < 2*presenceGap
}

// kill ends a process without a word: what it does stands still.
func (p *process) kill() { p.gone.Store(true) }

func (p *process) isDead() bool { return p.gone.Load() }

// alive ends the goroutine of a process that is dead.
func (p *process) alive() {
	if p.isDead() {
		<-p.w.link.over
		runtime.Goexit()
	}
}

// close frees what the run's end leaves.
func (p *process) close() {
	p.stop()
	_ = p.rdb.Close()
}

// way is how the process reaches the store now.
func (p *process) way(now time.Time) way {
	cut, away := now.Before(p.cut), now.Before(p.w.away)
	switch {
	case !cut && !away:
		return open
	case cut && p.silent || away && p.w.silent:
		return hole
	}
	return refused
}
