package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/webhook"
)

// Fault is a problem and how to fix it.
type Fault struct {
	Severe    bool // something does not work, or loses money or jobs; otherwise it is a warning
	What, Fix string

	Link        string // page with details; empty: none
	Org, Target string // a disabled webhook target that a button enables
}

const findingsAge = 10 * time.Second

func (c *Console) newFindings() *fresh[[]Fault] {
	return &fresh[[]Fault]{age: findingsAge, get: func(ctx context.Context) ([]Fault, error) {
		if c.o.Findings == nil {
			return nil, nil
		}
		return c.o.Findings(ctx), nil
	}}
}

func (c *Console) newOffTargets() *fresh[[]webhook.Target] {
	return &fresh[[]webhook.Target]{age: findingsAge, get: func(ctx context.Context) (off []webhook.Target, err error) {
		if c.o.Webhooks == nil {
			return nil, nil
		}
		for _, org := range c.o.Webhooks.Orgs() {
			list, err := c.o.Webhooks.Targets(ctx, org)
			if err != nil {
				return nil, err
			}
			off = append(off, slices.DeleteFunc(list, func(t webhook.Target) bool { return t.Off == nil })...)
		}
		return off, nil
	}}
}

// problems lists problems, severe ones first. Findings are slow to get, so the first page after
// a pause may lack them; then Checked is false.
func (c *Console) problems(ctx context.Context, view *overviewView) {
	found, at, _ := c.findings.load(ctx)
	off, webhooksAt, _ := c.offTargets.load(ctx)
	view.Checked = !at.IsZero() && !webhooksAt.IsZero()
	view.Problems = append(view.Problems, found...)
	for _, p := range view.Pools {
		view.Problems = append(view.Problems, poolFaults(p)...)
	}
	for _, t := range off {
		view.Problems = append(view.Problems, Fault{
			Severe: true, What: fmt.Sprintf("Webhook target %s of %s is disabled: it returned 410", cmp.Or(t.Host, t.ID),
				t.Org),
			Fix: "Fix the target, enable it, then replay missed events: llmguard webhooks replay.", Org: t.Org, Target: t.ID,
		})
	}
	view.Problems = append(view.Problems, c.unbounded()...)
	slices.SortStableFunc(view.Problems, func(a, b Fault) int {
		return map[bool]int{true: 1}[b.Severe] - map[bool]int{true: 1}[a.Severe]
	})
}

func poolFaults(p poolLine) (out []Fault) {
	link := Path + "queue#pool-" + p.ID
	if p.Paused {
		out = append(out, Fault{
			Severe: true, What: "Pool " + p.ID + " is paused by an operator: no job starts",
			Fix: "To end the pause: llmguard queue resume " + p.ID + ".", Link: link,
		})
	}
	if p.Blocked > 0 {
		what := "Pool " + p.ID
		if p.BlockedModel != "" {
			what = "Model " + p.BlockedModel + " of pool " + p.ID
		}
		out = append(out, Fault{
			Severe: true, What: fmt.Sprintf("%s is blocked by its provider for %s", what, short(p.Blocked)),
			Fix: "The provider returned 429 or 503, or refuses the account. Lower the pool's rpm and tpm if this happens " +
				"often. To end the pause: llmguard queue resume " + p.ID + ".", Link: link,
		})
	}
	if p.Dead > 0 {
		out = append(out, Fault{
			What: fmt.Sprintf("Pool %s has %s dead letters", p.ID, figures.Count(p.Dead)),
			Fix:  "See why they failed, then replay them.", Link: link,
		})
	}
	return out
}

// closed lists limits that are closed because the store lost its data.
func closed(org string, states []budget.Status) (out []Fault) {
	for _, s := range states {
		if s.ClosedUntil.IsZero() {
			continue
		}
		out = append(out, Fault{
			Severe: true, What: fmt.Sprintf("Limit %s of %s is closed until %s, because Redis lost its data", s.LimitID, org,
				figures.Minute(s.ClosedUntil)),
			Fix:  "Restore Redis, or reset the limits to zero: llmguard limits reopen --org " + org + " --reason TEXT.",
			Link: pathOf("orgs", org),
		})
	}
	return out
}

// unbounded lists the orgs, or users of them, whose calls nothing bounds.
func (c *Console) unbounded() (out []Fault) {
	orgs := c.o.Tenants().Orgs
	for i := range orgs {
		if b := c.bound(&orgs[i]); b.None {
			out = append(out, unboundedFault(orgs[i].ID, b))
		}
	}
	return out
}

// bound returns what limits let an org spend.
func (c *Console) bound(o *settings.Org) guard.Bound {
	policy, now := c.o.Policy(), c.o.Now()
	if policy.Orgs[o.ID] == nil {
		return guard.Bound{}
	}
	return policy.Bound(policy.Orgs[o.ID], o.CallerKeys(now), now)
}

func unboundedFault(org string, b guard.Bound) Fault {
	what := b.Warning(org)
	return Fault{
		Severe: true, What: strings.ToUpper(what[:1]) + what[1:], Fix: guard.BoundFix(org),
		Link: pathOf("orgs", org),
	}
}
