package admin

import (
	"maps"
	"slices"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// ownerOf returns whose list of limits the query names: that of a user, a group, a plan or the org.
func ownerOf(c *call) (owner string, err error) {
	for _, kind := range []string{"user", "group", "plan"} {
		id := c.r.URL.Query().Get(kind)
		switch {
		case id == "":
			continue
		case owner != "":
			return "", invalid(kind, "A limit belongs to one user, group or plan. Name one of them")
		}
		if kind == "user" {
			owner = id
			continue
		}
		if err := newID(kind, id); err != nil {
			return "", err
		}
		owner = settings.Owner(kind, id)
	}
	return owner, nil
}

// limitsOfOwner returns the limits of a user, a group or a plan, or of an org.
func (h *limitHandler) limitsOfOwner(org, owner string) ([]budget.Limit, error) {
	kind, id := settings.SplitOwner(owner)
	switch kind {
	case "user":
		return h.limitsOf(&ledger.Call{Org: org, User: id})
	case "org":
		return h.limitsOf(&ledger.Call{Org: org})
	case "plan":
		if err := h.dir.known(org); err != nil && !h.dir.isAll(org) {
			return nil, err
		}
		return h.opts.PlanLimits(org, id)
	}
	if err := h.dir.known(org); err != nil {
		return nil, err
	}
	limits, ok := h.opts.Policy().Orgs[org].GroupLimits[id]
	if !ok {
		return nil, wire.NotFound("group", "group_not_found", "Org %s has no group %.80q%s", org, id,
			settings.Hint(id, slices.Sorted(maps.Keys(h.opts.Policy().Orgs[org].GroupLimits))))
	}
	return limits, nil
}

// mayOwn checks that limits can be set in a list. Groups and plans begin to exist with their first
// limit; those for every org are plans.
func (h *limitHandler) mayOwn(org, owner string) error {
	kind, id := settings.SplitOwner(owner)
	if kind == "group" || kind == "plan" {
		owner = ""
	}
	if kind == "group" && h.dir.isAll(org) {
		return invalid("org", "The group %s belongs to one org. Name that org instead of %s", id, everyOrg)
	}
	_, err := h.limitsOfOwner(org, owner)
	return err
}

func ownerQuery() []parameter {
	return []parameter{
		{name: "user", text: "The limit of this user"},
		{name: "group", text: "The limit of this group"},
		{name: "plan", text: "The limit of this plan"},
		reasonParameter,
	}
}
