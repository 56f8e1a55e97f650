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
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/queue"
)

// process is a proxy or a worker, from its start to its death.
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
	puts   chan struct{} // held while submitting a job: Put holds a lock while it reserves memory

	cut    time.Time // disconnected from the store until then
	silent bool      // without an error

	present time.Time // when the store last received a renewal of its callers' presence
	unheard time.Time // when it last did after an unusually long gap
}

// How a process reaches the store.
type way int

const (
	open way = iota
	refused
	hole
)

// start starts a process. A restarted one has the same number but a new identity.
func (w *world) start(n, life int) *process {
	p := &process{w: w, name: fmt.Sprintf("p%d.%d", n, life)}
	p.ctx, p.stop = context.WithCancel(w.ctx)
	p.rdb = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, PoolSize: 1, ContextTimeoutEnabled: true})
	p.rdb.AddHook(hook{w.link, p})
	p.budget = budget.New(redistest.DB(p.rdb), budget.Options{Lease: cmp.Or(w.fam.lease, lease)})
	p.every(func(ctx context.Context) { _ = p.budget.Step(ctx) })
	if err := p.newQueue(w); err != nil {
		w.fail("harness", "%v", err)
	}
	w.note("%s starts", p.name)
	return p
}

// every runs fn repeatedly, like the background goroutines of a process.
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

// presenceGap is longer than the interval between two presence renewals that both arrive.
const presenceGap = 8 * time.Second

// heard records a presence renewal that reached the store.
func (p *process) heard(now time.Time) {
	if now.Sub(p.present) > presenceGap {
		p.unheard = now
	}
	p.present = now
}

// silentLately reports whether the store may have considered the process's callers gone,
// because several renewals in a row were lost.
func (p *process) silentLately(now time.Time) bool {
	return now.Sub(p.present) > presenceGap || now.Sub(p.unheard) < 2*presenceGap
}

// kill stops a process without notice: whatever it does stays where it is.
func (p *process) kill() { p.gone.Store(true) }

func (p *process) isDead() bool { return p.gone.Load() }

// alive ends the calling goroutine if its process is dead.
func (p *process) alive() {
	if p.isDead() {
		<-p.w.link.over
		runtime.Goexit()
	}
}

// close releases what remains at the end of the run.
func (p *process) close() {
	p.stop()
	_ = p.rdb.Close()
}

// way returns how the process reaches the store now.
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
