package guard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// RunWish is a run that a caller wants to create. Its parent is the caller's own run, else its key.
type RunWish struct {
	ID     string // of NewRunID
	Name   string // "": it has no name
	Amount pricing.Nano
	Life   time.Duration // until it expires; 0: DefaultRunLife, or the org's maximum
	// Models are patterns within those of the caller; Labels fix the labels of its calls.
	Models      []string
	Labels      map[string]string
	Concurrency int64 // of its open calls; 0: any number
	Last4       string
	// Named means that the id follows from the name, so that an earlier run may have had it.
	Named bool
}

// DefaultRunLife is how long a run lives, unless it has another life.
const DefaultRunLife = 24 * time.Hour

const (
	runIDPrefix = "run_"
	runIDLen    = 16
)

// NewRunID returns the id of a caller's run: of the run with that name, or a new one for each seed.
func NewRunID(c Caller, seed string) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{budget.Giver(c.Key, c.Born), string(c.Run), seed}, "\x00")))
	return runIDPrefix + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:runIDLen]
}

// IsRunID reports whether a text has the form of a run's id.
func IsRunID(text string) bool {
	return strings.HasPrefix(text, runIDPrefix) && len(text) == len(runIDPrefix)+runIDLen
}

// Create creates a run for a caller whose runs have been read; made is false if it existed. The error is a
// *wire.Error, or wraps budget.ErrUnavailable.
func (rs *Runs) Create(ctx context.Context, p *Policy, c Caller, w RunWish) (run budget.Run, made bool, err error) {
	rules := c.Org.Runs
	w, err = p.checkRun(c, w)
	if err != nil {
		return run, false, err
	}
	n := budget.NewRun{
		Run: budget.Run{
			Path: c.Run.Below(w.ID), Org: c.Org.ID, User: c.User, Key: c.Key, Born: c.Born, Amount: w.Amount, Name: w.Name,
			Labels: w.Labels, Models: w.Models, Concurrency: w.Concurrency, Last4: w.Last4,
		},
		Life: w.Life, Most: rules.MaxOpen,
	}
	if last := len(c.Runs) - 1; last >= 0 {
		n.Latest = c.Runs[last].Expires
	}
	if w.Named {
		n.Before = rules.MaxLife
	}
	err = rs.Reach(ctx, c.Org, func(ctx context.Context) error {
		err := rs.affords(ctx, c, w.Amount, w.Life)
		if err == nil {
			err = rs.memory.Reserve(ctx, n.Org, memoryID(n.Org, w.ID), w.bytes(), w.Life+budget.RunKept)
		}
		if err != nil {
			return err
		}
		run, made, err = rs.budget.Runs.Create(ctx, n)
		if errors.Is(err, budget.ErrRunsFull) {
			rs.memory.Release(ctx, memoryID(n.Org, w.ID))
		}
		return err
	})
	if errors.Is(err, budget.ErrRunsFull) {
		err = wire.BadRequest("", "too_many_runs", "%d runs of this key or run are open, the most it may have. End one with "+
			"DELETE /v1/keys/children/{id}; an operator can raise runs.max_open of the org", rules.MaxOpen)
	}
	return run, made, err
}

// runBytes is about what Redis needs for a run without what its caller chose: the record, its places in lists, the
// record of its key and what it used. Texts take up to a half more than their length.
const runBytes = 1 << 10

// maxRunModels is how many patterns of models a caller may choose for a run.
const maxRunModels = 64

func (w *RunWish) bytes() int64 {
	n := runBytes + len(w.Name)
	for _, m := range w.Models {
		n += len(m)
	}
	for name, value := range w.Labels {
		n += len(name) + len(value)
	}
	return int64(n) * 3 / 2
}

// checkRun checks a wish against the rules and what the caller may do, and completes it.
func (p *Policy) checkRun(c Caller, w RunWish) (RunWish, error) {
	rules := c.Org.Runs
	if rules.MaxDepth == 0 {
		return w, wire.Forbidden("runs_not_allowed", "Keys of this org cannot give budgets to runs. An operator can set "+
			"runs.max_depth of the org")
	}
	if err := spreadRefuses(c.Org); err != nil {
		return w, err
	}
	if len(c.Run.IDs()) >= rules.MaxDepth {
		return w, wire.BadRequest("", "run_too_deep", "Runs can be nested %d deep (runs.max_depth of the org)",
			rules.MaxDepth)
	}
	if err := runAmount(rules, "amount", w.Amount); err != nil {
		return w, err
	}
	if w.Life == 0 {
		w.Life = min(DefaultRunLife, rules.MaxLife)
	}
	if w.Life < time.Second || w.Life > rules.MaxLife {
		return w, wire.BadRequest("expires_in", "invalid_value", "expires_in must be from 1s to %s (runs.max_life of the "+
			"org)", rules.MaxLife)
	}
	if w.Concurrency < 0 {
		return w, wire.BadRequest("concurrency", "integer_below_min_value", "concurrency must be 0, for any number, or more")
	}
	if len(w.Models) > maxRunModels {
		return w, wire.BadRequest("models", "array_above_max_length", "models has %d patterns; a run may have %d",
			len(w.Models), maxRunModels)
	}
	for _, m := range w.Models {
		if m == "" || len(m) > wire.MaxModel || allowed(c, m) != nil {
			return w, wire.BadRequest("models", "invalid_value", "This key may not use the model %.100q, so a run of it may "+
				"not either", m)
		}
	}
	return w, p.checkRunLabels(c, w)
}

