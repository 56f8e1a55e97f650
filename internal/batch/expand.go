package batch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/queue"
)

// A page is the part of an input file that is read in one go.
const (
	pageLines = 200
	pageBytes = 4 << 20
	// fullRest bounds the pause after the queue was full.
	fullRest = 5 * time.Second
)

// entry is a line of a page, with the position after it.
type entry struct {
	request
	wrong *Problem
	end   position
}

// page reads the lines after a position.
func (t *turn) page(ctx context.Context, from position, most int) ([]entry, error) {
	r, err := t.open(ctx, from)
	if err != nil {
		return nil, err
	}
	var page []entry
	for bytes := 0; len(page) < most && bytes < pageBytes && r.at.line < t.b.lastLine; {
		line, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, errLong) {
			return nil, fmt.Errorf("batch: read %s: %w", t.b.Input, err)
		}
		e := entry{}
		e.request, e.wrong = parse(line, t.b.Endpoint, t.r.opts.Scan)
		e.line, e.end = r.at.line, r.at
		page = append(page, e)
		bytes += len(line)
	}
	if len(page) == 0 {
		return nil, fmt.Errorf("batch: %s ends before line %d", t.b.Input, t.b.lastLine)
	}
	return page, nil
}

// expand turns the lines of the next page into jobs, as far as the queue accepts them. It
// first writes how far it may get, so that a successor knows which lines may have been put.
func (t *turn) expand(ctx context.Context) error {
	page, err := t.page(ctx, t.b.next, min(pageLines, t.r.opts.InQueue-len(t.jobs)))
	if err != nil {
		return err
	}
	if end := page[len(page)-1].end; end.line > t.b.page.line {
		if err := t.reach(ctx, end); err != nil {
			return err
		}
	}
	st, put := step{Add: make(map[string]string)}, []int(nil)
	var failures []result
	end := t.b.next
	for _, e := range page {
		if ctx.Err() != nil {
			break
		}
		refused, err := t.put(ctx, e)
		if err != nil {
			return err
		}
		if !t.full.IsZero() && time.Now().Before(t.full) {
			break
		}
		if refused != nil {
			failures = append(failures, t.refusal(e.line, e.customID, refused))
		} else {
			st.Add[strconv.Itoa(e.line)] = e.customID
			put = append(put, e.line)
		}
		end = e.end
	}
	if end != page[len(page)-1].end {
		t.close()
	}
	if end == t.b.next {
		return context.Cause(ctx)
	}
	st.set("next", end.String())
	if err := t.commit(ctx, &st, failures, InProgress); err != nil {
		return err
	}
	t.b.next = end
	t.added(put, st.Add)
	return nil
}

// reach writes how far the lines may get that become jobs, or are held, next.
func (t *turn) reach(ctx context.Context, end position) error {
	st := step{}
	st.set("page", end.String())
	err := t.write(ctx, st, InProgress)
	if err == nil {
		t.b.page = end
	}
	return err
}

// added records lines that are jobs now.
func (t *turn) added(lines []int, ids map[string]string) {
	t.jobs = append(t.jobs, lines...)
	for _, line := range lines {
		t.ids[line] = ids[strconv.Itoa(line)]
	}
}

// prepare prices a line. refused is why the line is refused; err is an error of the store.
func (t *turn) prepare(ctx context.Context, e entry) (plan *guard.Plan, refused *wire.Error, err error) {
	if e.wrong != nil {
		return nil, wire.BadRequest("", e.wrong.Code, "%s", e.wrong.Message), nil
	}
	caller, err := t.caller()
	if err != nil {
		return nil, wire.Forbidden("org_gone", "%v", err), nil
	}
	plans := t.r.opts.Guard.Plans
	e.parsed.Betas = wire.Betas(t.b.Header)
	caller, err = plans.LabelLine(ctx, caller, t.b.Labels, e.parsed)
	if err == nil {
		plan, err = plans.PrepareKept(ctx, caller, e.parsed)
	}
	if errors.Is(err, budget.ErrUnavailable) {
		return nil, nil, err
	}
	if err == nil {
		err = plan.Check()
	}
	if err != nil {
		t.countRefused(e, err, guard.Refusing(err, caller, plan))
		return nil, public(err), nil
	}
	return plan, nil, nil
}

// countRefused counts a line that is refused for good.
func (t *turn) countRefused(e entry, err error, c guard.RefusedCall) {
	c.ID, c.Batch, c.Status = t.parts.callID(e.customID), t.b.ID, public(err).Status
	if c.Cause != "" {
		t.r.opts.Guard.Refused(c)
	}
}

// put turns a line into a job. A refusal counts as the line's result. A full queue is
// recorded in t.full.
func (t *turn) put(ctx context.Context, e entry) (refused *wire.Error, err error) {
	plan, refused, err := t.prepare(ctx, e)
	if refused != nil || err != nil {
		return refused, err
	}
	err = t.r.opts.Queue.Put(ctx, t.job(e, plan), e.body)
	var full *queue.FullError
	switch {
	case errors.As(err, &full) && full.RetryAfter <= 0:
		refused = full.Final("")
		t.countRefused(e, refused, guard.Refusing(err, plan.Caller, plan))
		return refused, nil
	case errors.As(err, &full):
		t.full = time.Now().Add(min(full.RetryAfter, fullRest))
		return nil, nil
	}
	return nil, err
}

func public(err error) *wire.Error {
	var e *wire.Error
	var refusal *guard.Refusal
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &refusal):
		return refusal.Public()
	}
	return wire.Internal(err)
}

func (t *turn) job(e entry, plan *guard.Plan) *queue.Job {
	j := &queue.Job{
		ID: t.jobID(e.line), Pool: t.b.pool, CallID: wire.NewCallID(),
		Org: t.b.Org, User: t.b.User, Key: t.b.Key, Born: t.b.Born, UserBorn: t.b.UserBorn, IP: t.b.IP,
		Labels: plan.Caller.Labels, Run: plan.Caller.Run, Batch: t.b.ID, Class: queue.Batch,
		Endpoint: t.b.Endpoint, Model: e.model, Tokens: plan.Quota, Cost: plan.First.Cost,
		Held: plan.First.Tokens, Answer: queue.AnswerBytes(plan),
		Deadline: t.b.Expires, Priority: plan.Priority(t.b.Priority), Header: t.b.Header,
	}
	if by := t.b.StartBy; !by.IsZero() {
		j.ByDeadline = true
		if by.Before(j.Deadline) {
			j.Deadline = by
		}
	}
	return j
}

// jobID returns the id of a line's job, always the same.
func (t *turn) jobID(line int) string {
	return t.r.opts.Queue.DerivedID(t.b.pool, t.b.ID+" "+strconv.Itoa(line))
}
