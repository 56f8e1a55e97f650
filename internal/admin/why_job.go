package admin

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/queue"
)

// AheadJobs are the waiting jobs of one user or batch that are ahead of a job in a limit, which counts them, too.
type AheadJobs struct {
	Limit  string `json:"limit"`
	User   string `json:"user"`
	Batch  string `json:"batch,omitempty"`
	Jobs   int64  `json:"jobs"`
	Amount int64  `json:"amount"` // that they will hold of the limit, in its unit
	Unit   string `json:"unit"`
	// Command cancels them.
	Command string `json:"command"`

	ids []string
}

// limitName tells a limit of a caller from those of other callers and groups.
type limitName struct {
	id      string
	subject budget.Subject
	only    string
}

func nameOf(l *budget.Limit) limitName { return limitName{l.ID, l.Subject, l.Only} }

func (h *whyHandler) explainJob(c *call, w *Why, q *queue.Queue, j *queue.Job) error {
	l := JobLineOf(j)
	w.Job, w.want, w.who = &l, &budget.Amounts{Cost: j.Cost, Tokens: j.Tokens}, j.Call()
	if j.State != queue.Queued {
		w.Reason = endedText(&l)
	}
	if err := h.bound(c, w); err != nil {
		return err
	}
	if j.State == queue.Queued && w.Reason == "" {
		if err := h.waits(c, w, q, j); err != nil {
			return err
		}
	}
	if err := h.complete(c, w, w.ofCaller()); err != nil {
		return err
	}
	if j.State != queue.Queued {
		w.Commands = nil
		return nil
	}
	w.Ahead = slices.DeleteFunc(w.Ahead, func(a AheadJobs) bool {
		return !slices.ContainsFunc(w.Limits, func(l WhyLimit) bool { return l.Refuses && l.Name == a.Limit })
	})
	h.concludeJob(c, w)
	return nil
}

// endedText says how a job that does not wait stands.
func endedText(l *JobLine) string {
	text := "The job is not waiting: it is " + string(l.State)
	if l.Finished != nil {
		text += " since " + figures.Second(*l.Finished)
	}
	if l.Error != "" {
		text += ": " + strings.TrimSuffix(l.Error, ".")
	}
	return text + "."
}

// waits sets what a job waits for, as the queue sees it, and which jobs are ahead of it.
func (h *whyHandler) waits(c *call, w *Why, q *queue.Queue, j *queue.Job) error {
	at, err := h.jobs.place(c, q, j, w.Job)
	if err != nil {
		return err
	}
	w.place()
	d, err := q.Depth(c.r.Context(), j.Pool)
	if err != nil {
		return err
	}
	if d.Paused {
		w.WaitsFor, w.Cause = "pause", budget.NewCause(budget.CausePool, j.Pool)
		w.Reason = fmt.Sprintf("Pool %s is paused.", j.Pool)
	}
	if w.WaitsFor == "quota" {
		w.Reason += tightest(d)
	}
	before, err := q.Jobs(c.r.Context(), j.Org, at.Before())
	if err != nil {
		return err
	}
	before = slices.DeleteFunc(before, func(j *queue.Job) bool { return j == nil || j.State != queue.Queued })
	w.Ahead = append(w.Ahead, h.sumAhead(w, before)...)
	return nil
}

// place says what a job waits for by its place in the queue.
func (w *Why) place() {
	l := w.Job
	place, until := fmt.Sprintf("%d ahead of it", *l.Ahead), "at an unknown time"
	if l.ETA != nil {
		until = "about " + figures.Lasting(time.Duration(*l.ETA)*time.Second)
	}
	w.Cause = budget.Cause(l.WaitingFor)
	kind := w.Cause.Kind()
	w.WaitsFor = kind
	w.Reason = fmt.Sprintf("It waits for %s, %s (%s).", w.Cause.Title(), until, place)
	switch {
	case l.Next != nil:
		w.WaitsFor, w.Cause = "retry", budget.NewCause(budget.CauseProvider, l.Pool)
		w.Reason = fmt.Sprintf("The last attempt failed at the provider; the next one begins in %s.", until)
	case kind == budget.CauseRun:
		w.WaitsFor = budget.CauseLimit
	case kind == budget.CausePool:
		w.WaitsFor = "quota"
		w.Reason += " Its limits have capacity."
	case kind == "", w.Cause == queue.ForWorker:
		w.WaitsFor, w.Cause, w.Reason = "", "", "It is next: a worker starts it, as soon as one is free."
	}
}

