package batch

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/queue"
)

const (
	lookAt      = 200              // jobs read in one call
	lookAllEach = 5 * time.Second  // to notice jobs that ended out of order
	gatherAt    = 200              // enough ended jobs for a chunk
	gatherMost  = 500              // in one chunk
	gatherBytes = 8 << 20          // of a chunk
	gatherEach  = 10 * time.Second // even with few jobs
)

// collect gathers the results of lines that have ended, once there are enough of them. It
// reports whether it did.
func (t *turn) collect(ctx context.Context, ending bool) (bool, error) {
	if len(t.jobs) == 0 {
		return false, nil
	}
	if err := t.look(ctx, ending); err != nil {
		return false, err
	}
	n := len(t.ended)
	all := n == len(t.jobs) && (ending || t.b.next.line >= t.b.lastLine)
	if n == 0 || n < min(gatherAt, max(t.r.opts.InQueue/2, 1)) && !all && time.Since(t.last) < gatherEach {
		return false, t.tell(ctx)
	}
	t.last = time.Now()
	return true, t.heavily(ctx, t.gather)
}

// look finds out which jobs have ended. They end roughly in the order in which they were
// put, so it stops at the first page without any.
func (t *turn) look(ctx context.Context, ending bool) error {
	whole := ending || time.Since(t.scan) > lookAllEach
	if whole {
		t.scan = time.Now()
	}
	var open []int
	for _, line := range t.jobs {
		if _, ended := t.ended[line]; !ended {
			open = append(open, line)
		}
	}
	for part := range slices.Chunk(open, lookAt) {
		found, err := t.lookAt(ctx, part, ending)
		if err != nil {
			return err
		}
		if !found && !whole {
			return nil
		}
	}
	return nil
}

// lookAt reads some jobs. If the batch is ending, waiting jobs are withdrawn, and running
// ones continue to their end.
func (t *turn) lookAt(ctx context.Context, lines []int, ending bool) (found bool, err error) {
	jobs, err := t.r.opts.Queue.Jobs(ctx, t.b.Org, t.jobIDs(lines))
	if err != nil {
		return false, err
	}
	for i, j := range jobs {
		if ending && j != nil && j.State == queue.Queued {
			j, err = t.r.opts.Queue.Expire(ctx, t.b.Org, j.ID)
			if err != nil && !errors.Is(err, queue.ErrNotFound) {
				return found, err
			}
		}
		if j == nil || j.State.Terminal() {
			t.ended[lines[i]], found = j, true
		}
	}
	return found, nil
}

func (t *turn) jobIDs(lines []int) []string {
	ids := make([]string, len(lines))
	for i, line := range lines {
		ids[i] = t.jobID(line)
	}
	return ids
}

// tell publishes how many lines have ended.
func (t *turn) tell(ctx context.Context) error {
	var ok, bad int64
	for _, j := range t.ended {
		switch {
		case succeeded(j):
			ok++
		case ran(j):
			bad++
		}
	}
	if ok == t.b.seenOK && bad == t.b.seenBad {
		return nil
	}
	st := step{}
	st.seen(ok, bad)
	if err := t.write(ctx, st, InProgress, Cancelling); err != nil {
		return err
	}
	t.b.seenOK, t.b.seenBad = ok, bad
	return nil
}

func succeeded(j *queue.Job) bool {
	return j != nil && j.State == queue.Succeeded && j.Status < http.StatusMultipleChoices
}

// ran distinguishes lines that have a result, even a bad one, from those that never ran.
func ran(j *queue.Job) bool {
	return j != nil && (j.State == queue.Succeeded || j.State == queue.Failed)
}

// gather moves results from Redis into a chunk.
func (t *turn) gather(ctx context.Context) error {
	var lines []int
	for _, line := range t.jobs {
		if _, ok := t.ended[line]; ok && len(lines) < gatherMost {
			lines = append(lines, line)
		}
	}
	c := t.newChunk()
	defer c.abort()
	st, done := step{}, []*queue.Job(nil)
	for i, line := range lines {
		if c.size() > gatherBytes {
			lines = lines[:i]
			break
		}
		res, err := t.resultOf(ctx, line, t.ended[line])
		if err != nil {
			return err
		}
		if err := c.add(ctx, res); err != nil {
			return err
		}
		st.Drop = append(st.Drop, strconv.Itoa(line))
		if j := t.ended[line]; j != nil {
			done = append(done, j)
		}
	}
	st.seen(0, 0)
	if err := t.commitChunk(ctx, &st, c, InProgress, Cancelling); err != nil {
		return err
	}
	t.b.seenOK, t.b.seenBad = 0, 0
	for _, line := range lines {
		delete(t.ended, line)
		delete(t.ids, line)
	}
	t.jobs = slices.DeleteFunc(t.jobs, func(line int) bool { _, open := t.ids[line]; return !open })
	if err := t.r.opts.Queue.Forget(ctx, done); err != nil && ctx.Err() == nil {
		t.r.log.WarnContext(ctx, "collected results not removed from redis, they will expire", "batch", t.b.ID, "err", err)
	}
	return nil
}
