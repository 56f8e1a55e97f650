package guard

import (
	"errors"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
)

// Caller identifies who makes a call.
type Caller struct {
	Org       *Org
	User, Key string
	// Born and UserBorn distinguish the key and the user from earlier ones with their ids. Lineage is that of the
	// key's secret.
	Born, UserBorn, Lineage string
	IP                      string
	// KeyLabels are the values of labels that the key has; Labels those of the call.
	KeyLabels map[string]string
	Labels    ledger.Labels
	Models    []string // the key's allow-list; empty means all
	// Run is the run that its calls belong to, if any; Runs are that run and those it is inside of,
	// outermost first, as read from the store; nil: not read yet.
	Run  ledger.RunPath
	Runs []budget.Run
	// Batch is the batch that its calls are lines of, if any.
	Batch string
	// Batched means the provider's own Batch API makes the calls: they have its price,
	// and no concurrency limit counts them.
	Batched bool
}

// Caller returns the owner of a queued job, with the org as currently configured.
func (p *Policy) Caller(org, user, key, ip string) (Caller, error) {
	o, ok := p.Orgs[org]
	switch {
	case !ok:
		return Caller{}, errors.New("the org of this job is no longer configured")
	case o.Disabled:
		return Caller{}, errors.New("the org of this job is disabled")
	case o.DisabledUsers[user]:
		return Caller{}, errors.New("the user of this job is disabled")
	}
	return Caller{
		Org: o, User: user, Key: key, IP: ip, Models: o.KeyModels[key], Born: o.KeyBorn[key], UserBorn: o.UserBorn[user],
	}, nil
}

// Owner names the user among all that had its id: what one of them owned is not another's.
func (c *Caller) Owner() string { return budget.Giver(c.User, c.UserBorn) }

// Was returns an error if the key or the user of a record was deleted and another has its id now.
func (c *Caller) Was(born, userBorn string) error {
	other := func(was, is string) bool { return was != "" && is != "" && was != is }
	if other(born, c.Born) || other(userBorn, c.UserBorn) {
		return errors.New("the key or the user of this job was deleted, and another has its id")
	}
	return nil
}

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
