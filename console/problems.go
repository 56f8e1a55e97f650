package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/webhook"
)

// fault is something that is wrong, and how to fix it.
type fault struct {
	Level     diagnose.Level
	What, Fix string
	Link      string // the page that has more; empty: none
	// Target is a webhook target of Org that a button switches on.
	Org, Target string
}

const findingsAge = 10 * time.Second

func (c *Console) newFindings() *fresh[[]diagnose.Finding] {
	return &fresh[[]diagnose.Finding]{age: findingsAge, get: func(ctx context.Context) ([]diagnose.Finding, error) {
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

// problems lists what is wrong, errors first. Findings take long to get, so the first page
// after a pause may lack them; Known is false then.
func (c *Console) problems(ctx context.Context, view *overviewView) {
	found, at, _ := c.findings.load(ctx)
	off, webhooksAt, _ := c.offTargets.load(ctx)
	view.Checked = !at.IsZero() && !webhooksAt.IsZero()
	for _, f := range found {
		if f.Level != diagnose.OK {
			view.Problems = append(view.Problems, fault{Level: f.Level, What: f.What, Fix: f.Fix})
		}
	}
	for _, p := range view.Pools {
		view.Problems = append(view.Problems, poolProblems(p)...)
	}
	for _, t := range off {
		view.Problems = append(view.Problems, fault{
			Level: diagnose.Error, What: fmt.Sprintf("Webhook target %s of %s is switched off: it answered 410", cmp.Or(t.Host, t.ID), t.Org),
			Fix: "Fix the target, switch it on, then replay what it missed: llmguard webhooks replay.", Org: t.Org, Target: t.ID,
		})
	}
	policy := c.o.Policy()
	if catalogue := policy.Catalogue; catalogue != nil {
		if age := catalogue.Age(c.o.Now()); age > diagnose.OldPrices {
			view.Problems = append(view.Problems, fault{
				Level: diagnose.Warning, What: fmt.Sprintf("Prices were last checked %d days ago, on %s", int(age/(24*time.Hour)), catalogue.AsOf().Format(time.DateOnly)),
				Fix: "Run llmguard prices verify, then update llmguard or set prices in the configuration.",
			})
		}
	}
	view.Problems = append(view.Problems, unbounded(view.Orgs, policy)...)
	slices.SortStableFunc(view.Problems, func(a, b fault) int { return cmp.Compare(severity(a.Level), severity(b.Level)) })
}

func severity(l diagnose.Level) int {
	if l == diagnose.Error {
		return 0
	}
	return 1
}

func poolProblems(p poolLine) (out []fault) {
	link := Path + "queue#pool-" + p.ID
	if p.Blocked > 0 {
		out = append(out, fault{
			Level: diagnose.Error, What: fmt.Sprintf("Pool %s is blocked by its provider for %s", p.ID, short(p.Blocked)),
			Fix: "The provider answered 429 or 503. Lower the pool's rpm and tpm if this happens often.", Link: link,
		})
	}
	if p.Dead > 0 {
		out = append(out, fault{
			Level: diagnose.Warning, What: fmt.Sprintf("Pool %s has %s dead letters", p.ID, count(p.Dead)),
			Fix: "See why they failed, then replay them.", Link: link,
		})
	}
	return out
}

// closed names limits that are closed because the store lost its data.
func closed(org string, states []budget.Status) (out []fault) {
	for _, s := range states {
		if s.ClosedUntil.IsZero() {
			continue
		}
		out = append(out, fault{
			Level: diagnose.Error, What: fmt.Sprintf("Limit %s of %s is closed until %s, because Redis lost its data", s.LimitID, org, s.ClosedUntil.UTC().Format("2006-01-02 15:04 UTC")),
			Fix: "Restore Redis, or let limits count from zero: llmguard limits reopen --org " + org + " --reason TEXT.", Link: pathOf("orgs", org),
		})
	}
	return out
}

// unbounded names the orgs that no limit of their own holds back.
func unbounded(orgs []orgLine, policy *guard.Policy) (out []fault) {
	capped := ""
	if slices.ContainsFunc(policy.Caps, func(c budget.Cap) bool {
		return slices.ContainsFunc(c.Limits, func(l budget.Limit) bool { return l.Mode != budget.Shadow && l.Mode != budget.Off })
	}) {
		capped = "; only spend caps bound it"
	}
	for _, o := range orgs {
		if p := policy.Orgs[o.ID]; p == nil || o.Disabled || slices.ContainsFunc(p.Limits, enforced) {
			continue
		}
		out = append(out, fault{
			Level: diagnose.Error, What: "Org " + o.ID + " has no limit that is enforced" + capped,
			Fix: "Set one: llmguard limits set month --org " + o.ID + " --amount '$100' --calendar month.", Link: pathOf("orgs", o.ID),
		})
	}
	return out
}

func enforced(l budget.Limit) bool { return l.Mode != budget.Shadow && l.Mode != budget.Off }
