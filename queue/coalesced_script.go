package queue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// batchMost is the maximum number of jobs in one script call.
const batchMost = 64

// coalescedScript runs a script that handles many jobs of a pool in one call, for
// concurrent callers.
type coalescedScript struct {
	batches *redisconn.Batcher[*scriptCall]

	name   string
	script *redisconn.Script
	common []any // ARGV before the jobs' own
}

// scriptCall is a job waiting for its line of the reply.
type scriptCall struct {
	ctx  context.Context
	q    *Queue
	p    *pool
	key  string
	args []any
	done chan struct{}
	sent time.Time // when the script was called
	line string
	err  error
}

func newCoalescedScript(name string, script *redisconn.Script, common []any) *coalescedScript {
	b := &coalescedScript{name: name, script: script, common: common}
	b.batches = redisconn.NewBatcher(batchMost, b.run)
	return b
}

// do runs the script for one job and returns the job's line of the reply. args are the
// job's own, its id first. If ctx ends first, the script may still run.
func (b *coalescedScript) do(ctx context.Context, q *Queue, p *pool, key string, args ...any) (string, error) {
	line, _, err := b.doAt(ctx, q, p, key, args...)
	return line, err
}

// doAt is do that also returns when the script was called.
func (b *coalescedScript) doAt(ctx context.Context, q *Queue, p *pool, key string,
	args ...any,
) (string, time.Time, error) {
	e := &scriptCall{ctx: ctx, q: q, p: p, key: key, args: args, done: make(chan struct{})}
	b.batches.Add(e)
	select {
	case <-e.done:
		return e.line, e.sent, e.err
	case <-ctx.Done():
		return "", time.Time{}, fmt.Errorf("queue: %s: %w", b.name, context.Cause(ctx))
	}
}

// run calls the script once for the batch. The client's timeouts bound it.
func (b *coalescedScript) run(batch []*scriptCall) {
	first := batch[0]
	size := 0
	for _, e := range batch {
		size += 1 + len(e.args)
	}
	keys := append(make([]string, 0, len(first.p.keys)+len(batch)), first.p.keys...)
	args := append(make([]any, 0, len(b.common)+size), b.common...)
	for _, e := range batch {
		keys = append(keys, e.key)
		args = append(append(args, len(e.args)), e.args...)
	}
	sent := time.Now()
	reply, err := first.q.scripts.eval(context.WithoutCancel(first.ctx), b.name, b.script, keys, args...)
	lines := strings.Split(reply, "\n")
	if err == nil && len(lines) != len(batch) {
		err = fmt.Errorf("queue: %s of %d jobs replied %q", b.name, len(batch), reply)
	}
	for i, e := range batch {
		e.sent = sent
		e.err = err
		if err == nil {
			e.line = lines[i]
		}
		close(e.done)
	}
}
