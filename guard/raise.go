package guard

import (
	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
)

// RaisableLimit returns the enforced cost limit of this name of which the caller may request more, and the id
// of what it counts for an override: of its user or key, or forOrg also of its org or group; empty for the
// org. It returns nil if there is none, or if the org's callers may request nothing. A run may not: its
// budget is what it was given.
func (c Caller) RaisableLimit(id string, forOrg bool) (limit *budget.Limit, only string) {
	if c.Org == nil || c.Org.RaiseRequests.Mode != "allow" || c.Run != "" {
		return nil, ""
	}
	limits := c.Org.LimitsFor(c.User, c.Key)
	for i := range limits {
		l := &limits[i]
		if l.ID != id || l.Metric != budget.Cost || !enforced(l.Mode) ||
			!l.Counts(ledger.Call{Org: c.Org.ID, User: c.User, Key: c.Key}) {
			continue
		}
		switch {
		case l.Subject == budget.User:
			return l, c.User
		case l.Subject == budget.Key:
			return l, c.Key
		case l.Subject == budget.Org && forOrg:
			return l, ""
		case l.Subject == budget.UserGroup && l.Only != "" && forOrg:
			return l, l.Only
		}
	}
	return nil, ""
}
