package queue

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/tasks"
	"github.com/llmguard/llmguard/internal/wire"
)

const (
	probeEvery = time.Second            // between checks for work without a notification
	maxSleep   = 250 * time.Millisecond // between two requests for refused quota
	// linger is how long handlers that find nothing wait for more work. Jobs put in
	// that time need no notification.
	linger = 5 * time.Millisecond
	// spreadEvery is how long handlers that are being woken have to arrive.
	spreadEvery = 20 * time.Millisecond
	mostAsked   = 100             // claims in one acquire
	probeTime   = 2 * time.Second // the first job of a woken subject must be admitted within this time
)

// pacer requests claims on behalf of all handlers of one pool in this process: one acquire
// at a time, for as many jobs as there are handlers waiting.
type pacer struct {
	q *Queue
	p *pool

	kick    chan struct{}
	stop    chan struct{} // closed by halt
	called  <-chan string // messages of workChannel
	give    func(*Claim)  // runs a claim; again follows once it has ended
	stopped func() bool   // WorkerOptions.Stopped
	most    int           // maximum number of handlers
	busy    atomic.Int64  // number of handlers: those that run a job, and asks
	process string        // identifies this pacer in its acquire calls
	seq     int64
	born    time.Time     // when seq was first used
	soon    time.Duration // until a parked subject wakes; 0: none soon
	stay    time.Duration // how long handlers stay when acquire has nothing for them
	awake   bool          // handlers stay, so jobs are put without a notification

	mu     sync.Mutex
	asks   int // handlers that wait for a claim
	closed bool
}

// acquired is a reply of acquire.
type acquired struct {
	wait   time.Duration // negative: no job waits
	why    string
	claims []*Claim
}

func newPacer(q *Queue, p *pool, most int) *pacer {
	return &pacer{
		q: q, p: p, most: most, kick: make(chan struct{}, 1), stop: make(chan struct{}),
		process: wire.NewCallID(), seq: 1,
	}
}

// hire adds up to n handlers, within the maximum.
func (pc *pacer) hire(n int) {
	n = min(n, pc.most-int(pc.busy.Load()))
	if n <= 0 {
		return
	}
	pc.busy.Add(int64(n))
	pc.ask(n)
}

// ask lets n handlers wait for a claim.
func (pc *pacer) ask(n int) {
	pc.mu.Lock()
	if pc.closed {
		pc.busy.Add(int64(-n))
	} else {
		pc.asks += n
	}
	pc.mu.Unlock()
	pc.wake()
}

func (pc *pacer) wake() { signal(pc.kick) }

// signal sends to a channel unless its buffer is full.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

func (pc *pacer) waiting() int {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.asks
}

// halt makes run return once its pending Redis call has been answered.
func (pc *pacer) halt() { close(pc.stop) }

// halted reports whether run must return.
func (pc *pacer) halted(ctx context.Context) bool {
	select {
	case <-pc.stop:
		return true
	default:
		return ctx.Err() != nil
	}
}

// run serves asks until ctx is done or halt is called. It checks for work when it starts,
// when notified, once a second unless the pool is quiet, and when a parked subject wakes.
func (pc *pacer) run(ctx context.Context) {
	defer pc.close()
	pc.hire(1)
	probe := time.NewTimer(pc.q.probe)
	defer probe.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pc.stop:
			return
		case <-pc.called:
			pc.q.wakeups.stir(pc.p.ID)
			if pc.waiting() == 0 {
				pc.hire(1)
			}
		case <-pc.kick:
			pc.serve(ctx)
			if pc.soon > 0 {
				probe.Reset(pc.soon)
			}
		case <-probe.C:
			pc.probe(ctx)
			probe.Reset(cmp.Or(pc.soon, pc.q.probe))
		}
	}
}

// close dismisses all handlers that wait.
func (pc *pacer) close() {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	pc.closed = true
	pc.leave(pc.asks)
}

// serve acquires claims until no handler waits.
func (pc *pacer) serve(ctx context.Context) {
	var spread time.Time
	for !pc.halted(ctx) {
		n := redisconn.Gather(pc.waiting)
		if n <= 0 { // negative after a repeated reply with more claims than were asked for
			return
		}
		got, err := pc.acquire(ctx, min(n, mostAsked))
		if err != nil {
			if ctx.Err() == nil {
				pc.q.log.WarnContext(ctx, "waiting jobs not claimed, will retry", "pool", pc.p.ID, "err", err)
			}
			pc.sleep(ctx, maxSleep, false)
			continue
		}
		for claims := range slices.Chunk(got.claims, bodyBatch) {
			pc.q.contents.fetch(context.WithoutCancel(ctx), pc.p, claims)
			pc.deliver(claims)
		}
		pc.rest(ctx, got, n-len(got.claims))
		switch {
		case got.why == "concurrency": // a slot may become free in this process
			pc.sleep(ctx, got.wait, true)
		case got.wait > 0 && got.why != "empty":
			pc.sleep(ctx, min(got.wait, maxSleep), false)
		}
		if got.why == "more" && time.Since(spread) > spreadEvery {
			spread = time.Now()
			pc.spread(ctx)
		}
	}
}

// rest lets n handlers that got nothing stay for a moment, and then dismisses them.
func (pc *pacer) rest(ctx context.Context, got acquired, n int) {
	stays := n > 0 && (got.why != "empty" && got.wait > 0 || got.why == "empty" && pc.stay > 0)
	if pc.awake && !stays && got.why == "more" {
		pc.q.wakeups.call(ctx, pc.p) // for jobs put without a notification
	}
	pc.awake = stays
	switch {
	case got.why != "empty":
		pc.stay = linger
	case pc.stay == 0:
		pc.dismiss(n)
		pc.stay = linger
	case n > 0:
		if len(got.claims) == 0 {
			pc.stay = 0 // stay only once
		}
		pc.sleep(ctx, linger, false)
	}
}