func runAmount(rules settings.Runs, param string, n pricing.Nano) error {
	if n <= 0 {
		return wire.BadRequest(param, "invalid_value", `%s must be money above 0 such as "$5"`, param)
	}
	most := pricing.Nano(budget.MaxAmount)
	if rules.MaxAmount.N > 0 {
		most = min(most, pricing.Nano(rules.MaxAmount.N))
	}
	if n > most {
		return wire.BadRequest(param, "invalid_value", "%s of %s is above %s, the most that a run may have (runs.max_amount "+
			"of the org)", param, n, most)
	}
	return nil
}

// checkRunLabels checks the labels of a run: those of the configuration that its caller may choose, and run, which
// names it.
func (p *Policy) checkRunLabels(c Caller, w RunWish) error {
	for name, value := range w.Labels {
		at := slices.IndexFunc(p.Labels, func(l Label) bool { return l.Name == name })
		if at < 0 && name != runLabel {
			return wire.BadRequest("labels", "invalid_label", "The label %.40q is not configured under labels", name)
		}
		if name != runLabel && !p.Labels[at].narrows(c, value) {
			return wire.BadRequest("labels", "invalid_label", "The calls of this key have a fixed %s, %s, so a run of it "+
				"cannot have %.100q. Leave it out", name, cmp.Or(p.Labels[at].fixed(c), "which only operators set"), value)
		}
		if value == "" || !ledger.ValidLabelValue(value) {
			return wire.BadRequest("labels", "invalid_label",
				"The label %s must be 1 to %d letters, digits and . _ - : / @ + = ~ # %%", name, ledger.MaxLabelValue)
		}
	}
	return nil
}

// affords refuses an amount above what the caller has: what is left of its run, and of each limit on money whose
// usage does not return within the life of the new run.
func (rs *Runs) affords(ctx context.Context, c Caller, n pricing.Nano, life time.Duration) error {
	limits := slices.DeleteFunc(slices.Clone(c.limits()), func(l budget.Limit) bool {
		return l.Metric != budget.Cost || !enforced(l.Mode) || len(l.Models)+len(l.Endpoints) > 0 ||
			l.Subject != budget.Org && l.Subject != budget.User && l.Subject != budget.Key && l.Subject != budget.RunBudget
	})
	statuses, err := rs.budget.Peek(ctx, limits, c.subject())
	if err != nil {
		return err
	}
	for _, s := range statuses {
		if s.Remaining >= int64(n) || s.Window > 0 && s.Window < life {
			continue
		}
		what := fmt.Sprintf("limit %q of this %s", s.LimitID, s.Subject)
		if s.Subject == budget.RunBudget {
			what = "the run that creates it"
		}
		return wire.BadRequest("amount", "amount_too_large", "The amount %s is above the %s that is left of %s", n,
			pricing.Nano(s.Remaining), what)
	}
	return nil
}

// Of returns a run of an org by its id.
func (rs *Runs) Of(ctx context.Context, o *Org, id string) (budget.Run, error) {
	var found []budget.Run
	err := rs.Reach(ctx, o, func(ctx context.Context) (err error) {
		found, err = rs.budget.Runs.Find(ctx, o.ID, id)
		return err
	})
	if errors.Is(err, budget.ErrNoRun) {
		return budget.Run{}, NoRun(id)
	}
	if err != nil {
		return budget.Run{}, err
	}
	return found[0], nil
}

// Find returns a run of a caller by its id: one that its key, or a run inside the caller's own, created.
func (rs *Runs) Find(ctx context.Context, c Caller, id string) (budget.Run, error) {
	run, err := rs.Of(ctx, c.Org, id)
	if err == nil && !owns(c, &run) {
		return budget.Run{}, NoRun(id)
	}
	return run, err
}

// owns reports whether a run was created by the caller's key, or inside the caller's own run.
func owns(c Caller, r *budget.Run) bool {
	return r.Of(c.User, c.Key, c.Born) && r.Path.Within(c.Run) && r.Path != c.Run
}

// NoRun is the error for a run that does not exist, or belongs to others.
func NoRun(id string) error {
	return wire.NotFound("", "run_not_found", "There is no run %.100q of yours, or it ended more than an hour ago", id)
}

// changeBytes is about what a run needs to remember a change.
const changeBytes = 64