// concludeJob corrects the reason by what was read after the job's place, and sets the commands.
func (h *whyHandler) concludeJob(c *call, w *Why) {
	full := w.full()
	if o := h.obstacle(c, w); o != nil {
		w.stands(o)
		w.WaitsFor = cmp.Or(o.cause.Kind(), w.WaitsFor)
		return
	}
	w.conclude()
	if len(full) == 0 || w.WaitsFor == "pause" {
		switch w.WaitsFor {
		case "pause":
			w.Commands = append(w.Commands, "llmguard queue resume "+w.Job.Pool)
		case "quota", "retry":
			w.Commands = append(w.Commands, "llmguard queue --pool "+w.Job.Pool)
		}
	}
}

// conclude corrects the reason of a job that was waiting for quota and waits for a limit by now.
func (w *Why) conclude() {
	if full := w.full(); w.WaitsFor == "quota" && len(full) > 0 {
		w.WaitsFor, w.Cause = "limit", w.Limits[0].cause()
		w.Reason = fmt.Sprintf("It waits behind %d others in pool %s, and is over %s.",
			*w.Job.Ahead, w.Job.Pool, strings.Join(full, ", "))
	}
}

// maxCancelled is how many jobs a command to cancel names.
const maxCancelled = 20

// sumAhead adds up what jobs will hold of those limits of w that count them.
func (h *whyHandler) sumAhead(w *Why, jobs []*queue.Job) []AheadJobs {
	type holder struct {
		limitName
		user, batch string
	}
	w.before = map[limitName]int64{}
	sums := map[holder]*AheadJobs{}
	for _, one := range jobs {
		who := one.Call()
		_, theirs, _, err := h.opts.Policy().Bounds(who)
		if err != nil {
			continue // it fails when its turn comes
		}
		for i := range w.limits {
			l := &w.limits[i]
			name := nameOf(l)
			counts := slices.ContainsFunc(theirs, func(t budget.Limit) bool { return nameOf(&t) == name }) ||
				l.Subject == budget.RunBudget && slices.Contains(one.Run.IDs(), l.Only)
			if l.Metric == budget.Concurrency || !counts || l.Subject != budget.RunBudget && !l.Same(who, w.who) {
				continue
			}
			n := wantedOf(l.Metric, budget.Amounts{Cost: one.Cost, Tokens: one.Tokens})
			w.before[name] += n
			at := holder{name, one.User, one.Batch}
			if sums[at] == nil {
				sums[at] = &AheadJobs{Limit: l.ID, User: one.User, Batch: one.Batch, Unit: units[l.Metric]}
			}
			sums[at].Jobs, sums[at].Amount = sums[at].Jobs+1, sums[at].Amount+n
			sums[at].ids = append(sums[at].ids, one.ID)
		}
	}
	return sortAhead(slices.Collect(maps.Values(sums)))
}

// sortAhead sets the commands and puts the largest holders first.
func sortAhead(sums []*AheadJobs) (out []AheadJobs) {
	for _, sum := range sums {
		sum.Command = "llmguard jobs cancel " + strings.Join(sum.ids[:min(len(sum.ids), maxCancelled)], " ")
		if sum.Batch != "" {
			sum.Command = "llmguard batches cancel " + sum.Batch
		}
		out = append(out, *sum)
	}
	slices.SortFunc(out, func(a, b AheadJobs) int {
		return cmp.Or(strings.Compare(a.Limit, b.Limit), cmp.Compare(b.Amount, a.Amount), strings.Compare(a.User, b.User),
			strings.Compare(a.Batch, b.Batch))
	})
	return out
}

// explainBatch explains a batch by the oldest of its lines that waits, because a batch's lines run in order.
func (h *whyHandler) explainBatch(c *call, w *Why, b *batch.Batch) error {
	line := lineOf(b)
	progress := fmt.Sprintf("The batch is %s: %d of %s are done, %d failed.", b.Status, line.Done,
		figures.Plural(line.Lines, "line"), line.Failed)
	if len(b.Problems) > 0 {
		progress += " " + b.Problems[0].Message
	}
	w.Reason = progress
	w.who = ledger.Call{Org: b.Org, User: b.User, Key: b.Key, Model: b.Model, Endpoint: string(b.Endpoint)}
	if b.Status.Terminal() {
		return nil
	}
	q, err := h.jobs.queue(c)
	if err != nil {
		return err
	}
	lines, err := h.queued(c, b.Org, func(j *queue.Job) bool { return j.Batch == b.ID })
	if err != nil {
		return err
	}
	if len(lines) == 0 {
		if o := h.obstacle(c, w); o != nil {
			w.stands(o)
			w.Reason += " " + progress
		}
		return nil
	}
	w.Reason = ""
	if err := h.explainJob(c, w, q, lines[len(lines)-1]); err != nil {
		return err
	}
	w.Reason += " " + progress
	return nil
}
