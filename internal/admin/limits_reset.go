package admin

import (
	"cmp"
	"slices"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// limitsReset says which counters to reset: all of the org's, those of one limit, or those of one
// user or key.
type limitsReset struct {
	Limit  string `json:"limit,omitempty"`
	User   string `json:"user,omitempty"` // with the counters of its keys
	Key    string `json:"key,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
	Reason string `json:"reason"`
}

// ResetPlan is what a reset changes, or has changed. Counters without usage, and what open calls
// hold, are left as they are.
type ResetPlan struct {
	DryRun   bool         `json:"dry_run"`
	Counters int          `json:"counters"`
	Limits   []LimitReset `json:"limits"`  // by name
	Fullest  []Counter    `json:"fullest"` // those with the highest usage, at most 20
}

// LimitReset sums up the counters of a limit.
type LimitReset struct {
	Limit    string `json:"limit" col:"limit"`
	Subject  string `json:"subject" col:"per"` // what it counts by
	Metric   string `json:"metric"`
	Unit     string `json:"unit"` // of the amounts: nano_usd, tokens or requests
	Counters int    `json:"counters" col:"counters;counters"`
	Used     int64  `json:"used" col:"used;unit"`
	Held     int64  `json:"held" col:"stays held;unit"` // the part of used that stays, because open calls hold it
}

// Counter is the usage of a limit by one subject.
type Counter struct {
	Limit   string `json:"limit" col:"fullest"`
	Subject string `json:"subject"`          // org, user, key or ip
	ID      string `json:"id" col:"of;;org"` // of the user or key, or the address; empty for org
	Unit    string `json:"unit"`
	Used    int64  `json:"used" col:"used;unit"`
	Held    int64  `json:"held" col:"stays held;unit"`
	Amount  int64  `json:"amount" col:"amount;unit"` // without overrides
}

// resetHandler resets many counters in one request.
type resetHandler struct {
	base
	limits *limitHandler
}

// resetMost bounds the counters listed in a plan.
const resetMost = 20

func (h *resetHandler) resetLimits(c *call) (any, error) {
	how, org := body[limitsReset](c), c.r.PathValue("org")
	if err := c.needed("A reset needs a reason"); err != nil && !how.DryRun {
		return nil, err
	}
	how.Reason = c.why
	limits, concerns, err := h.chosen(org, how)
	if err != nil {
		return nil, err
	}
	found, err := h.opts.Budget.Counters(c.r.Context(), org, limits, concerns)
	if err != nil {
		return nil, err
	}
	plan := planOf(found)
	plan.DryRun = how.DryRun
	if how.DryRun {
		return plan, nil
	}
	// The audit entry is written first, so that no reset goes unrecorded.
	if err := h.audit.commit(c, c.entry(org, cmp.Or(how.Limit, how.User, how.Key)), plan, how); err != nil {
		return nil, err
	}
	if err := h.opts.Budget.ResetCounters(c.r.Context(), found); err != nil {
		return nil, err
	}
	h.audit.unpark(c, org)
	return plan, nil
}

// chosen returns the limits whose counters are wanted, and which of these.
func (h *resetHandler) chosen(org string, how *limitsReset) (
	limits []budget.Limit, concerns func(budget.Subject, string) bool, err error,
) {
	if h.dir.isAll(org) {
		return nil, nil, invalid("org", "Each org has its own counters. Name one org")
	}
	who := ledger.Call{Org: org, User: how.User, Key: how.Key}
	if _, err := h.limits.limitsOf(&who); err != nil { // unknown, or not of that user
		return nil, nil, err
	}
	all := slices.Concat(slices.Collect(h.opts.Policy().Orgs[org].LimitLists())...) // of its groups, users and keys, too
	if how.Limit != "" {
		names := limitNames(all)
		all = slices.DeleteFunc(all, func(l budget.Limit) bool { return l.ID != how.Limit })
		if len(all) == 0 {
			return nil, nil, wire.NotFound("limit", "limit_not_found", "Org %s has no limit %.80q%s", org, how.Limit,
				settings.Hint(how.Limit, names))
		}
	}
	return all, h.concerns(org, how), nil
}

// concerns returns a filter for the counters of the wanted user or key.
func (h *resetHandler) concerns(org string, how *limitsReset) func(budget.Subject, string) bool {
	keys := map[string]bool{}
	switch o, _, err := h.dir.org(org); {
	case how.Key != "":
		keys[how.Key] = true
	case err == nil && how.User != "":
		if u := o.User(how.User); u != nil {
			for _, k := range u.Keys {
				keys[k.ID] = true
			}
		}
	}
	return func(by budget.Subject, id string) bool {
		switch {
		case how.User == "" && how.Key == "":
			return true
		case by == budget.Key:
			return keys[id]
		}
		return by == budget.User && how.Key == "" && id == how.User
	}
}

func limitNames(limits []budget.Limit) []string {
	names := make([]string, len(limits))
	for i := range limits {
		names[i] = limits[i].ID
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func planOf(found []budget.Counter) ResetPlan {
	plan := ResetPlan{Counters: len(found), Limits: []LimitReset{}, Fullest: []Counter{}}
	type kind struct {
		limit  string
		by     budget.Subject
		metric budget.Metric
	}
	sums := map[kind]*LimitReset{}
	for _, one := range found {
		l := one.Limit
		k := kind{l.ID, l.Subject, l.Metric}
		if sums[k] == nil {
			sums[k] = &LimitReset{Limit: l.ID, Subject: string(l.Subject), Metric: string(l.Metric), Unit: units[l.Metric]}
		}
		sums[k].Counters++
		sums[k].Used += one.Used
		sums[k].Held += one.Held
	}
	for _, s := range sums {
		plan.Limits = append(plan.Limits, *s)
	}
	slices.SortFunc(plan.Limits, func(a, b LimitReset) int {
		return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Metric, b.Metric))
	})
	share := func(c budget.Counter) float64 { return float64(c.Used) / float64(max(c.Limit.Shape.Amount, 1)) }
	byUse := slices.SortedFunc(slices.Values(found), func(a, b budget.Counter) int {
		return cmp.Or(cmp.Compare(share(b), share(a)), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Limit.ID, b.Limit.ID))
	})
	for _, one := range byUse[:min(len(byUse), resetMost)] {
		l := one.Limit
		plan.Fullest = append(plan.Fullest, Counter{
			Limit: l.ID, Subject: string(l.Subject), ID: one.ID, Unit: units[l.Metric], Used: one.Used, Held: one.Held,
			Amount: l.Shape.Amount,
		})
	}
	return plan
}

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
