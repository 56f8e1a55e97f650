package admin

import (
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// Override changes a limit's amount until it expires.
type Override struct {
	ID      string    `json:"id" col:"id"`
	Limit   string    `json:"limit" col:"limit"`
	Only    string    `json:"only"` // the user, key or address; empty: all
	Add     int64     `json:"add" col:"change;=override"`
	Amount  int64     `json:"amount"` // replaces the amount if above 0
	Unit    string    `json:"unit"`
	Until   time.Time `json:"until" col:"until;minute"`
	Active  bool      `json:"active" col:"active"`
	By      string    `json:"by" col:"by"`
	Reason  string    `json:"reason" col:"reason"`
	Created time.Time `json:"created_at"`
}

type newOverride struct {
	Limit string `json:"limit" help:"name of the limit"`
	// User, Key or IP is the subject; without one, the override applies to all that the limit
	// counts.
	User string `json:"user,omitempty" help:"change the limit for this user only"`
	Key  string `json:"key,omitempty" help:"change the limit for this key only"`
	IP   string `json:"ip,omitempty" help:"change the limit for this client address only"`
	// Group is the group that a shared limit is of.
	Group string `json:"group,omitempty" help:"change the limit that the users of this group share"`
	// Add ("$200", "-$5", "1000") is added to the amount; Amount replaces it.
	Add    string    `json:"add,omitempty" input:"money" help:"amount to add: '$200', '-$5', 1000"`
	Amount string    `json:"amount,omitempty" input:"money" help:"new amount: '$500', 1000"`
	Until  time.Time `json:"until" help:"when the override expires"`
	Reason string    `json:"reason"`
}

type overrideHandler struct {
	base
	limits *limitHandler
}

func (h *overrideHandler) listOverrides(c *call) (any, error) {
	return listOf(h.dir.overrides(c, c.r.PathValue("org"))), nil
}

// longest is the maximum duration of an override; a longer one should be a limit.
const longest = 366 * 24 * time.Hour

func (h *overrideHandler) createOverride(c *call) (any, error) {
	org := c.r.PathValue("org")
	n := body[newOverride](c)
	l, err := h.limits.limitToReset(org, n.Limit, &limitReset{User: n.User, Key: n.Key, Group: n.Group})
	if err != nil {
		return nil, err
	}
	record := tenants.Override{
		Limit: l.ID, Until: n.Until.UTC(), Reason: c.why, By: c.actor.id, Unit: units[l.Metric],
		Stamp: c.newStamp(),
	}
	record.Only, err = n.only(l)
	if err != nil {
		return nil, err
	}
	record.Add, record.Amount, err = n.amounts(l.Metric)
	if err != nil {
		return nil, err
	}
	if err := c.needed("An override needs a reason"); err != nil {
		return nil, err
	}
	switch {
	case !c.start.Before(n.Until):
		return nil, invalid("until", "until must be in the future")
	case n.Until.Sub(c.start) > longest:
		return nil, invalid("until", "until is more than a year away. Change the limit's amount instead")
	}
	id := wire.NewCallID()
	changes := append(h.over(c, org),
		tenants.Change{Ref: tenants.Ref{Kind: tenants.KindOverride, Org: org, ID: id}, New: record})
	if err := h.audit.commit(c, c.entry(org, id), nil, record, changes...); err != nil {
		return nil, err
	}
	for _, o := range h.dir.overrides(c, org) {
		if o.ID == id {
			return created{o}, nil
		}
	}
	return nil, wire.Internal(tenants.ErrConflict)
}

// over returns changes that remove overrides that expired a week ago; the audit keeps them.
func (h *overrideHandler) over(c *call, org string) []tenants.Change {
	var out []tenants.Change
	for id, o := range h.dir.records(org).Overrides {
		if c.start.Sub(o.Until) < 7*24*time.Hour || len(out) == 20 {
			continue
		}
		ref := tenants.Ref{Kind: tenants.KindOverride, Org: org, ID: id}
		var gone tenants.Override
		if old, err := h.opts.Tenants.Get(c.r.Context(), ref, &gone); err == nil && old != "" {
			out = append(out, tenants.Change{Ref: ref, Old: old})
		}
	}
	return out
}

// boundTo returns the overrides and limits that apply to one user or key only. They are removed
// with it, so that the next owner of the id does not inherit them.
func (h *overrideHandler) boundTo(org string, subject budget.Subject, id string) []tenants.Ref {
	var out []tenants.Ref
	t := h.dir.records(org)
	for override, o := range t.Overrides {
		if o.Only == id && h.mayCountBy(org, o.Limit, subject) {
			out = append(out, tenants.Ref{Kind: tenants.KindOverride, Org: org, ID: override})
		}
	}
	for limit, l := range t.Limits {
		if l.Fields.Text("only") == id && l.Fields.Text("subject") == string(subject) {
			out = append(out, tenants.Ref{Kind: tenants.KindLimit, Org: org, ID: limit})
		}
	}
	return out
}

// mayCountBy reports whether a limit of this name counts by subject. A limit that no longer
// exists may have.
func (h *overrideHandler) mayCountBy(org, name string, subject budget.Subject) bool {
	o := h.opts.Policy().Orgs[org]
	if o == nil {
		return true
	}
	there := false
	for limits := range o.LimitLists() {
		for i := range limits {
			if limits[i].ID == name && limits[i].Subject == subject {
				return true
			}
			there = there || limits[i].ID == name
		}
	}
	return !there
}

// only returns the subject of an override, which must match what the limit counts.
func (n *newOverride) only(l *budget.Limit) (string, error) {
	for _, s := range []struct {
		subject budget.Subject
		id      string
	}{{budget.UserGroup, n.Group}, {budget.User, n.User}, {budget.Key, n.Key}, {budget.IP, n.IP}} {
		if s.id == "" {
			continue
		}
		if s.subject != l.Subject {
			return "", invalid(string(s.subject),
				"The limit %s counts per %s, so its override cannot be for one %s", l.ID, l.Subject, s.subject)
		}
		return s.id, nil
	}
	return "", nil
}

// amounts parses what is added, or what replaces the amount.
func (n *newOverride) amounts(m budget.Metric) (add, amount int64, err error) {
	if (n.Add == "") == (n.Amount == "") {
		return 0, 0, invalid("add", "Set either add or amount")
	}
	if n.Amount != "" {
		amount, err = quantity("amount", n.Amount, m)
		return 0, amount, err
	}
	text, negative := n.Add, false
	if text[0] == '-' || text[0] == '+' {
		text, negative = text[1:], text[0] == '-'
	}
	add, err = quantity("add", text, m)
	if negative {
		add = -add
	}
	return add, 0, err
}

func quantity(param, text string, m budget.Metric) (int64, error) {
	q, err := settings.ParseQuantity(text)
	switch {
	case err != nil:
		return 0, invalid(param, "%s: %v", param, err)
	case q.Money != (m == budget.Cost) && q.Money:
		return 0, invalid(param, "%s: this limit counts %s, not money; leave out the $", param, m)
	case q.Money != (m == budget.Cost):
		return 0, invalid(param, "%s: this limit is in money; did you mean $%s?", param, text)
	case q.N > budget.MaxAmount:
		return 0, invalid(param, "%s: %s is too large", param, text)
	}
	return q.N, nil
}

func (h *overrideHandler) deleteOverride(c *call) (any, error) {
	org, id := c.r.PathValue("org"), c.r.PathValue("override")
	if h.dir.records(org).Overrides[id] == nil {
		return nil, wire.NotFound("override", "override_not_found", "Org %s has no override %.80q", org, id)
	}
	return h.audit.remove(c, c.entry(org, id), tenants.Ref{Kind: tenants.KindOverride, Org: org, ID: id})
}
