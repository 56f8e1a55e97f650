package admin

import (
	"slices"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
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
	named := func(list []settings.Limit, name string) bool {
		return slices.ContainsFunc(list, func(l settings.Limit) bool { return l.Name == name })
	}
	var ofOrg, ofUser []settings.Limit
	if o := file.Org(org); o != nil {
		ofOrg = o.Limits
		if u := o.User(user); u != nil {
			ofUser = u.Limits
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
