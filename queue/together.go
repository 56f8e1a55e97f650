package queue

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// together sends what many ask at the same moment in one pipeline, so that a
// thousand waiting callers need one connection and not the whole pool, and Redis
// one read and one write. A request waits for a pipeline under way, and never for
// others to come.
type together struct {
	rdb  redis.UniversalClient
	most int // requests in one pipeline; there is one at a time

	mu      sync.Mutex
	queued  []*asked
	sending bool
}

// asked is one caller's commands. They belong to the sender until done.
type asked struct {
	ctx  context.Context
	add  func(redis.Pipeliner)
	done chan struct{}
}

// exec runs the commands that add puts into a pipeline; their own errors tell
// what became of them. The error is that of ctx: the commands must then not be
// looked at.
func (g *together) exec(ctx context.Context, add func(redis.Pipeliner)) error {
	a := &asked{ctx: ctx, add: add, done: make(chan struct{})}
	g.mu.Lock()
	g.queued = append(g.queued, a)
	lead := !g.sending
	g.sending = true
	g.mu.Unlock()
	if lead {
		go g.send(context.WithoutCancel(ctx)) // the client's own timeouts bound it
	}
	select {
	case <-a.done:
		return context.Cause(ctx) // nil, unless it ended before they were sent
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// send empties the queue.
func (g *together) send(ctx context.Context) {
	for {
		g.mu.Lock()
		n := min(len(g.queued), g.most)
		if n == 0 {
			g.sending = false
			g.queued = nil
			g.mu.Unlock()
			return
		}
		batch := g.queued[:n:n]
		g.queued = g.queued[n:]
		g.mu.Unlock()
		pipe := g.rdb.Pipeline()
		for _, a := range batch {
			if a.ctx.Err() == nil {
				a.add(pipe)
			}
		}
		_, _ = pipe.Exec(ctx) // every command has its own error
		for _, a := range batch {
			close(a.done)
		}
	}
}
