package admin

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// directory looks up orgs, users and keys as in effect, and their runtime records.
type directory struct{ opts *Options }

// everyOrg, in place of an org id, means the limits of all orgs: the defaults of the file with
// runtime changes. If an org has this name, it means that org.
const everyOrg = "all"

// isAll reports whether an id means all orgs.
func (d *directory) isAll(id string) bool {
	if id != everyOrg {
		return false
	}
	_, _, err := d.org(id)
	return err != nil
}

// recordOrg returns the org id under which the records are stored.
func (d *directory) recordOrg(id string) string {
	if d.isAll(id) {
		return tenants.AllOrgs
	}
	return id
}

// sources returns a function that lists where a limit of an org, or of one of its users, is
// defined.
func (d *directory) sources(org, user string) func(name string) []string {
	file := d.opts.File()
	all := d.records(tenants.AllOrgs)
	own := d.records(org)
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
	member := d.memberSource(org, user)
	return func(name string) []string {
		out := []string{} // never null on the wire
		if from := member(name); from != "" {
			return append(out, from)
		}
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
		if own.Limits[name] != nil && !d.isAll(org) || user != "" && own.Limits[tenants.LimitID(user, name)] != nil {
			out = append(out, "redis")
		}
		return out
	}
}

// memberSource returns a function that names the group or plan that a user's limit is from; "" if it
// is from neither.
func (d *directory) memberSource(org, user string) func(name string) string {
	o, _, err := d.org(org)
	if err != nil || o.User(user) == nil {
		return func(string) string { return "" }
	}
	u, defaults := o.User(user), d.opts.Effective().Defaults
	layers := defaults.Layers(o, u, defaults.Membership(o, u, nil))
	return func(name string) string {
		for _, layer := range slices.Backward(layers) {
			if !slices.ContainsFunc(layer.Limits, func(l settings.Limit) bool { return l.Name == name }) {
				continue
			}
			if layer.From == "group" || layer.From == "plan" {
				return layer.From + " " + layer.ID
			}
			return ""
		}
		return ""
	}
}

// org returns an org as in effect, and whether it is in the file.
func (d *directory) org(id string) (*settings.Org, bool, error) {
	o := d.opts.Effective().Org(id)
	if o == nil {
		return nil, false, wire.NotFound("org", "org_not_found", "There is no org %.80q%s", id,
			settings.Hint(id, settings.IDs(d.opts.Effective().Orgs)))
	}
	return o, d.opts.File().Org(id) != nil, nil
}

// orgOf returns an org by its id. Instead of everyOrg it returns the only one that has the key or, if
// that is empty, the user.
func (d *directory) orgOf(id, user, key string) (*settings.Org, error) {
	if !d.isAll(id) {
		o, _, err := d.org(id)
		return o, err
	}
	var ids []string
	all := d.opts.Effective().Orgs
	for i := range all {
		_, _, _, err := d.key(&all[i], key)
		if key == "" && all[i].User(user) != nil || key != "" && err == nil {
			ids = append(ids, all[i].ID)
		}
	}
	what := "user " + strconv.Quote(user)
	if key != "" {
		what = "key " + strconv.Quote(key)
	}
	switch len(ids) {
	case 0:
		return nil, wire.NotFound("org", "org_not_found", "No org has the %.100s", what)
	case 1:
		o, _, err := d.org(ids[0])
		return o, err
	}
	slices.Sort(ids)
	return nil, wire.BadRequest("org", "missing_field", "The orgs %s have a %.100s. Name one of them",
		strings.Join(ids[:min(len(ids), 10)], ", "), what)
}

// records returns the runtime records of an org; never nil.
func (d *directory) records(org string) *tenants.Tenant {
	if t := d.opts.Tenants.Snapshot().Tenants[org]; t != nil {
		return t
	}
	return &tenants.Tenant{}
}

// user returns a user as in effect, and whether the file has it.
func (d *directory) user(org *settings.Org, id string) (*settings.User, bool, error) {
	u := org.User(id)
	if u == nil {
		return nil, false, wire.NotFound("user", "user_not_found", "Org %s has no user %.80q%s", org.ID, id,
			settings.Hint(id, settings.IDs(org.Users)))
	}
	return u, d.filed(org.ID)[id], nil
}

// filed returns the ids of the org's users in the file.
func (d *directory) filed(org string) map[string]bool {
	ids := map[string]bool{}
	if o := d.opts.File().Org(org); o != nil {
		for _, u := range o.Users {
			ids[u.ID] = true
		}
	}
	return ids
}

