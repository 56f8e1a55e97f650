package redisconn

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Prefetch is a script that was asked for before anybody waits for it. It leaves with the
// next flight, which nobody starts on its account: at the latest when it is waited for.
// Whoever has it calls Wait or Cancel in the end. Its methods are for one goroutine at
// a time.
type Prefetch struct {
	line  *Coalescer
	asked queued
	cmd   *redis.Cmd
}

// Prefetch asks for a script, unless ctx ends before it leaves. It is nil where that is not
// possible: too many commands wait already, or the servers are a cluster, where the
// script's node may be away and what it leaves with would wait for that.
func (l *Coalescer) Prefetch(ctx context.Context, sha1 string, keys []string, args ...any) *Prefetch {
	if !l.single {
		return nil
	}
	a := &Prefetch{line: l, cmd: command(ctx, "evalsha", sha1, keys, args)}
	a.asked = queued{ctx: ctx, cmds: []redis.Cmder{a.cmd}, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.queue(&a.asked) {
		return nil
	}
	return a
}

// Came reports whether Wait needs no time any more.
func (a *Prefetch) Came() bool {
	select {
	case <-a.asked.done:
		return true
	default:
		return false
	}
}

// Wait returns the command with its reply or its error, for which it waits no longer
// than ctx and most. With an error the reply may still come: Wait can be called again.
// The error is context.Canceled, and so every later one, when the script never left.
func (a *Prefetch) Wait(ctx context.Context, most time.Duration) (*redis.Cmd, error) {
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

// Cancel takes the script back. It is false when that is too late: it left.
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
