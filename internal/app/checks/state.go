package checks

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/figures"
)

// unread adds that a check could not read something.
func unread(r *diagnose.Report, what string, err error) {
	r.Add(diagnose.Error, what+" cannot be checked: "+err.Error(), "Check Redis's latency and log.")
}

// closedLimits lists the orgs' own limits that are closed because Redis lost its data.
func closedLimits(ctx context.Context, e *examination, r *diagnose.Report) {
	lost, err := e.parts.Budget.DataLoss.At(ctx)
	if err == nil && lost.IsZero() {
		return
	}
	for _, org := range slices.Sorted(maps.Keys(e.rules.Orgs)) {
		call := ledger.Call{Org: org}
		limits := slices.DeleteFunc(slices.Clone(e.rules.Orgs[org].Limits), func(l budget.Limit) bool {
			return l.Subject != budget.Org || !l.Counts(call)
		})
		if err != nil || len(limits) == 0 {
			continue
		}
		var states []budget.Status
		states, err = e.parts.Budget.Peek(ctx, limits, call)
		for _, s := range states {
			if !s.ClosedUntil.IsZero() {
				r.Add(diagnose.Error, fmt.Sprintf("limit %s of %s is closed until %s, because Redis lost its data", s.LimitID, org,
					figures.Minute(s.ClosedUntil)), "Restore Redis, or reset the limits to zero: llmguard limits reopen --org "+
					org+" --reason TEXT.").Org = org
			}
		}
	}
	if err != nil {
		unread(r, "limits", err)
	}
}

// poolStates lists pools that are paused or blocked, or have dead letters.
func poolStates(ctx context.Context, e *examination, r *diagnose.Report) {
	for _, p := range e.parts.Queue.Pools() {
		d, err := e.parts.Queue.Depth(ctx, p.ID)
		if err != nil {
			unread(r, "pool "+p.ID, err)
			return
		}
		if d.Paused {
			r.Add(diagnose.Error, "pool "+p.ID+" is paused by an operator: no job starts",
				"To end the pause: llmguard queue resume "+p.ID+".").Pool = p.ID
		}
		if d.Blocked > 0 {
			what := "pool " + p.ID
			if d.BlockedModel != "" {
				what = "model " + d.BlockedModel + " of pool " + p.ID
			}
			r.Add(diagnose.Error, fmt.Sprintf("%s is blocked by its provider for %s", what, figures.Span(d.Blocked)),
				"The provider returned 429 or 503, or refuses the account. Lower the pool's rpm and tpm if this happens "+
					"often. To end the pause: llmguard queue resume "+p.ID+".").Pool = p.ID
		}
		if d.Dead > 0 {
			r.Add(diagnose.Warning, fmt.Sprintf("pool %s has %s dead letters", p.ID, figures.Count(d.Dead)),
				"See why they failed, then replay them.").Pool = p.ID
		}
	}
}

// disabledTargets lists targets of webhooks that answered 410.
func disabledTargets(ctx context.Context, e *examination, r *diagnose.Report) {
	if e.parts.Webhooks == nil {
		return
	}
	for _, org := range e.parts.Webhooks.Orgs() {
		list, err := e.parts.Webhooks.Targets(ctx, org)
		if err != nil {
			unread(r, "webhooks", err)
			return
		}
		for _, t := range list {
			if t.Off != nil {
				f := r.Add(diagnose.Error, fmt.Sprintf("webhook target %s of %s is disabled: it returned 410",
					cmp.Or(t.Host, t.ID), t.Org), "Fix the target, enable it, then replay missed events: llmguard webhooks replay.")
				f.Org, f.Target = t.Org, t.ID
			}
		}
	}
}
