package admin

import (
	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// resetLimit clears the usage of a limit. The ledger is kept.
func (h *limitHandler) resetLimit(c *call) (any, error) {
	how := body[limitReset](c)
	if err := c.needed("A reset needs a reason"); err != nil {
		return nil, err
	}
	org, name := c.r.PathValue("org"), c.r.PathValue("limit")
	l, err := h.limitToReset(org, name, how)
	if err != nil {
		return nil, err
	}
	ip, err := address(how.IP)
	if err != nil {
		return nil, err
	}
	labels, err := newLabels(how.Labels)
	if err != nil {
		return nil, err
	}
	who := ledger.Call{Org: org, User: how.User, Key: how.Key, IP: ip, Labels: labels}
	if h.dir.isAll(org) {
		return nil, invalid("org", "Each org has its own counters. Name one org")
	}
	if !l.Tells(who) {
		return nil, wire.BadRequest(string(l.Subject), "missing_field",
			"Limit %s has one counter per %s. Name the one to reset", name, l.Subject)
	}
	before, err := h.viewLimits(c, org, []budget.Limit{*l}, who)
	if err != nil {
		return nil, err
	}
	// The audit entry is written first, so that no reset goes unrecorded.
	if err := h.audit.commit(c, c.entry(org, name), before[0], nil); err != nil {
		return nil, err
	}
	if err := h.opts.Budget.Reset(c.r.Context(), *l, who); err != nil {
		return nil, err
	}
	h.audit.unpark(c, org)
	after, err := h.viewLimits(c, org, []budget.Limit{*l}, who)
	if err != nil {
		return nil, err
	}
	return after[0], nil
}

// limitToReset returns the limit whose counter a reset names.
func (h *limitHandler) limitToReset(org, name string, how *limitReset) (*budget.Limit, error) {
	if how.Group == "" {
		return h.limit(org, how.User, how.Key, name)
	}
	limits, err := h.limitsOfOwner(org, settings.Owner("group", how.Group))
	if err != nil {
		return nil, err
	}
	return limitNamed(limits, name)
}

// reopenLimits opens the limits of one org or all that were closed by a data loss in Redis.
func (h *limitHandler) reopenLimits(c *call) (any, error) {
	if err := c.needed("Reopening limits needs a reason"); err != nil {
		return nil, err
	}
	org := c.r.PathValue("org")
	if org != "" {
		if err := h.dir.known(org); err != nil {
			return nil, err
		}
	}
	if err := h.audit.commit(c, c.entry(org, ""), nil, nil); err != nil {
		return nil, err
	}
	var err error
	if org != "" {
		err = h.opts.Budget.DataLoss.Reopen(c.r.Context(), org)
	} else {
		err = h.opts.Budget.DataLoss.ReopenAll(c.r.Context())
	}
	if err == nil {
		h.audit.unpark(c, org)
	}
	return empty{}, err
}
