package batch

import (
	"bufio"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/wire"
)

// dying is the Redis client of a process that dies at its nth step: before it is
// written, or after.
type dying struct {
	redis.UniversalClient
	left  atomic.Int64
	after bool
}

func newDying(r *rig, steps int) *dying {
	d := &dying{UniversalClient: r.rdb, after: steps%2 == 0}
	d.left.Store(int64(steps))
	return d
}

func (d *dying) dead() bool { return d.left.Load() <= 0 }

var errDead = errors.New("the process died")

// EvalSha counts steps, and fails all that come after the last.
func (d *dying) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	dead := func() *redis.Cmd {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(errDead)
		return cmd
	}
	if d.dead() {
		return dead()
	}
	if sha1 == stepScript.Hash() && d.left.Add(-1) <= 0 {
		if d.after {
			d.UniversalClient.EvalSha(ctx, sha1, keys, args...)
		}
		return dead()
	}
	return d.UniversalClient.EvalSha(ctx, sha1, keys, args...)
}

// take waits until the lease of a dead process is over, and takes it.
func (r *rig) take(id string, lease time.Duration) (token string) {
	r.t.Helper()
	token = wire.NewCallID()
	for range 12000 {
		reply, err := r.store.lease(r.t.Context(), id, token, lease)
		if err != nil {
			r.t.Fatal(err)
		}
		if reply != "busy" {
			return token
		}
		time.Sleep(5 * time.Millisecond)
	}
	r.t.Fatal("the lease is never over")
	return ""
}

func newBuf(text string) *bufio.Reader { return bufio.NewReaderSize(strings.NewReader(text), 64) }
