package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/storage/files"
	"github.com/llmguard/llmguard/queue"
)

// turn drives one batch for a while. Only it writes the batch during that time, so it knows
// without reading which lines are jobs.
type turn struct {
	r     *Runner
	b     *Batch
	token string
	until time.Time

	input *files.File
	lines *lineReader        // at b.next, if not nil
	jobs  []int              // lines that are jobs and not gathered, in order
	ids   map[int]string     // their custom_ids
	ended map[int]*queue.Job // those of them that have ended
	last  time.Time          // time of the last gathering
	full  time.Time          // when the queue may accept more
	scan  time.Time          // time of the last look at all jobs

	place *place        // for heavy work
	wait  time.Duration // until the next turn

	validation *validation
	parts      *providerParts
}

func newTurn(r *Runner, token string) *turn {
	t := &turn{r: r, token: token, until: time.Now().Add(turnTime)}
	t.validation = &validation{turn: t, r: r}
	t.parts = &providerParts{turn: t, r: r, polled: map[int]bool{}}
	return t
}

// idle is the pause of a turn that has nothing to do.
const idle = 250 * time.Millisecond

// run drives the batch until it has ended, the turn is over, or something fails.
func (t *turn) run(ctx context.Context, id string) (err error) {
	t.b, err = t.r.s.load(ctx, id)
	if err != nil {
		return err
	}
	t.input = &files.File{ID: t.b.Input, Owner: t.b.filesOwner()}
	if err := t.readLines(ctx); err != nil {
		return err
	}
	t.last = time.Now()
	for !t.b.Status.Terminal() && time.Now().Before(t.until) {
		worked, err := t.once(ctx)
		if errors.Is(err, errMoved) {
			continue // t.b has the new status
		}
		if err != nil {
			return err
		}
		preempted := t.r.driving.preempted(t.b.Org, t.b.User)
		if worked {
			select {
			case <-preempted:
				return errPreempted
			default:
				continue
			}
		}
		rest := idle
		if t.b.provider != "" {
			clear(t.parts.polled)
			rest = t.r.opts.Poll
			if rest > turnTime/20 {
				t.wait = rest
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-preempted:
			return errPreempted
		case <-time.After(rest):
		}
		if err := t.refresh(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readLines reads which lines are jobs.
func (t *turn) readLines(ctx context.Context) error {
	h, err := t.r.s.rdb.HGetAll(ctx, Keys(t.b.ID)[1]).Result()
	if err != nil {
		return fmt.Errorf("batch: lines: %w", err)
	}
	t.ids, t.ended = make(map[int]string, len(h)), make(map[int]*queue.Job)
	for text, id := range h {
		line, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("batch: line %q of %s", text, t.b.ID)
		}
		t.ids[line] = id
		t.jobs = append(t.jobs, line)
	}
	slices.Sort(t.jobs)
	return nil
}

// refresh notices a cancellation.
func (t *turn) refresh(ctx context.Context) error {
	status, err := t.r.s.rdb.HGet(ctx, recordKey(t.b.ID), "status").Result()
	if err != nil {
		return fmt.Errorf("batch: read: %w", err)
	}
	t.b.Status = Status(status)
	return nil
}

// once does one piece of work, and reports whether there was any.
func (t *turn) once(ctx context.Context) (bool, error) {
	if t.b.Status == Finalizing || t.b.ending != "" {
		return true, t.heavily(ctx, t.finish)
	}
	if t.b.Status == Validating {
		return true, t.heavily(ctx, t.validation.validate)
	}
	ending := t.b.Status == Cancelling || !time.Now().Before(t.b.Expires)
	if t.b.provider != "" {
		return t.parts.byProvider(ctx, ending)
	}
	if ending {
		if err := t.heavily(ctx, t.giveUp); err != nil {
			return false, err
		}
	}
	gathered, err := t.collect(ctx, ending)
	if err != nil {
		return false, err
	}
	if t.b.next.line >= t.b.lastLine && len(t.jobs) == 0 {
		return true, t.toFinish(ctx, ending)
	}
	if ending || gathered || len(t.jobs) >= t.r.opts.InQueue || time.Now().Before(t.full) ||
		t.b.next.line >= t.b.lastLine {
		return gathered, nil
	}
	return true, t.heavily(ctx, t.expand)
}

// heavily runs work that takes memory or time in a place of its own. The work must call
// rest between its parts. While a turn waits for the place, it can be preempted.
func (t *turn) heavily(ctx context.Context, work func(context.Context) error) error {
	var err error
	t.place, err = t.r.heavy.enter(ctx, t.b.Org, t.b.User, t.r.driving.preempted(t.b.Org, t.b.User))
	if err != nil {
		return err
	}
	defer t.place.end()
	return work(ctx)
}

// rest lets another org or user have the place between two parts of work. In the meantime
// the turn keeps neither the input file nor a long line of it.
func (t *turn) rest(ctx context.Context) error {
	if !t.place.due() {
		return nil
	}
	t.close()
	return t.place.pass(ctx)
}

func (t *turn) write(ctx context.Context, st step, from ...Status) error {
	var err error
	for wait := 100 * time.Millisecond; wait < 5*time.Second; wait *= 2 {
		err = t.r.s.write(ctx, t.b, t.token, st, from...)
		if err == nil || errors.Is(err, errLost) || errors.Is(err, errMoved) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
	return err
}

// open returns the reader of the input file at a position.
func (t *turn) open(ctx context.Context, at position) (*lineReader, error) {
	if t.lines != nil && t.lines.at == at {
		return t.lines, nil
	}
	t.close()
	var err error
	t.lines, err = openLines(ctx, t.r.s.files, t.input, at, t.r.opts.MaxLine)
	return t.lines, err
}

func (t *turn) close() {
	if t.lines != nil {
		_ = t.lines.Close()
		t.lines = nil
	}
}

// caller returns the caller as which the lines run, under the current configuration.
func (t *turn) caller() (guard.Caller, error) {
	c, err := t.r.opts.Guard.Policy().Caller(t.b.Org, t.b.User, t.b.Key, t.b.IP)
	if err == nil {
		err = c.Was(t.b.Born, t.b.UserBorn)
	}
	c.Models, c.Batched, c.Labels = t.b.Models, t.b.provider != "", t.b.Labels.Labels
	c.Run, c.Batch = t.b.Labels.Run, t.b.ID
	return c, err
}
