package app

import (
	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	tenancy "github.com/llmguard/llmguard/internal/tenants/settings"
)

// members converts the limits that users and keys of an org have by their group, their plan and
// themselves.
type members struct {
	c    *config.Config
	org  *config.Org
	made map[tenancy.Membership][]budget.Limit // without limits of a user's own
}

// groups adds the limits of the org's groups.
func (m *members) groups(to *guard.Org) (err error) {
	for i := range m.org.Groups {
		id := m.org.Groups[i].ID
		of := m.c.Defaults.Membership(m.org, &config.User{Group: id}, nil)
		to.GroupLimits[id], err = m.limits(nil, of)
		if err != nil {
			return err
		}
	}
	return nil
}

// user adds the group of a user, and the limits of the user and of keys with a plan of their own, if they
// differ from the org's.
func (m *members) user(to *guard.Org, u *config.User) (err error) {
	if u.Group != "" {
		to.Groups[u.ID] = u.Group
	}
	of := m.c.Defaults.Membership(m.org, u, nil)
	if len(u.Limits) > 0 || m.c.Defaults.Shared(m.org, of) {
		to.UserLimits[u.ID], err = m.limits(u, of)
		if err != nil {
			return err
		}
	}
	for i := range u.Keys {
		if k := &u.Keys[i]; k.Plan != "" {
			to.PlanLimits[k.ID], err = m.limits(u, m.c.Defaults.Membership(m.org, u, k))
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// limits converts the limits of a user, or of any member without limits of its own: those share one
// list, because an org may have tens of thousands of users.
func (m *members) limits(u *config.User, of tenancy.Membership) ([]budget.Limit, error) {
	if u != nil && len(u.Limits) > 0 {
		return limits(m.c, m.c.Defaults.LimitsOf(m.org, u, of))
	}
	if list, done := m.made[of]; done {
		return list, nil
	}
	list, err := limits(m.c, m.c.Defaults.LimitsOf(m.org, nil, of))
	m.made[of] = list
	return list, err
}

// models returns what a key may use: its own models, else its plan's.
func (m *members) models(u *config.User, k *config.Key) []string {
	if len(k.Models) > 0 {
		return k.Models
	}
	if p := m.c.Defaults.OrgPlan(m.org, m.c.Defaults.Membership(m.org, u, k).Plan); p != nil {
		return p.Models
	}
	return nil
}
