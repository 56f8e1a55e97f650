package guard

import (
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
)

// RaiseRule bounds the requests of an org's callers for more of a limit; the zero value allows none.
type RaiseRule struct {
	Allowed   bool
	MaxAmount pricing.Nano  // that one request may add
	MaxFor    time.Duration // from the request to the end of the raise
}

// RaisableLimit returns the enforced cost limit of this name that counts the caller's calls per org,
// user or key, and the id of what it counts for an override: empty for the org. It returns nil if
// there is none, or if the org's callers may request nothing.
func (c Caller) RaisableLimit(id string) (limit *budget.Limit, only string) {
	if c.Org == nil || !c.Org.Raises.Allowed {
		return nil, ""
	}
	limits := c.Org.LimitsFor(c.User, c.Key)
	for i := range limits {
		l := &limits[i]
		if l.ID != id || l.Metric != budget.Cost || !enforced(l.Mode) ||
			!l.Counts(budget.Call{Org: c.Org.ID, User: c.User, Key: c.Key}) {
			continue
		}
		switch l.Subject {
		case budget.Org:
			return l, ""
		case budget.User:
			return l, c.User
		case budget.Key:
			return l, c.Key
		}
	}
	return nil, ""
}
