package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/wire"
)

// Runs finds the runs of callers. A nil Runs finds none.
type Runs struct {
	budget *budget.Store
	outage *Outage
	memory *records
}

// Read returns the caller with its runs as they are now, unless they were read before. The error is a
// *wire.Error if one of them has ended, or wraps budget.ErrUnavailable.
func (rs *Runs) Read(ctx context.Context, c Caller) (Caller, error) {
	if c.Run == "" || c.Runs != nil || rs == nil {
		return c, nil
	}
	if err := spreadRefuses(c.Org); err != nil {
		return c, err
	}
	found, err := rs.find(ctx, c, c.Run.IDs())
	if err != nil {
		return c, err
	}
	c.Runs = found
	return c, nil
}

// find reads runs of a caller, which must be open.
func (rs *Runs) find(ctx context.Context, c Caller, ids []string) (found []budget.Run, err error) {
	err = rs.Reach(ctx, c.Org, func(ctx context.Context) (err error) {
		found, err = rs.budget.Runs.Find(ctx, c.Org.ID, ids...)
		return err
	})
	if errors.Is(err, budget.ErrNoRun) {
		return nil, endedRun(fmt.Sprintf("The run %s has ended. Create a new one for further calls", ids[len(ids)-1]))
	}
	if err != nil {
		return nil, err
	}
	for i := range found {
		if r := &found[i]; !r.Open(time.Now()) {
			return nil, runEnded(r)
		}
	}
	return found, nil
}

// Kept reports whether the caller's run, and those it is inside of, can still be read.
func (rs *Runs) Kept(ctx context.Context, c Caller) (kept bool, err error) {
	err = rs.Reach(ctx, c.Org, func(ctx context.Context) error {
		found, err := rs.budget.Runs.Existing(ctx, c.Org.ID, c.Run.IDs()...)
		kept = len(found) == len(c.Run.IDs())
		return err
	})
	return kept, err
}

// Enter returns the caller inside a run that Find or Create returned for it. It reads the runs in between
// only. The errors are as of Read.
func (rs *Runs) Enter(ctx context.Context, c Caller, run budget.Run) (Caller, error) {
	if err := spreadRefuses(c.Org); err != nil {
		return c, err
	}
	ids := run.Path.IDs()
	between := ids[len(c.Runs) : len(ids)-1]
	runs := slices.Clone(c.Runs)
	if len(between) > 0 {
		found, err := rs.find(ctx, c, between)
		if err != nil {
			return c, err
		}
		runs = append(runs, found...)
	}
	if !run.Open(time.Now()) {
		return c, runEnded(&run)
	}
	c.Run, c.Runs = run.Path, append(runs, run)
	return c, nil
}

// in is Read for another run of the caller.
func (rs *Runs) in(ctx context.Context, c Caller, run ledger.RunPath) (Caller, error) {
	c.Run, c.Runs = run, nil
	return rs.Read(ctx, c)
}

// Reach runs a request to the store about the runs of an org. An error of a store that does not answer wraps
// budget.ErrUnavailable.
func (rs *Runs) Reach(ctx context.Context, o *Org, request func(context.Context) error) error {
	if rs.outage == nil {
		return request(ctx)
	}
	err := rs.outage.Reach(ctx, o, []string{o.ID}, request)
	if errors.Is(err, context.Canceled) && ctx.Err() == nil { // the store was silent
		err = fmt.Errorf("%w: %w", budget.ErrUnavailable, err)
	}
	return err
}

// NewRuns returns the runs in a store, for programs without a Guard.
func NewRuns(store *budget.Store, memory *capacity.Memory) *Runs {
	return &Runs{budget: store, memory: &records{memory: memory}}
}

// errRunEnded is the cause of the error of a call whose run has ended.
var errRunEnded = errors.New("guard: the run has ended")

func endedRun(message string) error {
	e := wire.RunBudgetReached(message)
	e.Err = errRunEnded
	return e
}

func runEnded(r *budget.Run) error {
	at, how := r.Expires, "expired"
	if !r.Ended.IsZero() {
		at, how = r.Ended, "was ended"
	}
	return endedRun(fmt.Sprintf("The run %s %s at %s. Create a new one for further calls", runTitle(r), how,
		at.UTC().Format(time.RFC3339)))
}

// runTitle is how messages name a run.
func runTitle(r *budget.Run) string {
	if r.Name == "" {
		return r.ID()
	}
	return fmt.Sprintf("%q (%s)", r.Name, r.ID())
}

// Run returns the run whose limit refused; nil if another limit did.
func (e *Refusal) Run() *budget.Run {
	if !e.OfRun() || e.plan == nil {
		return nil
	}
	depth := 1
	if _, text, ok := strings.Cut(e.Binding.LimitID, "-"); ok {
		depth, _ = strconv.Atoi(text)
	}
	if depth < 1 || depth > len(e.plan.Caller.Runs) {
		return nil
	}
	return &e.plan.Caller.Runs[depth-1]
}

