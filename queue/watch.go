package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/llmguard/llmguard/internal/redisconn"
)

// EventKind says what an Event carries.
type EventKind uint8

// The kinds of events. A watch first yields Changed with the present state, unless the job
// has ended. Then, per attempt, it yields one Head, any number of Bytes and one End, with a
// Changed for every change of state that it sees. The Changed with the terminal state comes
// last.
const (
	Changed EventKind = 1 + iota
	Head
	Bytes
	End
)

// Event is one step of a watched job.
type Event struct {
	Kind EventKind
	// Attempt is the attempt the event belongs to. When it grows, all earlier output is
	// void.
	Attempt int
	State   State       // for Changed
	Status  int         // for Head
	Header  http.Header // for Head
	Data    []byte      // for Bytes; it counts as read at the next call of Next
	OK      bool        // for End: the answer is complete

	room int64 // bytes of the spool's memory that Data takes
}

// pollEvery is the interval at which a watch reads the job without a wake-up.
const pollEvery = time.Second

// Watch follows one job from its present state, and its output from the beginning of the
// latest attempt. Only one goroutine may use it.
type Watch struct {
	q       *Queue
	job     *Job
	wake    chan string
	leave   func()
	queue   []Event
	state   State
	attempt int
	far     reading // position in the attempt's output
	ended   bool
	room    int64 // memory of the last event returned
}

// presence keeps waiting jobs alive whose callers are connected to this process.
type presence struct {
	opts     *Options
	log      *slog.Logger
	settings *settings
	scripts  *scripts

	mu      sync.Mutex
	waiting map[*Watch]struct{} // watches that maintain a caller's presence
}

// Watch opens a watch of a job. While a watch of an interactive job is open, its caller
// counts as present. The caller must close it.
func (q *Queue) Watch(ctx context.Context, j *Job) *Watch {
	w := q.Follow(j)
	if j.Class == Interactive {
		q.presence.mu.Lock()
		q.presence.waiting[w] = struct{}{}
		q.presence.mu.Unlock()
		_ = q.presence.keep(ctx, q.settings.pools()[j.Pool], []any{j.ID}, q.opts.Grace) // put has recorded it already
	}
	return w
}

// Follow opens a watch for an observer: it does not count as a caller's presence.
func (q *Queue) Follow(j *Job) *Watch {
	w := &Watch{q: q, job: j, far: reading{last: "0"}}
	w.wake, w.leave = q.hub.Listen(jobChannel(j.ID), 1)
	return w
}

// giveBack releases the memory of the last event returned.
func (w *Watch) giveBack() {
	if w.room > 0 {
		w.q.opts.Spool.Memory.Give(w.job.Org, w.room)
		w.room = 0
	}
}

// Close ends the watch. An interactive job that still waits is dropped after another
// Options.Grace, unless Reserve keeps its place for longer.
func (w *Watch) Close() {
	w.leave()
	w.giveBack()
	for _, e := range w.queue {
		w.room = e.room
		w.giveBack()
	}
	w.queue = nil
	w.q.presence.mu.Lock()
	delete(w.q.presence.waiting, w)
	w.q.presence.mu.Unlock()
}

// Next returns the next event, waiting for it. After the terminal state it returns io.EOF;
// for a forgotten job, ErrNotFound; a *wire.Error if the answer should be in the blob store
// but is not; otherwise the error is that of ctx. While Redis is unavailable it waits.
func (w *Watch) Next(ctx context.Context) (Event, error) { return w.NextBefore(ctx, time.Time{}) }

