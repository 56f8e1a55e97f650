package admin

import (
	"maps"
	"slices"
	"time"

	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// Admin is an administrator, without the key.
type Admin struct {
	ID       string     `json:"id" col:"id" fact:"id"`
	Name     string     `json:"name" col:"name" fact:"name"`
	Status   string     `json:"status" col:"status"` // active, disabled or expired
	Last4    string     `json:"last4" col:"ends in"`
	ReadOnly bool       `json:"read_only" col:"may;rights" fact:"may;rights"`
	Disabled bool       `json:"disabled"`
	Expires  *time.Time `json:"expires" col:"expires;minute;never" fact:"expires;minute;never"`
	Source   Source     `json:"source" col:"source"`
}

// NewAdmin is a newly created administrator. Secret is returned only here.
type NewAdmin struct {
	Admin
	Secret string `json:"secret" secret:"key"`
}

type newAdmin struct {
	ID       string    `json:"id" help:"the administrator"`
	Name     string    `json:"name,omitempty" help:"display name"`
	ReadOnly bool      `json:"read_only,omitempty" help:"the key can read but not change anything"`
	Expires  time.Time `json:"expires,omitzero" help:"a date, a time, or a duration from now (90d)"`
}

type adminPatch struct {
	Name     string    `json:"name,omitempty" help:"display name"`
	ReadOnly bool      `json:"read_only,omitempty" help:"the key can read but not change anything"`
	Disabled bool      `json:"disabled,omitempty" help:"its requests get 401"`
	Expires  time.Time `json:"expires,omitzero" help:"a date, a time, or a duration from now (90d)"`
}

// adminHandler serves /admins and the session of the calling administrator.
type adminHandler struct {
	base
	login *authenticator
}

func (h *adminHandler) viewAdmin(c *call, id string, a tenants.Admin) Admin {
	v := Admin{ID: id, Name: a.Name, Last4: a.Last4, ReadOnly: a.ReadOnly, Disabled: a.Disabled, Status: "active"}
	_, inFile := h.opts.File().Admins[id]
	v.Source = sourceOf(inFile, h.opts.Tenants.Snapshot().Admins[id] != nil)
	if !a.Expires.IsZero() {
		v.Expires = &a.Expires
	}
	switch {
	case a.Disabled:
		v.Status = "disabled"
	case v.Expires != nil && !c.start.Before(a.Expires):
		v.Status = "expired"
	}
	return v
}

func (h *adminHandler) listAdmins(c *call) (any, error) {
	all := h.login.administrators(h.opts.File())
	return views(byName(all), func(id string) Admin { return h.viewAdmin(c, id, all[id]) }), nil
}

func (h *adminHandler) showAdmin(c *call, id string) (Admin, error) {
	all := h.login.administrators(h.opts.File())
	a, ok := all[id]
	if !ok {
		return Admin{}, wire.NotFound("admin", "admin_not_found", "There is no administrator %.80q%s", id,
			settings.Hint(id, slices.Sorted(maps.Keys(all))))
	}
	return h.viewAdmin(c, id, a), nil
}

func (h *adminHandler) createAdmin(c *call) (any, error) {
	n := body[newAdmin](c)
	_, err := h.showAdmin(c, n.ID)
	if err := absent("admin", n.ID, err); err != nil {
		return nil, err
	}
	file := h.opts.File()
	text, hash := file.fresh(keys.Admin)
	record := tenants.Admin{
		Name: n.Name, Hash: hash, Last4: keys.Last4(text), ReadOnly: n.ReadOnly, Expires: n.Expires,
		Stamp: c.newStamp(),
	}
	if err := h.audit.create(c, tenants.Ref{Kind: tenants.KindAdmin, ID: n.ID}, record); err != nil {
		return nil, err
	}
	v, err := h.showAdmin(c, n.ID)
	return created{NewAdmin{v, text}}, err
}

// updateAdmin changes an administrator. For an administrator of the file it writes a complete
// record, which replaces the file's entry until it is deleted.
func (h *adminHandler) updateAdmin(c *call) (any, error) {
	id := c.r.PathValue("admin")
	now, ok := h.login.administrators(h.opts.File())[id]
	if !ok {
		return h.showAdmin(c, id)
	}
	ref := tenants.Ref{Kind: tenants.KindAdmin, ID: id}
	if _, err := change(c, h.audit, c.entry("", id), ref, func(r *tenants.Admin) error {
		if r.Hash == "" { // nothing is stored
			*r = now
		}
		patch := adminPatch{r.Name, r.ReadOnly, r.Disabled, r.Expires}
		err := c.merge(&patch)
		r.Name, r.ReadOnly, r.Disabled, r.Expires = patch.Name, patch.ReadOnly, patch.Disabled, patch.Expires
		return err
	}); err != nil {
		return nil, err
	}
	return h.showAdmin(c, id)
}

func (h *adminHandler) deleteAdmin(c *call) (any, error) {
	id := c.r.PathValue("admin")
	if _, err := h.showAdmin(c, id); err != nil {
		return nil, err
	}
	if h.opts.Tenants.Snapshot().Admins[id] == nil {
		return nil, declared("admin", id)
	}
	return h.audit.remove(c, c.entry("", id), tenants.Ref{Kind: tenants.KindAdmin, ID: id})
}

// Self is the calling administrator.
type Self struct {
	ID       string `json:"id"`
	ReadOnly bool   `json:"read_only"`
}

func (h *adminHandler) self(c *call) (any, error) { return Self{c.actor.id, c.actor.readOnly}, nil }

// session records that an administrator has opened the console or signed out of it, and returns whose key it is. It
// works without Redis, because the entry is logged, too.
func (h *adminHandler) session(c *call) (any, error) {
	e := c.entry("", c.actor.id)
	c.log.Info("audit", "action", e.Action, "actor", e.Actor, "ip", e.IP, "id", e.RequestID)
	if err := h.audit.note(c.r.Context(), e, nil); err != nil {
		c.log.Error("audit entry not written", "action", e.Action, "actor", e.Actor, "ip", e.IP, "err", err)
	}
	return h.self(c)
}
