package tasks

import (
	"context"
	"strings"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redisconn/asynqdriver"
)

// fetchClient is the Redis client of the asynq server that fetches the tasks of jobs. A fetch waits until a
// job has been claimed, and then requests as many as the pool wants at once. Checks of quiet pools are answered
// without Redis, so that an idle server costs little however many pools it has.
type fetchClient struct {
	pollingClient
	scripts redisconn.Scripter // runs the scripts of concurrent tasks together
	gate    *gate
}

// EvalSha runs a script of asynq, which is recognized by its first key.
func (c fetchClient) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) redisconn.Reply {
	pool, kind := asynqKey(keys)
	switch kind {
	case "pending":
		return c.fetch(ctx, pool, sha1, keys, args)
	case "scheduled", "retry", "completed", "lease":
		if c.gate.quiet(pool) {
			return nothing(ctx, kind)
		}
	}
	return c.scripts.EvalSha(ctx, sha1, keys, args...)
}

// fetch answers asynq's request for a task of a pool.
func (c fetchClient) fetch(ctx context.Context, pool, sha1 string, keys []string, args []any) redisconn.Reply {
	task, n, kick, rest := c.gate.next(pool)
	if rest > 0 {
		c.rest(ctx, rest, kick)
		task, n, _, _ = c.gate.next(pool)
	}
	if n > 0 {
		pipe := c.DB.Pipeline()
		cmds := make([]redisconn.Reply, n)
		for i := range cmds {
			cmds[i] = pipe.EvalSha(ctx, sha1, keys, args...)
		}
		_ = pipe.Exec(ctx) // each command has its own error
		var tasks []string
		for _, cmd := range cmds {
			if text, err := cmd.Text(); err == nil {
				tasks = append(tasks, text)
			}
		}
		last := cmds[n-1]
		unknown := redisconn.NoScript(last.Err())
		failed := last.Err() != nil && !redisconn.IsNil(last.Err()) && !unknown
		task = c.gate.fetched(pool, n, tasks, failed)
		if unknown && task == "" {
			return last // Eval follows
		}
	}
	return fetched(ctx, task)
}

// fetched is the reply of a fetch.
func fetched(ctx context.Context, task string) redisconn.Reply {
	if task == "" {
		return asynqdriver.NewReply(ctx, nil)
	}
	return asynqdriver.NewReply(ctx, task)
}

// Eval loads and runs a script that Redis does not know.
func (c fetchClient) Eval(ctx context.Context, script string, keys []string, args ...any) redisconn.Reply {
	cmd := c.DB.Eval(ctx, script, keys, args...)
	pool, kind := asynqKey(keys)
	if task, err := cmd.Text(); kind == "pending" && err == nil {
		return fetched(ctx, c.gate.fetched(pool, 0, []string{task}, false))
	}
	return cmd
}

// nothing is the reply of a check that finds nothing.
func nothing(ctx context.Context, kind string) redisconn.Reply {
	if kind == "lease" {
		return asynqdriver.NewReply(ctx, []any{})
	}
	return asynqdriver.NewReply(ctx, int64(0))
}

// asynqKey returns the queue and the kind of a script's first key, which is asynq:{queue}:kind.
func asynqKey(keys []string) (queue, kind string) {
	if len(keys) == 0 {
		return "", ""
	}
	_, rest, _ := strings.Cut(keys[0], "{")
	queue, kind, _ = strings.Cut(rest, "}:")
	return queue, kind
}