// sleep waits for d. If wakeable, a new ask ends it early, after at least a millisecond.
func (pc *pacer) sleep(ctx context.Context, d time.Duration, wakeable bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var kick chan struct{}
	if wakeable {
		kick = pc.kick
	}
	select {
	case <-ctx.Done():
	case <-pc.stop:
	case <-timer.C:
	case <-kick:
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
		pc.wake()
	}
}

// deliver runs claims.
func (pc *pacer) deliver(claims []*Claim) {
	pc.mu.Lock()
	pc.asks -= len(claims)
	pc.mu.Unlock()
	for _, c := range claims {
		pc.give(c)
	}
}

// dismiss dismisses n handlers. They waited before acquire looked and found nothing more.
func (pc *pacer) dismiss(n int) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	pc.leave(min(max(n, 0), pc.asks))
}

// leave dismisses n handlers. mu must be held.
func (pc *pacer) leave(n int) {
	pc.busy.Add(int64(-n))
	pc.asks -= n
}

// probe checks whether a job could run although no handler asked: a notification was lost,
// a claim expired or a parked subject woke. If so it starts a handler, so that all jobs run
// the same way.
func (pc *pacer) probe(ctx context.Context) {
	if pc.waiting() > 0 {
		pc.wake()
		return
	}
	if p := pc.q.settings.pools()[pc.p.ID]; p.quiet() {
		return
	}
	got, err := pc.acquire(ctx, 0)
	if err != nil {
		if ctx.Err() == nil {
			pc.q.log.WarnContext(ctx, "check for work failed", "pool", pc.p.ID, "err", err)
		}
		return
	}
	if got.why != "empty" {
		pc.hire(1)
	}
}

// spread doubles the handlers because there is more work than they asked for, and notifies
// the other workers. In a burst the handlers keep doubling until all are busy.
func (pc *pacer) spread(ctx context.Context) {
	pc.hire(max(int(pc.busy.Load()), 1))
	pc.q.wakeups.call(ctx, pc.p)
}

// acquire requests n claims; with n = 0 it only checks. A call whose reply was lost is
// repeated with the same number, and the script repeats its reply.
func (pc *pacer) acquire(ctx context.Context, n int) (acquired, error) {
	q := pc.q
	if pc.stopped != nil && pc.stopped() {
		pc.soon = 0
		return acquired{wait: -1, why: "empty"}, nil
	}
	now := q.settings.now()
	p := now.pools[pc.p.ID]
	if pc.born.IsZero() {
		pc.born = time.Now()
	}
	born := pc.born
	args := append([]any{
		pc.process, pc.seq, n, q.opts.Lease.Microseconds(), now.weights, probeTime.Microseconds(),
		now.opts.Shares.Interactive, now.opts.Shares.Async, now.opts.Shares.Batch,
	}, p.limits...)
	args = append(args, pc.stay.Microseconds())
	keys := append(p.with(procKey(p.ID, pc.process)), tasks.PausedKey(p.ID))
	if now.weights != "" {
		keys = append(keys, weightsKey(p.ID, now.weights))
	}
	reply, err := q.scripts.eval(ctx, "acquire", acquireScript, keys, args...)
	if err == nil && reply == "0 weights 0" {
		err = q.settings.writeWeights(ctx, weightsKey(p.ID, now.weights), now.opts.Weights)
		if err == nil {
			reply, err = q.scripts.eval(ctx, "acquire", acquireScript, keys, args...)
		}
	}
	if err != nil {
		q.metrics.acquires.WithLabelValues(p.ID, "error").Inc()
		return acquired{}, err
	}
	if n > 0 {
		pc.seq++
	}
	pc.born = time.Time{}
	lines := strings.Split(reply, "\n")
	w, err := words("acquire", lines[0], 3)
	if err != nil {
		return acquired{}, err
	}
	got := acquired{wait: micros(w[0]), why: w[1]}
	pc.soon = 0
	if got.why == "empty" && got.wait > 0 && got.wait < pc.q.probe {
		pc.soon = got.wait
	}
	if len(w) > 3 {
		q.quota.Tries(p.ID)
	}
	if reaped, _ := strconv.Atoi(w[2]); reaped > 0 {
		q.metrics.reaped.WithLabelValues(p.ID).Add(float64(reaped))
		q.log.WarnContext(ctx, "claims of dead workers returned", "pool", p.ID, "jobs", reaped)
	}
	for _, line := range lines[1:] {
		w, err := words("acquire", line, 5)
		if err != nil {
			return acquired{}, err
		}
		c := &Claim{Job: &Job{ID: w[0], Pool: p.ID}, q: q, p: p, id: w[0], token: w[1], booked: micros(w[3]), born: born}
		c.tokens, _ = strconv.ParseInt(w[4], 10, 64)
		if len(w) > 5 {
			c.never, _ = strconv.ParseInt(w[5], 10, 64)
		}
		got.claims = append(got.claims, c)
	}
	outcome := got.why
	if len(got.claims) > 0 {
		outcome = "claimed"
	}
	if n > 0 {
		q.metrics.acquires.WithLabelValues(p.ID, outcome).Inc()
	}
	return got, nil
}
