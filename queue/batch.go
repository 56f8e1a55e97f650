package queue

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// batchMost is how many jobs one call of a script takes.
const batchMost = 64

// batcher runs a script that takes many jobs of a pool: those that come while
// a call is under way share the next one. Alone, a job waits for nobody.
type batcher struct {
	name   string
	script *redis.Script
	common []any // ARGV before those of the jobs

	mu      sync.Mutex
	waiting []*entrant
	flying  bool
}

// entrant is a job waiting for its line of the reply.
type entrant struct {
	key  string
	args []any
	done chan struct{}
	line string
	err  error
}

// do runs the script for one job: args are its own, the id first. It
// returns its line of the reply. When ctx ends first, the script may still run.
func (b *batcher) do(ctx context.Context, q *Queue, p *pool, key string, args ...any) (string, error) {
	e := &entrant{key: key, args: args, done: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, e)
	lead := !b.flying
	b.flying = true
	b.mu.Unlock()
	if lead {
		go b.fly(context.WithoutCancel(ctx), q, p)
	}
	select {
	case <-e.done:
		return e.line, e.err
	case <-ctx.Done():
		return "", fmt.Errorf("queue: %s: %w", b.name, context.Cause(ctx))
	}
}

// fly runs until nobody waits. The client's timeouts bound each call.
func (b *batcher) fly(ctx context.Context, q *Queue, p *pool) {
	for {
		b.mu.Lock()
		n := min(len(b.waiting), batchMost)
		batch := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		b.flying = n > 0
		b.mu.Unlock()
		if n == 0 {
			return
		}
		b.run(ctx, q, p, batch)
	}
}

func (b *batcher) run(ctx context.Context, q *Queue, p *pool, batch []*entrant) {
	keys := append(make([]string, 0, len(p.keys)+len(batch)), p.keys...)
	args := append([]any(nil), b.common...)
	for _, e := range batch {
		keys = append(keys, e.key)
		args = append(append(args, len(e.args)), e.args...)
	}
	reply, err := q.eval(ctx, b.name, b.script, keys, args...)
	lines := strings.Split(reply, "\n")
	if err == nil && len(lines) != len(batch) {
		err = fmt.Errorf("queue: %s of %d jobs replied %q", b.name, len(batch), reply)
	}
	for i, e := range batch {
		if e.err = err; err == nil {
			e.line = lines[i]
		}
		close(e.done)
	}
}
