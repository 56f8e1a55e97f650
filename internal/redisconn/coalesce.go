package redisconn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	maxQueued  = 20_000                // commands that wait for a Redis that does not answer
	flightMost = 300                   // commands sent together
	slowFlight = 50 * time.Millisecond // after which others no longer wait for it
	maxFlights = 8                     // under way at a time

	// A single server carries out one flight after the other, and on a busy machine
	// every one of a burst takes long: others would only open a connection each.
	singleSlow    = time.Millisecond // more, for every command aboard
	singleFlights = 2
)

// errQueued is what a caller gets when too many wait already.
var errQueued = errors.New("too many scripts wait for redis")

// Coalescer sends the scripts of concurrent calls together: what is asked for while a
// flight is under way leaves with the next one. At 16 concurrent callers a script
// costs a third of our CPU that it costs by itself, and Redis less, too. A flight
// that is slow, such as to a node that is away, is not waited for. Each caller waits
// no longer than its context; what it asked for may still be carried out, as after
// any lost reply. It is safe for concurrent use.
type Coalescer struct {
	redis.Scripter
	rdb    redis.UniversalClient
	join   Join
	single bool          // one server, or one at a time
	most   int           // flights under way at a time
	each   time.Duration // what a command aboard adds to slowFlight
	wait   []any         // command that waits for a replica; nil: none

	mu      sync.Mutex
	queued  []*queued
	waiting int       // commands in queued
	flights int       // under way
	slow    time.Time // when the last one to leave is no longer waited for
}

// queued is what one caller asks for. Its commands belong to the flight until done.
type queued struct {
	ctx  context.Context
	cmds []redis.Cmder
	left bool // they are in a flight or were; Line.mu guards it
	late bool // it was gone before they were sent
	safe bool // they have to be acknowledged by a replica
	done chan struct{}
}

// Pipelined returns a Line on a client.
func Pipelined(rdb redis.UniversalClient) *Coalescer {
	l := &Coalescer{Scripter: rdb, rdb: rdb, most: maxFlights}
	if _, single := rdb.(*redis.Client); single {
		l.single = true
		l.most = singleFlights
		l.each = singleSlow
	}
	return l
}

// Join has the commands of a flight carried out by fewer. The function it returns
// queues what is to be sent, and true says that it is to be called again when that has
// its replies: to read them, and to queue what is still to be sent. When it returns
// false, every command has its reply once what it queued has. Flights that are slow
// may be joined at the same time as others. nil instead of a function has them sent as
// they are.
type Join func(cmds []redis.Cmder) func(context.Context, redis.Pipeliner) (again bool)

// Joined is Pipelined with a Join.
func Joined(rdb redis.UniversalClient, join Join) *Coalescer {
	l := Pipelined(rdb)
	l.join = join
	return l
}

// waitKey is written before each wait: a replica that has it has all that was
// written before, by any connection.
const waitKey = "lg:wait"

// errUnacknowledged is what a command gets that was carried out, while no replica
// has confirmed it.
var errUnacknowledged = errors.New("no replica acknowledged the write in time")

// Acknowledged is scripts whose writes a replica has when they return.
type Acknowledged struct {
	redis.Scripter
	line *Coalescer
}

// Acknowledged returns scripts that return without an error only when a replica
// has what they wrote, and all that was written before; other errors mean what they
// mean without. With aof it has it on disk, and so has the primary, which takes
// Redis 7.2. Wait bounds the waiting. It is not for clusters, and to be called before
// the Line is used.
func (l *Coalescer) Acknowledged(wait time.Duration, aof bool) *Acknowledged {
	l.wait = []any{"wait", 1, wait.Milliseconds()}
	if aof {
		l.wait = []any{"waitaof", 1, 1, wait.Milliseconds()}
	}
	return &Acknowledged{l.Scripter, l}
}

// Eval sends the command down the line.
func (a *Acknowledged) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return a.line.one(ctx, command(ctx, "eval", script, keys, args), true)
}

// EvalSha sends the command down the line.
func (a *Acknowledged) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return a.line.one(ctx, command(ctx, "evalsha", sha1, keys, args), true)
}

// Process sends the command down the line; see Coalescer.Process.
func (a *Acknowledged) Process(ctx context.Context, cmd redis.Cmder) error {
	return a.line.process(ctx, cmd, true)
}

// Batch gathers scripts that leave together.
func (a *Acknowledged) Batch() *Batch { return &Batch{line: a.line, safe: true} }

// exec sends a pipeline; safe: it reports whether a replica has what was written.
func (l *Coalescer) exec(ctx context.Context, pipe redis.Pipeliner, safe bool) bool {
	if !safe {
		_, _ = pipe.Exec(ctx) // each command has its own error
		return true
	}
	pipe.Set(ctx, waitKey, 1, time.Hour)
	acknowledged := pipe.Do(ctx, l.wait...)
	_, _ = pipe.Exec(ctx)
	if len(l.wait) == 3 {
		n, err := acknowledged.Int()
		return err == nil && n >= 1
	}
	n, err := acknowledged.Int64Slice()
	return err == nil && len(n) == 2 && n[0] >= 1 && n[1] >= 1
}

