package admin

import (
	"slices"
	"strings"

	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// Declaration is an org as declared in a file: its settings, users, keys and limits, under
// their configuration names. Omitted fields are left unspecified.
type Declaration struct {
	ID     string `json:"id"`
	Fields settings.Fields[settings.Org]
	Limits []DeclaredLimit `json:"limits,omitempty"`
	Groups []DeclaredGroup `json:"groups,omitempty"`
	Plans  []DeclaredGroup `json:"plans,omitempty"`
	Users  []DeclaredUser  `json:"users,omitempty"`
}

// MarshalJSON writes the fields among the other members, also inside.
func (d Declaration) MarshalJSON() ([]byte, error) { return settings.Marshal(d) }

// UnmarshalJSON is its inverse.
func (d *Declaration) UnmarshalJSON(raw []byte) error { return settings.Unmarshal(raw, d) }

// DeclaredGroup is a group or a plan of a Declaration, with its limits.
type DeclaredGroup struct {
	ID     string          `json:"id"`
	Limits []DeclaredLimit `json:"limits,omitempty"`
}

// DeclaredUser is a user of a Declaration. Its limits apply to this user only.
type DeclaredUser struct {
	ID     string `json:"id"`
	Fields settings.Fields[settings.User]
	Limits []DeclaredLimit `json:"limits,omitempty"`
	Keys   []DeclaredKey   `json:"keys,omitempty"`
}

// DeclaredKey is an API key of a Declaration. A key without a hash is generated if it does not
// exist.
type DeclaredKey struct {
	ID     string  `json:"id"`
	Hash   *string `json:"hash,omitempty"`
	Fields settings.Fields[settings.Key]
}

// DeclaredLimit is a limit of a Declaration.
type DeclaredLimit struct {
	Name   string `json:"name"`
	Fields settings.Fields[settings.Limit]
}

// declarationHandler shows orgs as declarations, and applies declarations.
type declarationHandler struct {
	base
	keys    *keyHandler
	replays *replayer
}

// getDeclaration returns the declaration of an org. Key hashes are shown only to administrators
// with write access.
func (h *declarationHandler) getDeclaration(c *call) (any, error) {
	if org := c.r.PathValue("org"); h.dir.isAll(org) {
		return Declaration{ID: org, Limits: h.declaredLimits("", h.opts.Effective().Defaults.Limits)}, nil
	}
	o, _, err := h.dir.org(c.r.PathValue("org"))
	if err != nil {
		return nil, err
	}
	d := h.declared(o)
	if c.actor.readOnly {
		for i := range d.Users {
			for k := range d.Users[i].Keys {
				d.Users[i].Keys[k].Hash = nil
			}
		}
	}
	return d, nil
}

// declared returns the declaration of an org with all values that differ from the default,
// sorted by name, so that two can be compared line by line.
func (h *declarationHandler) declared(o *settings.Org) Declaration {
	usual := h.opts.NewOrg(o.ID)
	d := Declaration{ID: o.ID, Fields: settings.Changed(o, &usual), Limits: h.declaredLimits("", o.Limits)}
	for _, g := range o.Groups {
		d.Groups = append(d.Groups, DeclaredGroup{g.ID, h.declaredLimits(settings.Owner("group", g.ID), g.Limits)})
	}
	for _, p := range o.Plans {
		d.Plans = append(d.Plans, DeclaredGroup{p.ID, h.declaredLimits(settings.Owner("plan", p.ID), p.Limits)})
	}
	for i := range o.Users {
		d.Users = append(d.Users, h.declaredUser(&o.Users[i]))
	}
	slices.SortFunc(d.Users, func(a, b DeclaredUser) int { return strings.Compare(a.ID, b.ID) })
	return d
}

func (h *declarationHandler) declaredUser(u *settings.User) DeclaredUser {
	usual := h.opts.NewUser(u.ID)
	d := DeclaredUser{ID: u.ID, Fields: settings.Changed(u, &usual), Limits: h.declaredLimits(u.ID, u.Limits)}
	for i := range u.Keys {
		k := &u.Keys[i]
		one := DeclaredKey{ID: k.ID, Fields: settings.Changed(k, &settings.Key{})}
		if k.Hash != "" {
			one.Hash = &k.Hash
		}
		d.Keys = append(d.Keys, one)
	}
	slices.SortFunc(d.Keys, func(a, b DeclaredKey) int { return strings.Compare(a.ID, b.ID) })
	return d
}

// declaredLimits returns the limits of an org, or of a user, group or plan (settings.Owner).
func (h *declarationHandler) declaredLimits(owner string, list []settings.Limit) []DeclaredLimit {
	var out []DeclaredLimit
	for i := range list {
		out = append(out, DeclaredLimit{list[i].Name, h.limitFields(owner, &list[i])})
	}
	slices.SortFunc(out, func(a, b DeclaredLimit) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// limitFields returns the declared fields of a limit. Those of users and plans omit subject and only.
func (h *declarationHandler) limitFields(owner string, l *settings.Limit) settings.Fields[settings.Limit] {
	usual := h.opts.NewLimit(owner, l.Name)
	if kind, _ := settings.SplitOwner(owner); kind == "user" || kind == "plan" {
		usual.Subject, usual.Only = l.Subject, l.Only
	}
	return settings.Changed(l, &usual)
}

// getRecords returns the runtime records of an org. Keys have a placeholder instead of their
// hash, so that clients can still validate limits of single keys.
func (h *declarationHandler) getRecords(c *call) (any, error) {
	org := c.r.PathValue("org")
	if err := h.dir.known(org); err != nil && !h.dir.isAll(org) {
		return nil, err
	}
	t := *h.dir.records(h.dir.recordOrg(org))
	t.Credentials = nil
	all := t.Keys
	t.Keys = make(map[string]*tenants.Key, len(all))
	for id, k := range all {
		shown := bare(*k)
		t.Keys[id] = &shown
	}
	return t, nil
}
