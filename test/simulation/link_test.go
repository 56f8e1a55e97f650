package simulation

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// readTimeout is how long a client waits for a reply.
const readTimeout = 3 * time.Second

// link is the network between all processes and the store. A command waits in it until the main
// goroutine executes it.
type link struct {
	seed uint64
	mu   sync.Mutex
	wait []*request
	come chan struct{}
	over chan struct{} // closed at the end of the run
	odds odds
	seen map[uint64]int
	bad  time.Time // when the network last lost commands
}

// odds are the probabilities of faults per command, per mille.
type odds struct {
	loseCommand, loseReply, late, twice, slow int
	delay                                     time.Duration // maximum delay of slow ones
}

// request is a command or a pipeline of a process.
type request struct {
	p     *process
	cmds  []redis.Cmder
	at    time.Time // when it reaches the store
	back  time.Time // when the reply reaches the process
	fate  fate
	rank  uint64
	name  string
	done  chan error
	ran   bool
	err   error
	given bool // the caller has given up
}

// fate is what happens to a command.
type fate struct{ lost, deaf, late, twice bool }

func newLink(seed uint64) *link {
	return &link{seed: seed, come: make(chan struct{}, 1), over: make(chan struct{}), seen: map[uint64]int{}}
}

// hook passes the commands of one process to the link.
type hook struct {
	l *link
	p *process
}

func (h hook) DialHook(redis.DialHook) redis.DialHook {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { // of a subscription, which never receives anything
		select {
		case <-ctx.Done():
		case <-h.l.over:
		}
		return nil, errCut
	}
}

func (h hook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h.l.pass(ctx, h.p, []redis.Cmder{cmd}) }
}

func (h hook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h.l.pass(ctx, h.p, cmds) }
}

// failure is a network error.
type failure struct{ text string }

func (f failure) Error() string { return f.text }
func (f failure) Timeout() bool { return true }

// Temporary implements net.Error.
func (f failure) Temporary() bool { return true }

var (
	errTimeout = failure{"i/o timeout"}
	errCut     = failure{"connection refused"}
)

// pass takes a command from its process to the store and back.
func (l *link) pass(ctx context.Context, p *process, cmds []redis.Cmder) error {
	if strings.Contains(keyOf(cmds[0]), "asynq:") { // dropped: workers poll anyway
		return fail(cmds, errCut)
	}
	if p.isDead() {
		<-l.over
	}
	if err := ctx.Err(); err != nil { // a real client would not send it
		return fail(cmds, err)
	}
	r := &request{p: p, cmds: slices.Clone(cmds), done: make(chan error, 1), name: nameOf(cmds[0])}
	l.enter(r)
	timer := time.NewTimer(readTimeout)
	defer timer.Stop()
	var err error
	select {
	case err = <-r.done:
		return err // each command has its own error
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errTimeout
	}
	if p.isDead() { // a dead process sees no error
		<-l.over
	}
	l.giveUp(r)
	return fail(cmds, err)
}

func fail(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

// enter decides a command's fate and queues it.
func (l *link) enter(r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	hash := fnv.New64a()
	fmt.Fprint(hash, l.seed, r.p.name, r.name, keyOf(r.cmds[0]), now.UnixNano())
	id := hash.Sum64()
	l.seen[id]++
	dice := newDice(l.seed, id, uint64(l.seen[id]))
	r.rank = dice.Uint64()
	r.at = now
	o := l.odds
	if dice.IntN(1000) < o.slow {
		r.at = now.Add(time.Duration(dice.Int64N(int64(o.delay) + 1)))
	}
	r.back = r.at
	n := dice.IntN(1000)
	switch {
	case n < o.loseCommand:
		r.fate.lost = true
	case n < o.loseCommand+o.loseReply:
		r.fate.deaf = true
	case n < o.loseCommand+o.loseReply+o.late:
		r.fate.late, r.at = true, now.Add(readTimeout+time.Duration(dice.Int64N(int64(20*time.Second))))
	case n < o.loseCommand+o.loseReply+o.late+o.twice:
		r.fate.twice = true
	}
	l.wait = append(l.wait, r)
	select {
	case l.come <- struct{}{}:
	default:
	}
}

// giveUp detaches a command from its caller. What is still in transit arrives anyway, with the
// arguments it was sent with.
func (l *link) giveUp(r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.given = true
	if r.ran {
		return
	}
	for i, cmd := range r.cmds {
		r.cmds[i] = redis.NewCmd(context.WithoutCancel(r.p.ctx), values(cmd.Args())...)
	}
}

// values copies arguments, because some point to memory that the caller will change.
func values(args []any) []any {
	out := slices.Clone(args)
	for i, arg := range out {
		switch v := arg.(type) {
		case *string:
			out[i] = *v
		case *int64:
			out[i] = *v
		}
	}
	return out
}

// next removes the command to execute or answer next, if one is due, and returns when the next
// one will be.
func (l *link) next(now time.Time) (*request, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var best *request
	var soon time.Time
	for _, r := range l.wait {
		at := r.due()
		if at.After(now) {
			if soon.IsZero() || at.Before(soon) {
				soon = at
			}
			continue
		}
		if best == nil || at.Before(best.due()) || at.Equal(best.due()) && r.rank < best.rank {
			best = r
		}
	}
	if best != nil {
		l.wait = slices.DeleteFunc(l.wait, func(r *request) bool { return r == best })
	}
	return best, soon
}

func (r *request) due() time.Time {
	if r.ran {
		return r.back
	}
	return r.at
}

// again queues an executed command for its way back.
func (l *link) again(r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait = append(l.wait, r)
}

// lossy reports whether the network has lost commands recently.
func (l *link) lossy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.odds != odds{} || time.Since(l.bad) < 30*time.Second
}

// worsen changes the odds of faults.
func (l *link) worsen(o odds) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if (l.odds != odds{}) {
		l.bad = time.Now()
	}
	l.odds = o
}

func nameOf(cmd redis.Cmder) string { return strings.ToLower(cmd.Name()) }

// keyOf returns the first key of a command.
func keyOf(cmd redis.Cmder) string {
	args := cmd.Args()
	at := 1
	if name := nameOf(cmd); (name == "evalsha" || name == "eval") && len(args) > 3 {
		at = 3
	}
	if at >= len(args) {
		return ""
	}
	return fmt.Sprint(values(args[at : at+1])[0])
}

// copyOf returns a copy of a command whose reply nobody receives.
func copyOf(ctx context.Context, cmd redis.Cmder) redis.Cmder {
	return redis.NewCmd(ctx, values(cmd.Args())...)
}

// renews reports whether a command renews the presence of waiting callers.
func renews(cmd redis.Cmder) bool {
	return strings.HasSuffix(keyOf(cmd), ":present") && fmt.Sprint(cmd.Args()[2]) == "1"
}
