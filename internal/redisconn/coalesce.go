package redisconn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	maxQueued  = 20_000                // commands that may wait for an unresponsive Redis
	flightMost = 300                   // commands sent together
	slowFlight = 50 * time.Millisecond // after this time others no longer wait for it
	maxFlights = 8                     // concurrent batches

	// A single server executes one batch after the other, and on a busy machine each of a burst
	// takes long. More batches would only open more connections.
	singleSlow    = time.Millisecond // additional time per command in the batch
	singleFlights = 2
)

// errQueued is returned if too many commands are waiting.
var errQueued = errors.New("too many scripts wait for redis")

// Coalescer sends the scripts of concurrent calls together: those requested while a batch is in
// progress are sent in the next one. With 16 concurrent callers a script costs a third of the
// CPU time that it costs alone, and less in Redis, too. Later batches do not wait for a slow
// one, such as one to an unreachable node. Each caller waits no longer than its context allows;
// as after any lost reply, its script may still be executed. It is safe for concurrent use.
type Coalescer struct {
	Scripts // makes commands
	*line
	safe bool // a replica must acknowledge the writes
}

// line is the commands that wait, and how they are sent.
type line struct {
	rdb    DB
	join   Join
	single bool          // one server, or one at a time
	most   int           // maximum concurrent batches
	each   time.Duration // what a command adds to slowFlight
	wait   []any         // command that waits for a replica; nil: none

	mu      sync.Mutex
	queued  []*queued
	waiting int       // commands in queued
	flights int       // batches in progress
	slow    time.Time // when others no longer wait for the latest batch
}

// queued is one caller's request. Its commands belong to the batch until done is closed.
type queued struct {
	ctx  context.Context
	cmds []Reply
	left bool // part of a batch, now or before; guarded by Coalescer.mu
	late bool // ctx was done before they were sent
	safe bool // Coalescer.safe
	done chan struct{}
}

// Pipelined returns a Coalescer for a client.
func Pipelined(rdb DB) *Coalescer {
	l := &Coalescer{Scripts: rdb, line: &line{rdb: rdb, most: maxFlights}}
	if !rdb.Cluster() {
		l.single = true
		l.most = singleFlights
		l.each = singleSlow
	}
	return l
}

// Join replaces the commands of a batch by fewer. The function it returns queues the commands
// to send. If it returns true, it is called again once they have replies, to read these and to
// queue further commands. If it returns false, every original command has its reply once the
// last queued commands have theirs. It may be called concurrently for slow batches. If Join
// returns nil, the commands are sent unchanged.
type Join func(cmds []Reply) func(context.Context, Pipe) (again bool)

// Joined is Pipelined with a Join.
func Joined(rdb DB, join Join) *Coalescer {
	l := Pipelined(rdb)
	l.join = join
	return l
}

// waitKey is written before each wait: a replica that has it has everything written before, by
// any connection.
const waitKey = "lg:wait"

// errUnacknowledged is the error of a command that was executed but not confirmed by a replica.
var errUnacknowledged = errors.New("no replica acknowledged the write in time")

// Acknowledged returns a Coalescer of the same batches whose scripts succeed only if a replica has what they wrote
// and everything written before; other errors have their usual meaning. With aof the replica
// and the primary have it on disk, which requires Redis 7.2. wait limits the waiting time. It
// does not support clusters, and must be called before the Coalescer is used.
func (l *Coalescer) Acknowledged(wait time.Duration, aof bool) *Coalescer {
	l.wait = []any{"wait", 1, wait.Milliseconds()}
	if aof {
		l.wait = []any{"waitaof", 1, 1, wait.Milliseconds()}
	}
	return &Coalescer{l.Scripts, l.line, true}
}

// exec sends a pipeline; if safe, it reports whether a replica has its writes.
func (l *Coalescer) exec(ctx context.Context, pipe Pipe, safe bool) bool {
	if !safe {
		_ = pipe.Exec(ctx) // each command has its own error
		return true
	}
	pipe.Set(ctx, waitKey, 1, time.Hour)
	acknowledged := pipe.Do(ctx, l.wait...)
	_ = pipe.Exec(ctx)
	if len(l.wait) == 3 {
		n, err := acknowledged.Int()
		return err == nil && n >= 1
	}
	n, err := acknowledged.Int64Slice()
	return err == nil && len(n) == 2 && n[0] >= 1 && n[1] >= 1
}

// Eval sends the command with the next batch.
func (l *Coalescer) Eval(ctx context.Context, script string, keys []string, args ...any) Reply {
	return l.one(ctx, l.command(ctx, "eval", script, keys, args))
}

// EvalSha sends the command with the next batch.
func (l *Coalescer) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) Reply {
	return l.one(ctx, l.command(ctx, "evalsha", sha1, keys, args))
}

// Process sends the command with the next batch. If it returns an error after ctx is done, the
// command must not be read, because it may be in progress.
func (l *Coalescer) Process(ctx context.Context, cmd Reply) error {
	if err := l.send(ctx, []Reply{cmd}); err != nil {
		return err
	}
	return cmd.Err()
}