// key returns a key as in effect, its user, and whether the file has it.
func (d *directory) key(org *settings.Org, id string) (k *settings.Key, user *settings.User, inFile bool, err error) {
	for i := range org.Users {
		for j := range org.Users[i].Keys {
			if org.Users[i].Keys[j].ID == id {
				k, user = &org.Users[i].Keys[j], &org.Users[i]
			}
		}
	}
	if k == nil {
		return nil, nil, false, wire.NotFound("key", "key_not_found", "Org %s has no key %.80q%s", org.ID, id,
			settings.Hint(id, org.KeyIDs()))
	}
	if o := d.opts.File().Org(org.ID); o != nil {
		for _, u := range o.Users {
			inFile = inFile || slices.ContainsFunc(u.Keys, func(k settings.Key) bool { return k.ID == id })
		}
	}
	return k, user, inFile, nil
}

// overrides returns the org's overrides, newest last.
func (d *directory) overrides(c *call, org string) []Override {
	var out []Override
	for id, o := range d.records(org).Overrides {
		v := Override{
			ID: id, Limit: o.Limit, Only: o.Only, Add: o.Add, Amount: o.Amount, Until: o.Until, Active: c.start.Before(o.Until),
			Reason: o.Reason, By: o.By, Created: o.Created, Unit: o.Unit,
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b Override) int { return a.Created.Compare(b.Created) })
	return out
}

var orgsParameter = parameter{name: "org", text: "Only these orgs, separated by commas; default: all"}

// orgsOf returns the ids of all orgs, or only one.
func (d *directory) orgsOf(only string) []string {
	if only != "" {
		return []string{only}
	}
	var out []string
	for _, o := range d.opts.Effective().Orgs {
		out = append(out, o.ID)
	}
	return out
}

// named returns the orgs in the query, if they exist as find says; none if the query has none.
func named(c *call, find func(id string) error) ([]string, error) {
	text := c.r.URL.Query().Get("org")
	if text == "" {
		return nil, nil
	}
	out := strings.Split(text, ",")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
		if err := find(out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// wantedOrgs returns the orgs named in the query, or all of them.
func (d *directory) wantedOrgs(c *call) ([]string, error) {
	out, err := named(c, d.known)
	if out == nil {
		out = d.orgsOf("")
	}
	return out, err
}

// known returns an error if there is no such org.
func (d *directory) known(id string) error {
	_, _, err := d.org(id)
	return err
}

// ledgerOrg is org for what is read from its ledger, which outlives it: a deleted org has only an id.
func (d *directory) ledgerOrg(ctx context.Context, id string) (*settings.Org, error) {
	o, _, err := d.org(id)
	if err == nil {
		return o, nil
	}
	deleted, read := d.deletedOrgs(ctx)
	if read != nil {
		return nil, read
	}
	if !slices.Contains(deleted, id) {
		return nil, err
	}
	return &settings.Org{ID: id}, nil
}

// deletedOrgs returns the orgs with a ledger that are in effect no more.
func (d *directory) deletedOrgs(ctx context.Context) ([]string, error) {
	known, err := d.opts.Budget.Ledger.Orgs(ctx)
	if err != nil {
		return nil, err
	}
	now := d.opts.Effective()
	return slices.DeleteFunc(known, func(id string) bool { return now.Org(id) != nil }), nil
}

// wantedLedgers returns the orgs named in the query, or all that have a ledger.
func (d *directory) wantedLedgers(c *call) ([]string, error) {
	ctx := c.r.Context()
	out, err := named(c, func(id string) error {
		_, err := d.ledgerOrg(ctx, id)
		return err
	})
	if err != nil || out != nil {
		return out, err
	}
	deleted, err := d.deletedOrgs(ctx)
	return append(d.orgsOf(""), deleted...), err
}

// wants returns a filter for the orgs named in the query. Orgs that are no longer configured
// match only when none is named.
func (d *directory) wants(c *call) (func(org string) bool, error) {
	orgs, err := named(c, d.known)
	return func(org string) bool { return orgs == nil || slices.Contains(orgs, org) }, err
}

// caller returns an org and, as far as they are named, a user and a key of it; the key's user is the user.
func (d *directory) caller(org, user, key string) (o *settings.Org, u *settings.User, k *settings.Key, err error) {
	o, _, err = d.org(org)
	if err == nil && user != "" {
		u, _, err = d.user(o, user)
	}
	if err == nil && key != "" {
		k, u, _, err = d.key(o, key)
		if err == nil && user != "" && u.ID != user {
			err = invalid("key", "The key %s belongs to user %s", key, u.ID)
		}
	}
	return o, u, k, err
}
