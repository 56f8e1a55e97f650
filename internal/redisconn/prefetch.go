package redisconn

import (
	"context"
	"slices"
	"time"
)

// Prefetch is a script that is queued before its reply is needed. It is sent with the next
// batch, but does not start one until Wait is called. The owner must finally call Wait or
// Cancel. Its methods must be called by one goroutine at a time.
type Prefetch struct {
	line  *Coalescer
	asked queued
	cmd   Reply
}

// Prefetch queues a script, which is dropped if ctx is done before it is sent. It returns nil
// if too many commands are waiting, or if the servers are a cluster: the script's node may be
// unreachable, which would delay the rest of the batch.
func (l *Coalescer) Prefetch(ctx context.Context, sha1 string, keys []string, args ...any) *Prefetch {
	if !l.single {
		return nil
	}
	a := &Prefetch{line: l, cmd: l.command(ctx, "evalsha", sha1, keys, args)}
	a.asked = queued{ctx: ctx, cmds: []Reply{a.cmd}, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.queue(&a.asked) {
		return nil
	}
	return a
}

// Came reports whether Wait would return immediately.
func (a *Prefetch) Came() bool {
	select {
	case <-a.asked.done:
		return true
	default:
		return false
	}
}

// Err returns the error of the reply, once it came.
func (a *Prefetch) Err() error { return a.cmd.Err() }

// Wait returns the command with its reply or error, and waits no longer than ctx and most.
// After an error the reply may still arrive, and Wait can be called again. If the script was
// never sent, this and every later error is context.Canceled.
func (a *Prefetch) Wait(ctx context.Context, most time.Duration) (Reply, error) {
	if !a.Came() {
		if err := a.wait(ctx, most); err != nil {
			return nil, err
		}
	}
	if a.asked.late {
		return nil, context.Canceled
	}
	return a.cmd, nil
}

func (a *Prefetch) wait(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	a.line.mu.Lock()
	if a.asked.left {
		a.line.mu.Unlock()
	} else {
		a.line.depart(ctx)
	}
	select {
	case <-a.asked.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Cancel withdraws the script. It returns false if the script has already been sent.
func (a *Prefetch) Cancel() bool {
	l := a.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.asked.left {
		return a.Came() && a.asked.late
	}
	i := slices.Index(l.queued, &a.asked)
	l.queued = slices.Delete(l.queued, i, i+1)
	l.waiting -= len(a.asked.cmds)
	return true
}