// NextBefore is Next that returns context.DeadlineExceeded at `until`; zero means never. A
// context with that deadline would do the same, but a thousand waiting callers would each
// keep one.
func (w *Watch) NextBefore(ctx context.Context, until time.Time) (Event, error) {
	w.giveBack()
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	for {
		if len(w.queue) > 0 {
			e := w.queue[0]
			w.queue[0] = Event{} // release its bytes
			w.queue, w.room = w.queue[1:], e.room
			return e, nil
		}
		if w.ended {
			return Event{}, io.EOF
		}
		left, err := w.lookBefore(ctx, until)
		if ctx.Err() != nil {
			return Event{}, context.Cause(ctx)
		}
		if errors.Is(err, ErrNotFound) || errors.Is(err, errContentGone) || errors.Is(err, errNoBlobs) {
			return Event{}, err
		}
		if len(w.queue) > 0 || w.ended {
			continue
		}
		if left <= 0 {
			return Event{}, context.DeadlineExceeded
		}
		timer.Reset(min(pollEvery, left))
		select {
		case <-ctx.Done():
			return Event{}, context.Cause(ctx)
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// lookBefore calls look with a deadline and returns the time left.
func (w *Watch) lookBefore(ctx context.Context, until time.Time) (time.Duration, error) {
	if until.IsZero() {
		return pollEvery, w.look(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err := w.look(ctx)
	return time.Until(until), err
}

// look reads state and output. The state is read first: a terminal one is passed on only
// after all output before it.
func (w *Watch) look(ctx context.Context) error {
	const most = 64 // entries of about 4 KB that a slow reader keeps in memory
	var record redisconn.Cmd[[]any]
	var output redisconn.Cmd[[]redisconn.Entry]
	key := jobKey(w.job.Pool, w.job.ID)
	attempt := w.attempt
	last := w.far.last
	err := w.q.reader.reads.exec(ctx, func(pipe redisconn.Pipe) {
		record = pipe.HMGet(ctx, key, "state", "attempt")
		if attempt > 0 {
			output = pipe.XRangeN(ctx, outKey(w.job.ID, attempt), "("+last, "+", most)
		}
	})
	if err != nil {
		return err
	}
	if err := record.Err(); err != nil {
		return fmt.Errorf("queue: watch: %w", err)
	}
	if output != nil && output.Err() != nil {
		return fmt.Errorf("queue: watch: %w", output.Err())
	}
	text, _ := record.Val()[0].(string)
	if text == "" {
		return ErrNotFound
	}
	number, _ := record.Val()[1].(string)
	now, _ := strconv.Atoi(number)
	state := State(text)
	if now != w.attempt {
		w.attempt, w.far = now, reading{last: "0"}
		if !state.Terminal() {
			w.changed(state)
		}
		return w.look(ctx)
	}
	if !state.Terminal() && state != w.state {
		w.changed(state)
	}
	full := false
	if output != nil {
		events, far, err := w.q.contents.outputEvents(ctx, attemptRef{w.job.Org, w.job.ID, w.attempt}, output.Val(), w.far)
		if err != nil {
			return err
		}
		w.queue, w.far = append(w.queue, events...), far
		full = len(output.Val()) == most
	}
	if state.Terminal() && !full {
		w.changed(state)
		w.ended = true
	}
	return nil
}

func (w *Watch) changed(state State) {
	w.state = state
	w.queue = append(w.queue, Event{Kind: Changed, Attempt: w.attempt, State: state})
}

// keepPresence renews the presence of this process's callers until ctx is done. After a
// failure it retries much sooner, so that they are known again as soon as Redis is back.
func (pr *presence) keepPresence(ctx context.Context) {
	rest := time.NewTimer(pr.opts.Grace / 3)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
		if pr.renewPresence(ctx) == nil {
			rest.Reset(pr.opts.Grace / 3)
		} else {
			rest.Reset(pr.opts.Grace / 15)
		}
	}
}

// renewPresence reports to the pools that this process's callers still wait.
func (pr *presence) renewPresence(ctx context.Context) error {
	ids := make(map[string][]any)
	pr.mu.Lock()
	for w := range pr.waiting {
		ids[w.job.Pool] = append(ids[w.job.Pool], w.job.ID)
	}
	pr.mu.Unlock()
	var failed error
	for pool, list := range ids {
		failed = errors.Join(failed, pr.keep(ctx, pr.settings.pools()[pool], list, pr.opts.Grace))
	}
	return failed
}

// keep extends the presence of the callers of jobs, a thousand per call.
func (pr *presence) keep(ctx context.Context, p *pool, ids []any, d time.Duration) error {
	for batch := range slices.Chunk(ids, 1000) {
		args := append([]any{d.Microseconds()}, batch...)
		if _, err := pr.scripts.eval(ctx, "present", presentScript, p.keys[8:9], args...); err != nil {
			pr.log.WarnContext(ctx, "presence renewal failed, retrying", "pool", p.ID, "err", err)
			return err
		}
	}
	return nil
}