// Eval sends the command down the line.
func (l *Coalescer) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return l.one(ctx, command(ctx, "eval", script, keys, args), false)
}

// EvalSha sends the command down the line.
func (l *Coalescer) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return l.one(ctx, command(ctx, "evalsha", sha1, keys, args), false)
}

// Process sends the command down the line. When ctx has ended, the command must not be read
// after an error: it may be under way.
func (l *Coalescer) Process(ctx context.Context, cmd redis.Cmder) error {
	return l.process(ctx, cmd, false)
}

func (l *Coalescer) process(ctx context.Context, cmd redis.Cmder, safe bool) error {
	if err := l.send(ctx, []redis.Cmder{cmd}, safe); err != nil {
		return err
	}
	return cmd.Err()
}

func (l *Coalescer) one(ctx context.Context, cmd *redis.Cmd, safe bool) *redis.Cmd {
	if err := l.send(ctx, []redis.Cmder{cmd}, safe); err != nil {
		// The flight may still be writing to cmd: nobody may look at it.
		cmd = redis.NewCmd(ctx, cmd.Name())
		cmd.SetErr(err)
	}
	return cmd
}

// command is an EVAL or EVALSHA.
func command(ctx context.Context, name, script string, keys []string, args []any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, name, script, len(keys))
	for i := range keys {
		all = append(all, &keys[i]) // an interface of a string is a piece of memory each
	}
	all = append(all, args...)
	cmd := redis.NewCmd(ctx, all...)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

// send has commands carried out. With an error they must not be looked at, else
// each has its own.
func (l *Coalescer) send(ctx context.Context, cmds []redis.Cmder, safe bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a := &queued{ctx: ctx, cmds: cmds, safe: safe, done: make(chan struct{})}
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

// queue puts commands among those of the next flight; false: too many wait. l.mu is held.
func (l *Coalescer) queue(a *queued) bool {
	if l.waiting+len(a.cmds) > maxQueued {
		return false
	}
	l.queued, l.waiting = append(l.queued, a), l.waiting+len(a.cmds)
	return true
}

// depart has what is queued leave now, if it may. l.mu is held, and is not afterwards.
func (l *Coalescer) depart(ctx context.Context) {
	leaves := l.flights == 0 || l.flights < l.most && time.Now().After(l.slow)
	if leaves {
		l.flights, l.slow = l.flights+1, time.Now().Add(slowFlight)
	}
	l.mu.Unlock()
	if leaves {
		go l.fly(context.WithoutCancel(ctx)) // the client's own timeouts bound it
	}
}

// fly carries out what is queued, until nothing is.
func (l *Coalescer) fly(ctx context.Context) {
	for {
		aboard := l.board()
		if len(aboard) == 0 {
			return
		}
		cmds := present(aboard)
		acknowledged := l.carry(ctx, cmds, slices.ContainsFunc(aboard, func(a *queued) bool { return a.safe && !a.late }))
		for _, a := range aboard {
			if a.safe && !a.late && !acknowledged {
				a.unacknowledged()
			}
			close(a.done)
		}
	}
}

// unacknowledged gives the commands that were carried out their error.
func (a *queued) unacknowledged() {
	for _, cmd := range a.cmds {
		if cmd.Err() == nil {
			cmd.SetErr(errUnacknowledged)
		}
	}
}

// carry sends commands and waits until each has its reply or its error; safe: it
// reports whether a replica has what they wrote.
func (l *Coalescer) carry(ctx context.Context, cmds []redis.Cmder, safe bool) (acknowledged bool) {
	var queue func(context.Context, redis.Pipeliner) bool
	if l.join != nil {
		queue = l.join(cmds)
	}
	if queue == nil {
		pipe := l.rdb.Pipeline()
		_ = pipe.BatchProcess(ctx, cmds...) // only queues
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

// present returns the commands of those who still wait.
func present(aboard []*queued) []redis.Cmder {
	var cmds []redis.Cmder
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

// board takes those of the next flight; none ends the flying.
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

// Batch gathers scripts that leave together.
func (l *Coalescer) Batch() *Batch { return &Batch{line: l} }

// Batch is scripts that leave together. It is for one goroutine.
type Batch struct {
	line *Coalescer
	cmds []redis.Cmder
	safe bool
}

// Process adds a command, which has its reply after Exec.
func (b *Batch) Process(_ context.Context, cmd redis.Cmder) error {
	b.cmds = append(b.cmds, cmd)
	return nil
}

// Exec sends the commands and waits for them, no longer than ctx. Each has its own
// error then. With an error after ctx has ended they must not be looked at.
func (b *Batch) Exec(ctx context.Context) ([]redis.Cmder, error) {
	if len(b.cmds) == 0 {
		return nil, nil
	}
	err := b.line.send(ctx, b.cmds, b.safe)
	if errors.Is(err, errQueued) {
		for _, cmd := range b.cmds {
			cmd.SetErr(err)
		}
	}
	return b.cmds, err
}
