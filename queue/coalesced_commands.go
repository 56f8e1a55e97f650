package queue

import (
	"context"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// coalescedCommands sends the commands of concurrent callers in one pipeline.
type coalescedCommands struct{ batches *redisconn.Batcher[*commands] }

// commands holds one caller's commands. The sender owns them until done is closed.
type commands struct {
	ctx  context.Context
	add  func(redisconn.Pipe)
	done chan struct{}
}

// newCoalescedCommands returns a coalescedCommands with at most `most` callers per
// pipeline.
func newCoalescedCommands(rdb redisconn.DB, most int) *coalescedCommands {
	return &coalescedCommands{redisconn.NewBatcher(most, func(batch []*commands) { send(rdb, batch) })}
}

// exec runs the commands that add puts into a pipeline; each command carries its own error.
// The returned error is that of ctx: the caller must then not read the commands.
func (g *coalescedCommands) exec(ctx context.Context, add func(redisconn.Pipe)) error {
	a := &commands{ctx: ctx, add: add, done: make(chan struct{})}
	g.batches.Add(a)
	select {
	case <-a.done:
		return context.Cause(ctx) // nil unless ctx ended before they were sent
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func send(rdb redisconn.DB, batch []*commands) {
	pipe := rdb.Pipeline()
	for _, a := range batch {
		if a.ctx.Err() == nil {
			a.add(pipe)
		}
	}
	// The client's own timeouts bound it, and every command has its own error.
	_ = pipe.Exec(context.WithoutCancel(batch[0].ctx))
	for _, a := range batch {
		close(a.done)
	}
}