// TopUp adds to the amount of a caller's run; a repetition with the same id adds nothing. The amount must be left of
// the caller's own run, if it has one.
func (rs *Runs) TopUp(ctx context.Context, c Caller, r budget.Run, id string, add pricing.Nano) (budget.Run, error) {
	if err := runAmount(c.Org.Runs, "add_amount", add); err != nil {
		return r, err
	}
	most := pricing.Nano(c.Org.Runs.MaxAmount.N)
	err := rs.Reach(ctx, c.Org, func(ctx context.Context) (err error) {
		err = rs.affords(ctx, c, add, time.Until(r.Expires))
		if err != nil {
			return err
		}
		// The run remembers that it was added.
		err = rs.memory.Admit(ctx, c.Org.ID, changeBytes, time.Until(r.Expires)+budget.RunKept)
		if err != nil {
			return err
		}
		r, err = rs.budget.Runs.TopUp(ctx, r, id, add, most)
		return err
	})
	return r, runFailure(r, most, err)
}

// End ends a run.
func (rs *Runs) End(ctx context.Context, c Caller, r budget.Run) (budget.Run, error) {
	err := rs.Reach(ctx, c.Org, func(ctx context.Context) (err error) {
		r, err = rs.budget.Runs.End(ctx, r)
		if err == nil {
			rs.memory.Settle(ctx, capacity.Settled{
				ID: memoryID(c.Org.ID, r.ID()), Written: capacity.AsBefore, Life: budget.RunKept,
			})
		}
		return err
	})
	return r, runFailure(r, 0, err)
}

// maxEnded is how many runs EndChildren ends; the others expire.
const maxEnded = 1000

// EndChildren ends the open runs with keys of their own that a key created.
func (rs *Runs) EndChildren(ctx context.Context, c Caller) error {
	list, _, err := rs.List(ctx, c, budget.RunPage{Ending: time.Now(), Limit: maxEnded})
	for i := 0; i < len(list) && err == nil; i++ {
		if list[i].Last4 != "" && list[i].Open(time.Now()) {
			_, err = rs.End(ctx, c, list[i])
		}
	}
	return err
}

func runFailure(r budget.Run, most pricing.Nano, err error) error {
	switch {
	case errors.Is(err, budget.ErrNoRun):
		return NoRun(r.ID())
	case errors.Is(err, budget.ErrRunEnded):
		return &wire.Error{
			Status: http.StatusConflict, Type: "invalid_request_error", Code: "run_ended",
			Message: "The run " + runTitle(&r) + " has ended. Create a new one",
		}
	case errors.Is(err, budget.ErrRunChanges):
		return &wire.Error{
			Status: http.StatusConflict, Type: "invalid_request_error", Code: "run_added_to_too_often",
			Message: "The run " + runTitle(&r) + " was added to 500 times, the most that is possible. Create a new one",
		}
	case errors.Is(err, budget.ErrRunLarge):
		return wire.BadRequest("add_amount", "invalid_value", "The run would have more than %s, the most that a run may "+
			"have (runs.max_amount of the org)", most)
	}
	return err
}

func (rs *Runs) putKey(ctx context.Context, c Caller, hash string, run *budget.Run) error {
	return rs.Reach(ctx, c.Org, func(ctx context.Context) error {
		owner := budget.RunOwner{Org: c.Org.ID, Key: c.Key, Run: run.Path, Lineage: c.Lineage}
		return rs.budget.Runs.PutKey(ctx, hash, owner, time.Until(run.Expires))
	})
}

// FindKey returns the run that a key with one of these hashes belongs to. The error is budget.ErrNoRun, or wraps
// budget.ErrUnavailable.
func (rs *Runs) FindKey(ctx context.Context, hashes []string) (budget.RunOwner, error) {
	ctx, cancel := context.WithTimeout(ctx, findKeyTime)
	defer cancel()
	return rs.budget.Runs.FindKey(ctx, hashes...)
}

// findKeyTime bounds the search for a key. The org, whose settings say how long Redis may take, is not known yet.
const findKeyTime = time.Second

// List returns a page of the runs that the caller's key, or its run, created, and that did not end over an hour ago,
// and whether more follow.
func (rs *Runs) List(ctx context.Context, c Caller, page budget.RunPage) (out []budget.Run, more bool, err error) {
	err = rs.Reach(ctx, c.Org, func(ctx context.Context) (err error) {
		out, more, err = rs.budget.Runs.List(ctx, c.Org.ID, budget.Giver(c.Key, c.Born), c.Run, page)
		return err
	})
	return out, more, err
}

// Uses returns what runs of an org have used, in order.
func (rs *Runs) Uses(ctx context.Context, o *Org, runs []budget.Run) (out []budget.RunUse, err error) {
	err = rs.Reach(ctx, o, func(ctx context.Context) (err error) {
		out, err = rs.budget.Runs.Uses(ctx, o.ID, runs)
		return err
	})
	return out, err
}

// spreadRefuses refuses runs in an org that is spread: what a run has used is in one slot with its limits.
func spreadRefuses(o *Org) error {
	if o.Spread.Parts > 1 {
		return wire.Forbidden("runs_not_allowed", "Keys of an org with spread cannot give budgets to runs")
	}
	return nil
}
