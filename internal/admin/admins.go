package admin

import (
	"maps"
	"slices"
	"time"

	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/wire"
)

// Admin is an administrator, without the key.
type Admin struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Status   string     `json:"status"` // active, disabled or expired
	Last4    string     `json:"last4"`
	ReadOnly bool       `json:"read_only"`
	Disabled bool       `json:"disabled"`
	Expires  *time.Time `json:"expires"`
	Source   Source     `json:"source"`
}

// Self is the administrator who asks.
type Self struct {
	ID       string `json:"id"`
	ReadOnly bool   `json:"read_only"`
}

func (c *call) self() (any, error) { return Self{c.actor.id, c.actor.readOnly}, nil }

// NewAdmin is an administrator that was just made. Secret is told only here.
type NewAdmin struct {
	Admin
	Secret string `json:"secret"`
}

type newAdmin struct {
	ID       string    `json:"id"`
	Name     string    `json:"name,omitempty"`
	ReadOnly bool      `json:"read_only,omitempty"`
	Expires  time.Time `json:"expires,omitzero"`
}

type adminPatch struct {
	Name     string    `json:"name,omitempty"`
	ReadOnly bool      `json:"read_only,omitempty"`
	Disabled bool      `json:"disabled,omitempty"`
	Expires  time.Time `json:"expires,omitzero"`
}

func (c *call) viewAdmin(id string, a tenants.Admin) Admin {
	v := Admin{ID: id, Name: a.Name, Last4: a.Last4, ReadOnly: a.ReadOnly, Disabled: a.Disabled, Status: "active"}
	_, inFile := c.o.File().Admins[id]
	v.Source = sourceOf(inFile, c.o.Tenants.Snapshot().Admins[id] != nil)
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

func (c *call) listAdmins() (any, error) {
	all := c.administrators(c.o.File())
	var out []Admin
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out = append(out, c.viewAdmin(id, all[id]))
	}
	return listOf(out), nil
}

func (c *call) showAdmin(id string) (Admin, error) {
	a, ok := c.administrators(c.o.File())[id]
	if !ok {
		return Admin{}, wire.NotFound("admin", "admin_not_found", "There is no administrator %.80q", id)
	}
	return c.viewAdmin(id, a), nil
}

func (c *call) createAdmin() (any, error) {
	var n newAdmin
	if err := c.read(&n); err != nil {
		return nil, err
	}
	if err := newID("id", n.ID); err != nil {
		return nil, err
	}
	if _, err := c.showAdmin(n.ID); err == nil {
		return nil, exists("admin", n.ID)
	}
	text, hash := c.freshOf(keys.Admin)
	record := tenants.Admin{Name: n.Name, Hash: hash, Last4: keys.Last4(text), ReadOnly: n.ReadOnly, Expires: n.Expires, Stamp: c.stamp(nil)}
	ref := tenants.Ref{Kind: tenants.KindAdmin, ID: n.ID}
	if err := c.commit(c.entry("admin.create", "", n.ID), nil, bareAdmin(record), tenants.Change{Ref: ref, New: record}); err != nil {
		return nil, taken(err, "admin", n.ID)
	}
	v, err := c.showAdmin(n.ID)
	return created{NewAdmin{v, text}}, err
}

// bareAdmin is an administrator's record for the audit.
func bareAdmin(a tenants.Admin) tenants.Admin {
	a.Hash = ""
	return a
}

// updateAdmin changes an administrator. The record of one that the file has is
// whole: it stands for the file's until it is removed.
func (c *call) updateAdmin() (any, error) {
	id := c.r.PathValue("admin")
	record, ok := c.administrators(c.o.File())[id]
	if !ok {
		return c.showAdmin(id)
	}
	ref := tenants.Ref{Kind: tenants.KindAdmin, ID: id}
	var stored tenants.Admin
	old, err := c.o.Tenants.Get(c.r.Context(), ref, &stored)
	if err != nil {
		return nil, err
	}
	if old != "" {
		record = stored
	}
	before := record
	patch := adminPatch{record.Name, record.ReadOnly, record.Disabled, record.Expires}
	if err := c.merge(&patch); err != nil {
		return nil, err
	}
	record.Name, record.ReadOnly, record.Disabled, record.Expires = patch.Name, patch.ReadOnly, patch.Disabled, patch.Expires
	record.Stamp = c.stamp(&before.Stamp)
	if err := c.commit(c.entry("admin.update", "", id), orNil(old, bareAdmin(before)), bareAdmin(record), tenants.Change{Ref: ref, Old: old, New: record}); err != nil {
		return nil, err
	}
	return c.showAdmin(id)
}

func (c *call) deleteAdmin() (any, error) {
	id := c.r.PathValue("admin")
	if _, err := c.showAdmin(id); err != nil {
		return nil, err
	}
	if c.o.Tenants.Snapshot().Admins[id] == nil {
		return nil, declared("admin", id, "Disable it here, or take it out of the file")
	}
	if err := c.remove(c.entry("admin.delete", "", id), tenants.Ref{Kind: tenants.KindAdmin, ID: id}); err != nil {
		return nil, err
	}
	return empty{}, nil
}
