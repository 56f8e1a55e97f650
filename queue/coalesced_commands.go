package queue

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// coalescedCommands sends the commands that many ask for at the same moment in one
// pipeline.
type coalescedCommands struct{ batches *redisconn.Batcher[*commands] }

// commands is one caller's commands. They belong to the sender until done.
type commands struct {
	ctx  context.Context
	add  func(redis.Pipeliner)
	done chan struct{}
}

// newCoalescedCommands returns one of at most so many callers in a pipeline.
func newCoalescedCommands(rdb redis.UniversalClient, most int) *coalescedCommands {
	return &coalescedCommands{redisconn.NewBatcher(most, func(batch []*commands) { send(rdb, batch) })}
}

// exec runs the commands that add puts into a pipeline; their own errors tell
// what became of them. The error is that of ctx: the commands must then not be
// looked at.
func (g *coalescedCommands) exec(ctx context.Context, add func(redis.Pipeliner)) error {
	a := &commands{ctx: ctx, add: add, done: make(chan struct{})}
	g.batches.Add(a)
	select {
	case <-a.done:
		return context.Cause(ctx) // nil, unless it ended before they were sent
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func send(rdb redis.UniversalClient, batch []*commands) {
	pipe := rdb.Pipeline()
	for _, a := range batch {
		if a.ctx.Err() == nil {
			a.add(pipe)
		}
	}
	// The client's own timeouts bound it; every command has its own error.
	_, _ = pipe.Exec(context.WithoutCancel(batch[0].ctx))
	for _, a := range batch {
		close(a.done)
	}
}
