package batch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/internal/storage/files"
)

// giveUp records the lines that were never put, because the batch was cancelled or its time
// is up, as not run. Lines of the page in progress that may already be jobs are kept as
// such.
func (t *turn) giveUp(ctx context.Context) error {
	for t.b.next.line < t.b.lastLine {
		page, err := t.page(ctx, t.b.next, pageLines)
		if err != nil {
			return err
		}
		exist, err := t.existing(ctx, page)
		if err != nil {
			return err
		}
		st, put := step{Add: make(map[string]string)}, []int(nil)
		var unrun []result
		for i, e := range page {
			if exist[i] {
				st.Add[strconv.Itoa(e.line)] = e.customID
				put = append(put, e.line)
				continue
			}
			unrun = append(unrun, t.unrun(e.line, e.customID))
		}
		end := page[len(page)-1].end
		st.set("next", end.String())
		if err := t.commit(ctx, &st, unrun, t.b.Status); err != nil {
			return err
		}
		t.b.next = end
		t.added(put, st.Add)
		if err := t.rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

// existing reports which lines of a page are jobs although no step says so.
func (t *turn) existing(ctx context.Context, page []entry) ([]bool, error) {
	exist := make([]bool, len(page))
	if page[0].line > t.b.page.line {
		return exist, nil
	}
	lines := make([]int, len(page))
	for i, e := range page {
		lines[i] = e.line
	}
	jobs, err := t.r.opts.Queue.Jobs(ctx, t.b.Org, t.jobIDs(lines))
	if err != nil {
		return nil, err
	}
	for i, j := range jobs {
		exist[i] = j != nil
	}
	return exist, nil
}

// toFinish fixes how the batch ends and the ids of its files. After that it can no longer
// be cancelled.
func (t *turn) toFinish(ctx context.Context, ending bool) error {
	chunks, err := t.chunks(ctx)
	if err != nil {
		return err
	}
	end, st := Completed, step{Stamp: []string{stampFinalized}, Status: Finalizing}
	switch {
	case t.b.Status == Cancelling:
		end, st = Cancelled, step{}
	case (ending || t.parts.expiredThere()) && t.b.Succeeded+t.b.Unsuccessful < t.b.Total:
		end = Expired
	}
	st.set("ending", string(end))
	var output, errs string
	if len(chunks[outputKind]) > 0 {
		output = files.NewID()
		st.set("plan_output", output)
	}
	if len(chunks[errorKind]) > 0 {
		errs = files.NewID()
		st.set("plan_errors", errs)
	}
	if err := t.write(ctx, st, t.b.Status); err != nil {
		return err
	}
	t.b.ending, t.b.planOutput, t.b.planErrs = end, output, errs
	return nil
}

// chunks returns the blobs of results, by kind.
func (t *turn) chunks(ctx context.Context) (map[string][]string, error) {
	list, err := t.r.s.rdb.LRange(ctx, Keys(t.b.ID)[2], 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("batch: chunks: %w", err)
	}
	out := make(map[string][]string)
	for _, text := range list {
		kind, name, _ := strings.Cut(text, " ")
		out[kind] = append(out[kind], name)
	}
	return out, nil
}

// finish writes the output and error files, and ends the batch. It is idempotent: a
// repetition writes the same files again.
func (t *turn) finish(ctx context.Context) error {
	chunks, err := t.chunks(ctx)
	if err != nil {
		return err
	}
	if err := t.join(ctx, t.b.planOutput, "output", chunks[outputKind]); err != nil {
		return err
	}
	if err := t.join(ctx, t.b.planErrs, "error", chunks[errorKind]); err != nil {
		return err
	}
	stamps := map[Status]string{Completed: stampCompleted, Expired: stampExpired, Cancelled: stampCancelled}
	st := step{Status: t.b.ending, Stamp: []string{stamps[t.b.ending]}, Set: map[string]string{
		"output": t.b.planOutput, "errors": t.b.planErrs,
	}}
	if err := t.write(ctx, st, Finalizing, Cancelling); err != nil {
		return err
	}
	t.r.metrics.ended.WithLabelValues(string(t.b.Status)).Inc()
	return nil
}

// clean reports a batch that has ended and deletes what it no longer needs. The batch stays
// on the list of unfinished ones until all of that is done.
func (r *Runner) clean(ctx context.Context, id string) error {
	b, err := r.s.load(ctx, id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if b != nil && r.opts.Ended != nil && b.Status.Terminal() {
		if err := r.opts.Ended(ctx, b); err != nil {
			return err
		}
	}
	if b != nil {
		if _, err := r.s.files.Blobs().RemoveAll(ctx, chunkPrefix(b), 0); err != nil {
			return err
		}
		if err := r.s.rdb.Unlink(ctx, Keys(id)[1:]...).Err(); err != nil {
			return fmt.Errorf("batch: clean: %w", err)
		}
		if err := r.s.uncount(ctx, b.Owner, id); err != nil {
			return err
		}
		if err := r.s.remember(ctx, b); err != nil {
			return err
		}
	}
	if err := r.s.rdb.ZRem(ctx, openKey, id).Err(); err != nil {
		return fmt.Errorf("batch: clean: %w", err)
	}
	return nil
}

// join writes one file from its chunks; nothing if id is empty.
func (t *turn) join(ctx context.Context, id, what string, chunks []string) error {
	if id == "" {
		return nil
	}
	up, err := t.r.s.files.Begin(ctx, t.input.Owner, id)
	if err != nil {
		return err
	}
	defer up.Abort()
	for _, name := range chunks {
		if err := t.append(ctx, up, name); err != nil {
			return err
		}
		if err := t.rest(ctx); err != nil {
			return err
		}
	}
	_, err = up.Commit(ctx, t.b.ID+"_"+what+".jsonl", files.BatchOutput, t.b.OutputTTL)
	return err
}

func (t *turn) append(ctx context.Context, to io.Writer, name string) error {
	r, err := t.r.s.files.Blobs().Open(ctx, name, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := io.Copy(to, r); err != nil {
		return fmt.Errorf("batch: join %s: %w", name, err)
	}
	return nil
}
