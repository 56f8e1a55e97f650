package admin

import (
	"slices"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/wire"
)

// everyOrg names, in place of an org, the limits of every org: the defaults of the file with what
// is set over them. A deployment that has an org of this name means that one.
const everyOrg = "all"

// isAll reports whether an id means every org.
func (c *call) isAll(id string) bool {
	if id != everyOrg {
		return false
	}
	_, _, err := c.org(id)
	return err != nil
}

// recordOrg is the org under which the records of an id are.
func (c *call) recordOrg(id string) string {
	if c.isAll(id) {
		return tenants.AllOrgs
	}
	return id
}

// defaultLimits are the limits of every org.
func (c *call) defaultLimits(user, key string) ([]budget.Limit, error) {
	if user != "" || key != "" {
		return nil, wire.BadRequest("org", "invalid_value", "A user or a key is of one org: name that org instead of %s", everyOrg)
	}
	return c.o.Defaults()
}

// sources returns what tells where a limit of an org, or of a user of it, is from.
func (c *call) sources(org, user string) func(name string) []string {
	file, all, own := c.o.File(), c.records(tenants.AllOrgs), c.records(org)
	named := func(list []config.Limit, name string) bool {
		return slices.ContainsFunc(list, func(l config.Limit) bool { return l.Name == name })
	}
	var ofOrg, ofUser []config.Limit
	if i := slices.IndexFunc(file.Orgs, func(o config.Org) bool { return o.ID == org }); i >= 0 {
		ofOrg = file.Orgs[i].Limits
		if j := slices.IndexFunc(file.Orgs[i].Users, func(u config.User) bool { return u.ID == user }); j >= 0 {
			ofUser = file.Orgs[i].Users[j].Limits
		}
	}
	return func(name string) []string {
		out := []string{} // never null on the wire
		switch {
		case named(ofUser, name), named(ofOrg, name):
			out = append(out, "file")
		default:
			if named(file.Defaults.Limits, name) {
				out = append(out, "defaults")
			}
			if all.Limits[name] != nil {
				out = append(out, "all")
			}
		}
		if own.Limits[name] != nil && !c.isAll(org) || user != "" && own.Limits[tenants.LimitID(user, name)] != nil {
			out = append(out, "redis")
		}
		return out
	}
}
