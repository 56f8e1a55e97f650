package admin

import (
	"cmp"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// newRun is a budget that a key gives to a run.
type newRun struct {
	Amount      string            `json:"amount" input:"money" help:"what the run may spend, such as $5"`                              // such as "$5"
	Expires     string            `json:"expires_in,omitempty" flag:"expires" help:"duration until it ends, such as 2h (default: 1d)"` // such as 2h; default: a day
	Name        string            `json:"name,omitempty" help:"name of the run (default: its label run)"`
	Models      []string          `json:"models,omitempty" help:"allowed models within the key's, as comma-separated patterns"`
	Labels      map[string]string `json:"labels,omitempty" flag:"label" help:"value of a label for all calls of the run, as name=value (repeat for several)"`
	Concurrency int64             `json:"concurrency,omitempty" help:"maximum number of open calls (default: any)"` // 0: any number
	Reason      string            `json:"reason,omitempty"`
}

// topUp adds to the amount of a run.
type topUp struct {
	Add    string `json:"add_amount" flag:"add" input:"money" help:"the amount to add, such as $5"` // such as "$5"
	Reason string `json:"reason,omitempty"`
}

type runHandler struct {
	base
	runs *guard.Runs
}

// caller returns the caller that a key of an org is.
func (h *runHandler) caller(org, key string) (guard.Caller, error) {
	o, _, err := h.dir.org(org)
	if err != nil {
		return guard.Caller{}, err
	}
	policy := h.opts.Policy().Orgs[o.ID]
	if policy == nil {
		return guard.Caller{}, wire.NotFound("org", "not_found", "The org %s is not in effect", o.ID)
	}
	c := guard.Caller{Org: policy, Key: key}
	if key == "" {
		return c, nil
	}
	k, u, _, err := h.dir.key(o, key)
	if err != nil {
		return c, err
	}
	c.User, c.Models, c.KeyLabels = u.ID, k.Models, settings.KeyLabels(o, u, k)
	c.Lineage = auth.LineageOf(k.Hash)
	if record := h.dir.records(o.ID).Keys[key]; record != nil {
		c.Born, c.Lineage = record.Born, cmp.Or(record.Lineage, c.Lineage)
	}
	return c, nil
}

// endChildren ends the runs with keys of their own that a key created, whose secret has ended. Their keys have ended
// with it in any case: this frees their places under runs.max_open.
func (h *runHandler) endChildren(c *call, owner guard.Caller) {
	if err := h.runs.EndChildren(c.r.Context(), owner); err != nil {
		c.log.WarnContext(c.r.Context(), "runs of an ended key not ended, they expire", "org", owner.Org.ID, "key", owner.Key,
			"err", err)
	}
}

func (h *runHandler) createRun(c *call) (any, error) {
	caller, err := h.caller(c.r.PathValue("org"), c.r.PathValue("key"))
	if err != nil {
		return nil, err
	}
	n := body[newRun](c)
	w := guard.RunWish{Name: n.Name, Models: n.Models, Labels: n.Labels, Concurrency: n.Concurrency}
	w.Amount, err = moneyOf("amount", n.Amount)
	if err != nil {
		return nil, err
	}
	if n.Expires != "" {
		w.Life, err = settings.ParseDuration(n.Expires)
		if err != nil {
			return nil, invalid("expires_in", "expires_in: %v", err)
		}
	}
	file := h.opts.File()
	run, text, err := h.runs.CreateKey(c.r.Context(), h.opts.Policy(), caller, w, file.pepper())
	if err != nil {
		return nil, err
	}
	v := guard.ViewRun(&run, budget.RunUse{Remaining: run.Amount}, c.start)
	if err := h.audit.commit(c, c.entry(run.Org, run.ID()), nil, v); err != nil {
		return nil, err
	}
	v.Key = text
	return created{v}, nil
}

func moneyOf(param, text string) (pricing.Nano, error) {
	n, err := pricing.ParseUSD(text)
	if err != nil {
		return 0, invalid(param, `%s must be money such as "$5"`, param)
	}
	return n, nil
}

// shownRuns bounds a list.
const shownRuns = 1000

func (h *runHandler) listRuns(c *call) (any, error) {
	caller, err := h.caller(c.r.PathValue("org"), c.r.URL.Query().Get("key"))
	if err != nil {
		return nil, err
	}
	runs, _, err := h.runs.List(c.r.Context(), caller, budget.RunPage{Limit: shownRuns})
	if err != nil {
		return nil, err
	}
	uses, err := h.runs.Uses(c.r.Context(), caller.Org, runs)
	if err != nil {
		return nil, err
	}
	out := make([]guard.RunView, len(runs))
	for i := range runs {
		out[i] = guard.ViewRun(&runs[i], uses[i], c.start)
	}
	return listOf(out), nil
}

func (h *runHandler) find(c *call) (guard.Caller, budget.Run, error) {
	caller, err := h.caller(c.r.PathValue("org"), "")
	if err != nil {
		return caller, budget.Run{}, err
	}
	run, err := h.runs.Of(c.r.Context(), caller.Org, c.r.PathValue("run"))
	return caller, run, err
}

func (h *runHandler) view(c *call, o *guard.Org, run budget.Run) (guard.RunView, error) {
	uses, err := h.runs.Uses(c.r.Context(), o, []budget.Run{run})
	if err != nil {
		return guard.RunView{}, err
	}
	return guard.ViewRun(&run, uses[0], c.start), nil
}

func (h *runHandler) getRun(c *call) (any, error) {
	caller, run, err := h.find(c)
	if err != nil {
		return nil, err
	}
	return h.view(c, caller.Org, run)
}

func (h *runHandler) topUpRun(c *call) (any, error) {
	caller, run, err := h.find(c)
	if err != nil {
		return nil, err
	}
	add, err := moneyOf("add_amount", body[topUp](c).Add)
	if err != nil {
		return nil, err
	}
	return h.change(c, caller, run, func() (budget.Run, error) {
		return h.runs.TopUp(c.r.Context(), caller, run, c.id, add)
	})
}

func (h *runHandler) endRun(c *call) (any, error) {
	caller, run, err := h.find(c)
	if err != nil {
		return nil, err
	}
	return h.change(c, caller, run, func() (budget.Run, error) {
		return h.runs.End(c.r.Context(), caller, run)
	})
}

func (h *runHandler) change(
	c *call, caller guard.Caller, run budget.Run, do func() (budget.Run, error),
) (any, error) {
	before, err := h.view(c, caller.Org, run)
	if err != nil {
		return nil, err
	}
	run, err = do()
	if err != nil {
		return nil, err
	}
	after, err := h.view(c, caller.Org, run)
	if err != nil {
		return nil, err
	}
	return after, h.audit.commit(c, c.entry(run.Org, run.ID()), before, after)
}
