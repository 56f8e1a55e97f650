package batch

import (
	"bufio"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

// dying is the Redis client of a process that dies at its nth step, before or after the
// step is written.
type dying struct {
	redisconn.DB
	left  atomic.Int64
	after bool
	die   context.CancelFunc // ends what else the process does
}

// drive drives a batch in a process that dies at its nth step, and reports whether it got
// there.
func (r *rig) drive(o Options, id string, steps int) (died bool) {
	r.t.Helper()
	ctx, die := context.WithCancel(r.t.Context())
	defer die()
	d := &dying{DB: redistest.DB(r.rdb), after: steps%2 == 0, die: die}
	d.left.Store(int64(steps))
	run := NewRunner(&Store{rdb: d, files: r.files, tasks: r.store.tasks, log: r.store.log}, o)
	run.drive(ctx, id, r.take(id, o.Lease))
	return d.dead()
}

func (d *dying) dead() bool { return d.left.Load() <= 0 }

var errDead = errors.New("the process died")

// EvalSha counts steps, and fails all after the last.
func (d *dying) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) redisconn.Reply {
	dead := func() redisconn.Reply {
		cmd := d.Command(ctx)
		cmd.SetErr(errDead)
		return cmd
	}
	if d.dead() {
		return dead()
	}
	if sha1 == stepScript.Hash() && d.left.Add(-1) <= 0 {
		if d.after {
			d.DB.EvalSha(ctx, sha1, keys, args...)
		}
		d.die()
		return dead()
	}
	return d.DB.EvalSha(ctx, sha1, keys, args...)
}

// take takes over the lease of a dead process, as if it had expired.
func (r *rig) take(id string, lease time.Duration) (token string) {
	r.t.Helper()
	if err := r.rdb.HSet(r.t.Context(), recordKey(id), "until", "0").Err(); err != nil {
		r.t.Fatal(err)
	}
	token = wire.NewCallID()
	reply, err := r.store.lease(r.t.Context(), id, token, lease)
	if err != nil || reply == "busy" {
		r.t.Fatalf("lease: %q, %v", reply, err)
	}
	return token
}

func newBuf(text string) *bufio.Reader { return bufio.NewReaderSize(strings.NewReader(text), 64) }
