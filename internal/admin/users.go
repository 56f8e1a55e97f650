package admin

import (
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// User is a user as in force.
type User struct {
	ID       string     `json:"id"`
	Org      string     `json:"org"`
	Name     string     `json:"name"`
	Disabled bool       `json:"disabled"`
	Weight   int        `json:"weight"`
	Keys     int        `json:"keys"`
	Source   Source     `json:"source"`
	Created  *time.Time `json:"created_at"`
	Updated  *time.Time `json:"updated_at"`
}

type newUser struct {
	ID string `json:"id"`
	userPatch
}

type userPatch struct {
	tenants.UserSpec
}

// user returns a user as in force, and whether the file has it.
func (c *call) user(org *settings.Org, id string) (*settings.User, bool, error) {
	u := org.User(id)
	if u == nil {
		return nil, false, wire.NotFound("user", "user_not_found", "Org %s has no user %.80q", org.ID, id)
	}
	return u, c.filed(org.ID)[id], nil
}

// filed are the ids of an org's users that the file has.
func (c *call) filed(org string) map[string]bool {
	ids := map[string]bool{}
	if o := c.o.File().Org(org); o != nil {
		for _, u := range o.Users {
			ids[u.ID] = true
		}
	}
	return ids
}

func viewUser(org string, u *settings.User, inFile bool, record *tenants.User) User {
	v := User{ID: u.ID, Org: org, Name: u.Name, Disabled: u.Disabled, Weight: u.Weight, Keys: len(u.Keys)}
	v.Source = sourceOf(inFile, record != nil)
	if record != nil {
		v.Created, v.Updated = &record.Created, &record.Updated
	}
	return v
}

func (c *call) listUsers() (any, error) {
	o, _, err := c.org(c.r.PathValue("org"))
	if err != nil {
		return nil, err
	}
	filed, records := c.filed(o.ID), c.records(o.ID).Users
	out := make([]User, 0, len(o.Users))
	for i := range o.Users {
		u := &o.Users[i]
		out = append(out, viewUser(o.ID, u, filed[u.ID], records[u.ID]))
	}
	return listOf(out), nil
}

func (c *call) getUser() (any, error) { return c.showUser(c.r.PathValue("org"), c.r.PathValue("user")) }

func (c *call) showUser(org, id string) (any, error) {
	o, _, err := c.org(org)
	if err != nil {
		return nil, err
	}
	u, inFile, err := c.user(o, id)
	if err != nil {
		return nil, err
	}
	return viewUser(org, u, inFile, c.records(org).Users[id]), nil
}

func (c *call) createUser() (any, error) {
	o, _, err := c.org(c.r.PathValue("org"))
	if err != nil {
		return nil, err
	}
	var n newUser
	if err := c.read(&n); err != nil {
		return nil, err
	}
	if err := newID("id", n.ID); err != nil {
		return nil, err
	}
	if _, _, err := c.user(o, n.ID); err == nil {
		return nil, exists("user", n.ID)
	}
	ref := tenants.Ref{Kind: tenants.KindUser, Org: o.ID, ID: n.ID}
	record := tenants.User{UserSpec: n.UserSpec, Stamp: c.stamp(nil)}
	if err := c.commit(c.entry("user.create", o.ID, n.ID), nil, record, tenants.Change{Ref: ref, New: record}); err != nil {
		return nil, taken(err, "user", n.ID)
	}
	v, err := c.showUser(o.ID, n.ID)
	return created{v}, err
}

func (c *call) updateUser() (any, error) {
	org, id := c.r.PathValue("org"), c.r.PathValue("user")
	if _, err := c.showUser(org, id); err != nil {
		return nil, err
	}
	ref := tenants.Ref{Kind: tenants.KindUser, Org: org, ID: id}
	var record tenants.User
	old, err := c.o.Tenants.Get(c.r.Context(), ref, &record)
	if err != nil {
		return nil, err
	}
	before := record
	patch := userPatch{record.UserSpec}
	if err := c.merge(&patch); err != nil {
		return nil, err
	}
	record.UserSpec, record.Stamp = patch.UserSpec, c.stamp(&before.Stamp)
	if err := c.commit(c.entry("user.update", org, id), orNil(old, before), record, tenants.Change{Ref: ref, Old: old, New: record}); err != nil {
		return nil, err
	}
	return c.showUser(org, id)
}

func (c *call) deleteUser() (any, error) {
	org, id := c.r.PathValue("org"), c.r.PathValue("user")
	o, _, err := c.org(org)
	if err != nil {
		return nil, err
	}
	_, inFile, err := c.user(o, id)
	if err != nil {
		return nil, err
	}
	t := c.records(org)
	var refs []tenants.Ref
	if t.Users[id] != nil {
		refs = append(refs, tenants.Ref{Kind: tenants.KindUser, Org: org, ID: id})
	}
	for key, k := range t.Keys {
		if k.User == id {
			refs = append(refs, tenants.Ref{Kind: tenants.KindKey, Org: org, ID: key})
			refs = append(refs, c.boundTo(org, budget.Key, key)...)
		}
	}
	for limit := range t.Limits {
		if user, _ := tenants.SplitLimitID(limit); user == id {
			refs = append(refs, tenants.Ref{Kind: tenants.KindLimit, Org: org, ID: limit})
		}
	}
	if len(refs) > 0 && !inFile {
		refs = append(refs, c.boundTo(org, budget.User, id)...)
	}
	if len(refs) == 0 {
		return nil, declared("user", id, "Disable it here, or take it out of the file")
	}
	if err := c.remove(c.entry("user.delete", org, id), refs...); err != nil {
		return nil, err
	}
	return empty{}, nil
}