// ofRun words the refusal by the budget of a run, or by its limit on open calls.
func (e *Refusal) ofRun() *wire.Error {
	b, title, id := e.Binding, "of this call", "RUN"
	if r := e.Run(); r != nil {
		title, id = runTitle(r), r.ID()
	}
	if b.Metric == budget.Concurrency {
		return wire.RateLimited(fmt.Sprintf("The run %s has %d open calls, the most it may have. Try again when one ends.",
			title, b.Used), min(max(b.Wait, time.Second), openCallsRetry))
	}
	text := fmt.Sprintf("amount %s, spent %s, held by open calls %s, requested %s.", amount(b.Metric, b.Amount),
		amount(b.Metric, b.Used-b.Held), amount(b.Metric, b.Held), amount(b.Metric, e.Requested))
	if !b.Never {
		return wire.RateLimited(fmt.Sprintf("Open calls of the run %s hold the rest of its amount: %s Try again when one "+
			"ends.%s", title, text, e.Advice), runRetry)
	}
	return wire.RunBudgetReached(fmt.Sprintf("The run %s has reached its budget: %s Waiting does not help. The key that "+
		"created the run can add to it with POST /v1/keys/children/%s and {\"add_amount\": \"$1\"}, an operator with "+
		"llmguard runs top-up %s.%s", title, text, id, id, e.Advice))
}

// runRetry is the wait advised while open calls of a run hold the rest of its amount.
const runRetry = 2 * time.Second

// CreateKey creates a run with a key of its own, and returns both. The errors are as of Create.
func (rs *Runs) CreateKey(
	ctx context.Context, p *Policy, c Caller, w RunWish, pepper keys.Pepper,
) (run budget.Run, text string, err error) {
	text = keys.NewRun(pepper)
	w.ID, w.Last4 = NewRunID(c, text), keys.Last4(text)
	if w.Name == "" {
		w.Name = w.Labels["run"]
	}
	if !ledger.ValidLabelValue(w.Name) {
		return run, "", wire.BadRequest("name", "invalid_value",
			"name must be at most %d letters, digits and . _ - : / @ + = ~ # %%", ledger.MaxLabelValue)
	}
	run, _, err = rs.Create(ctx, p, c, w)
	if err != nil {
		return run, "", err
	}
	err = rs.putKey(ctx, c, keys.Hash(pepper, text), &run)
	if err != nil { // nobody has the key
		_, ended := rs.End(ctx, c, run)
		return run, "", errors.Join(err, ended)
	}
	return run, text, nil
}

// RunLife parses a duration such as 2h, or a number of seconds.
func RunLife(text string) (time.Duration, error) {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * 24 * time.Hour, err
	}
	return time.ParseDuration(text)
}

// RunView is the JSON form of a run in both APIs. Amounts are US dollars, times Unix seconds.
type RunView struct {
	ID          string            `json:"id" col:"id" fact:"id"`
	Object      string            `json:"object"`
	Status      string            `json:"status" col:"status" fact:"status"`
	Name        *string           `json:"name" col:"name" fact:"name"`
	Org         string            `json:"org" fact:"org"`
	User        string            `json:"user" col:"user" fact:"user"`
	ParentKey   string            `json:"parent_key" fact:"key that gave the budget"`
	Key         string            `json:"key,omitempty" secret:"key"`
	Last4       *string           `json:"key_last4" fact:"key ends with"`
	Parent      *string           `json:"parent" fact:"inside run"`
	Amount      string            `json:"amount" col:"amount;dollars" fact:"amount;dollars"`
	Spent       string            `json:"spent" col:"spent;dollars" fact:"spent;dollars"`
	Held        string            `json:"held" fact:"held;dollars"`
	Remaining   string            `json:"remaining" col:"remaining;dollars" fact:"remaining;dollars"`
	Models      []string          `json:"models" fact:"models;all"`
	Labels      map[string]string `json:"labels" fact:"labels"`
	Concurrency int64             `json:"concurrency" fact:"concurrency;;any"`
	Created     int64             `json:"created_at" fact:"created;minute"`
	Expires     int64             `json:"expires_at" col:"expires;minute" fact:"expires;minute"`
	Ended       *int64            `json:"ended_at" fact:"ended;minute"` // null unless it was ended
}

// ViewRun returns the view of a run at a time.
func ViewRun(r *budget.Run, use budget.RunUse, now time.Time) RunView {
	v := RunView{
		ID: r.ID(), Object: "run", Status: r.Status(use, now), Name: textOrNull(r.Name), Org: r.Org, User: r.User,
		ParentKey: r.Key, Last4: textOrNull(r.Last4),
		Parent: textOrNull(r.Parent.ID()), Amount: r.Amount.Decimal(), Spent: use.Spent.Decimal(), Held: use.Held.Decimal(),
		Remaining: use.Remaining.Decimal(), Models: r.Models, Labels: r.Labels, Concurrency: r.Concurrency,
		Created: r.Created.Unix(), Expires: r.Expires.Unix(),
	}
	if !r.Ended.IsZero() {
		v.Ended = new(r.Ended.Unix())
	}
	if v.Models == nil {
		v.Models = []string{}
	}
	if v.Labels == nil {
		v.Labels = map[string]string{}
	}
	return v
}

func textOrNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
