package admin

import (
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// User is a user as in effect.
type User struct {
	ID      string                         `json:"id" col:"id" fact:"id"`
	Org     string                         `json:"org" fact:"org"`
	Fields  settings.Fields[settings.User] `fields:"all" col:"name,disabled,weight" fact:"disabled,*"`
	Keys    int                            `json:"keys" col:"keys" fact:"keys"`
	Source  Source                         `json:"source" col:"source" fact:"source"`
	Created *time.Time                     `json:"created_at"`
	Updated *time.Time                     `json:"updated_at"`
}

// MarshalJSON writes the fields among the other members.
func (u User) MarshalJSON() ([]byte, error) { return settings.Marshal(u) }

// UnmarshalJSON is its inverse.
func (u *User) UnmarshalJSON(raw []byte) error { return settings.Unmarshal(raw, u) }

type newUser struct {
	ID string `json:"id" help:"the user"`
	userPatch
}

type userPatch struct {
	Fields settings.Fields[settings.User]
}

type userHandler struct {
	base
	overrides *overrideHandler
}

func viewUser(org string, u *settings.User, inFile bool, record *tenants.User) User {
	v := User{ID: u.ID, Org: org, Fields: settings.All(u), Keys: len(u.Keys)}
	v.Source = sourceOf(inFile, record != nil)
	if record != nil {
		v.Created, v.Updated = &record.Created, &record.Updated
	}
	return v
}

func (h *userHandler) listUsers(c *call) (any, error) {
	o, _, err := h.dir.org(c.r.PathValue("org"))
	if err != nil {
		return nil, err
	}
	filed, records := h.dir.filed(o.ID), h.dir.records(o.ID).Users
	out := make([]User, 0, len(o.Users))
	for i := range o.Users {
		u := &o.Users[i]
		out = append(out, viewUser(o.ID, u, filed[u.ID], records[u.ID]))
	}
	return listOf(out), nil
}

func (h *userHandler) getUser(c *call) (any, error) {
	return h.showUser(c.r.PathValue("org"), c.r.PathValue("user"))
}

func (h *userHandler) showUser(org, id string) (any, error) {
	o, _, err := h.dir.org(org)
	if err != nil {
		return nil, err
	}
	u, inFile, err := h.dir.user(o, id)
	if err != nil {
		return nil, err
	}
	return viewUser(org, u, inFile, h.dir.records(org).Users[id]), nil
}

func (h *userHandler) createUser(c *call) (any, error) {
	o, _, err := h.dir.org(c.r.PathValue("org"))
	if err != nil {
		return nil, err
	}
	n := body[newUser](c)
	_, _, err = h.dir.user(o, n.ID)
	if err := absent("user", n.ID, err); err != nil {
		return nil, err
	}
	ref := tenants.Ref{Kind: tenants.KindUser, Org: o.ID, ID: n.ID}
	if err := h.audit.create(c, ref, tenants.User{Fields: n.Fields, Born: newborn(), Stamp: c.newStamp()}); err != nil {
		return nil, err
	}
	v, err := h.showUser(o.ID, n.ID)
	return created{v}, err
}

func (h *userHandler) updateUser(c *call) (any, error) {
	org, id := c.r.PathValue("org"), c.r.PathValue("user")
	if _, err := h.showUser(org, id); err != nil {
		return nil, err
	}
	ref := tenants.Ref{Kind: tenants.KindUser, Org: org, ID: id}
	if _, err := change(c, h.audit, c.entry(org, id), ref, func(r *tenants.User) error {
		return patch(c, &r.Fields)
	}); err != nil {
		return nil, err
	}
	return h.showUser(org, id)
}

func (h *userHandler) deleteUser(c *call) (any, error) {
	org, id := c.r.PathValue("org"), c.r.PathValue("user")
	o, _, err := h.dir.org(org)
	if err != nil {
		return nil, err
	}
	_, inFile, err := h.dir.user(o, id)
	if err != nil {
		return nil, err
	}
	t := h.dir.records(org)
	var refs []tenants.Ref
	if t.Users[id] != nil {
		refs = append(refs, tenants.Ref{Kind: tenants.KindUser, Org: org, ID: id})
	}
	for key, k := range t.Keys {
		if k.User == id {
			refs = append(refs, tenants.Ref{Kind: tenants.KindKey, Org: org, ID: key})
			refs = append(refs, h.overrides.boundTo(org, budget.Key, key)...)
		}
	}
	for limit := range t.Limits {
		if user, _ := tenants.SplitLimitID(limit); user == id {
			refs = append(refs, tenants.Ref{Kind: tenants.KindLimit, Org: org, ID: limit})
		}
	}
	if len(refs) > 0 && !inFile {
		refs = append(refs, h.overrides.boundTo(org, budget.User, id)...)
		if h.opts.Tenants.Snapshot().Raises[tenants.RaiseOwner{Org: org, User: id}] != nil {
			refs = append(refs, tenants.RaiseRef(org, id))
		}
	}
	if len(refs) == 0 {
		return nil, declared("user", id)
	}
	return h.audit.remove(c, c.entry(org, id), refs...)
}