func (l *Coalescer) one(ctx context.Context, cmd Reply) Reply {
	if err := l.send(ctx, []Reply{cmd}); err != nil {
		// The batch may still be writing to cmd, so the caller must not read it.
		cmd = l.Command(ctx)
		cmd.SetErr(err)
	}
	return cmd
}

// command returns an EVAL or EVALSHA command.
func (l *Coalescer) command(ctx context.Context, name, script string, keys []string, args []any) Reply {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, script, len(keys))
	for i := range keys {
		all = append(all, &keys[i]) // a pointer, because an interface holding a string allocates
	}
	all = append(all, args...)
	return l.Command(ctx, all...)
}

// send executes commands. If it returns an error, they must not be read; otherwise each has its
// own error.
func (l *Coalescer) send(ctx context.Context, cmds []Reply) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a := &queued{ctx: ctx, cmds: cmds, safe: l.safe, done: make(chan struct{})}
	l.mu.Lock()
	if !l.queue(a) {
		l.mu.Unlock()
		return errQueued
	}
	l.depart(ctx)
	select {
	case <-a.done:
		if a.late {
			return ctx.Err()
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// queue adds commands to the next batch; it returns false if too many are waiting. l.mu must be
// held.
func (l *Coalescer) queue(a *queued) bool {
	if l.waiting+len(a.cmds) > maxQueued {
		return false
	}
	l.queued, l.waiting = append(l.queued, a), l.waiting+len(a.cmds)
	return true
}

// depart sends the queued commands now, if allowed. l.mu must be held, and is released.
func (l *Coalescer) depart(ctx context.Context) {
	leaves := l.flights == 0 || l.flights < l.most && time.Now().After(l.slow)
	if leaves {
		l.flights, l.slow = l.flights+1, time.Now().Add(slowFlight)
	}
	l.mu.Unlock()
	if leaves {
		go l.fly(context.WithoutCancel(ctx)) // limited by the client's own timeouts
	}
}

// fly executes batches until nothing is queued.
func (l *Coalescer) fly(ctx context.Context) {
	for {
		aboard := l.board()
		if len(aboard) == 0 {
			return
		}
		cmds := present(aboard)
		acknowledged := l.carry(ctx, cmds, slices.ContainsFunc(aboard, func(a *queued) bool { return a.safe && !a.late }))
		for _, a := range aboard {
			for _, cmd := range a.cmds {
				if a.safe && !a.late && !acknowledged && cmd.Err() == nil {
					cmd.SetErr(errUnacknowledged)
				}
			}
			close(a.done)
		}
	}
}

// carry sends commands and waits until each has its reply or error; if safe, it reports whether
// a replica has their writes.
func (l *Coalescer) carry(ctx context.Context, cmds []Reply, safe bool) (acknowledged bool) {
	var queue func(context.Context, Pipe) bool
	if l.join != nil {
		queue = l.join(cmds)
	}
	if queue == nil {
		pipe := l.rdb.Pipeline()
		for _, cmd := range cmds {
			pipe.Add(ctx, cmd)
		}
		return l.exec(ctx, pipe, safe)
	}
	acknowledged = true
	for again := true; again; {
		pipe := l.rdb.Pipeline()
		again = queue(ctx, pipe)
		acknowledged = l.exec(ctx, pipe, safe) && acknowledged
	}
	return acknowledged
}

// present returns the commands of callers that still wait.
func present(aboard []*queued) []Reply {
	var cmds []Reply
	for _, a := range aboard {
		a.late = a.ctx.Err() != nil
		if a.late {
			continue
		}
		if cmds == nil {
			cmds = a.cmds[:len(a.cmds):len(a.cmds)]
		} else {
			cmds = append(cmds, a.cmds...)
		}
	}
	return cmds
}

// board takes the requests for the next batch; if there are none, the goroutine ends.
func (l *Coalescer) board() []*queued {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, cmds := 0, 0
	for n < len(l.queued) && (n == 0 || cmds+len(l.queued[n].cmds) <= flightMost) {
		cmds += len(l.queued[n].cmds)
		l.queued[n].left = true
		n++
	}
	aboard := l.queued[:n:n]
	l.waiting -= cmds
	l.queued = l.queued[n:]
	if len(l.queued) == 0 {
		l.queued = nil
	}
	if n == 0 {
		l.flights--
	}
	l.slow = time.Now().Add(slowFlight + time.Duration(cmds)*l.each)
	return aboard
}

// Batch returns an empty Batch.
func (l *Coalescer) Batch() *Batch { return &Batch{line: l} }

// Batch is a group of scripts that are sent together. It is not safe for concurrent use.
type Batch struct {
	line *Coalescer
	cmds []Reply
}

// Add adds a command, whose reply is available after Exec.
func (b *Batch) Add(_ context.Context, cmd Reply) { b.cmds = append(b.cmds, cmd) }

// Exec sends the commands and waits for them, no longer than ctx. Then each has its own error.
// If it returns an error after ctx is done, the commands must not be read.
func (b *Batch) Exec(ctx context.Context) error {
	if len(b.cmds) == 0 {
		return nil
	}
	err := b.line.send(ctx, b.cmds)
	if errors.Is(err, errQueued) {
		for _, cmd := range b.cmds {
			cmd.SetErr(err)
		}
	}
	return err
}
