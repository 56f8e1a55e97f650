package settings

import (
	"cmp"
	"slices"
	"strings"
)

// Group is a set of users of an org with an amount that they share, an amount for each, or both. A user is in at most
// one.
type Group struct {
	// ID is unique in the org. The shared usage is stored under it.
	ID   string `yaml:"id,required" kind:"id" unique:"list"`
	Name string `yaml:"name"`
	// Limits are shared by the group's users, or with subject user for each of them. One with the name and subject of
	// a limit of the org replaces it.
	Limits []Limit `yaml:"limits"`
}

// Plan is a named set of limits and rights.
type Plan struct {
	ID   string `yaml:"id,required" kind:"id" unique:"list"`
	Name string `yaml:"name"`
	// Limits count each user who has the plan, or each key that has it itself. One with the name of the org's or a
	// group's limit for each user replaces it.
	Limits []Limit `yaml:"limits"`
	// Models are patterns of the models for keys that name none, within the org's. Default: the org's.
	Models []string `yaml:"models" range:"1.." kind:"pattern"`
	// Priority is the priority of users and keys without one, up to max_priority of the org.
	Priority string `yaml:"priority" enum:"high,normal,low"`
}

// Owner returns the text that identifies whose list a limit is in: "group:research" or "plan:free". The
// id of a user is its own text; "" is the org.
func Owner(kind, id string) string { return kind + ":" + id }

// SplitOwner is the inverse of Owner: the kind is org, group, plan or user.
func SplitOwner(owner string) (kind, id string) {
	if owner == "" {
		return "org", ""
	}
	if kind, id, ok := strings.Cut(owner, ":"); ok {
		return kind, id
	}
	return "user", owner
}

// Group returns the group with this id, or nil.
func (o *Org) Group(id string) *Group { return Find(o.Groups, id) }

// OrgPlan returns a plan of an org: that of the defaults, changed by the org's of the same id. It is
// nil if there is none.
func (d Defaults) OrgPlan(o *Org, id string) *Plan {
	shared, own := Find(d.Plans, id), Find(o.Plans, id)
	if shared == nil || own == nil {
		return cmp.Or(own, shared)
	}
	made := Plan{
		ID: id, Name: cmp.Or(own.Name, shared.Name), Models: own.Models, Priority: cmp.Or(own.Priority, shared.Priority),
		Limits: replaced(shared.Limits, own.Limits),
	}
	if len(made.Models) == 0 {
		made.Models = shared.Models
	}
	return &made
}

// PlanIDs returns the ids of the plans that users and keys of an org can have, sorted.
func (d Defaults) PlanIDs(o *Org) []string {
	var out []string
	for _, list := range [][]Plan{d.Plans, o.Plans} {
		for _, p := range list {
			out = append(out, p.ID)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Membership is the group and the plan of a user or a key. Those with equal ones and without limits
// of their own have the same limits.
type Membership struct {
	Group, Plan string
	// OfKey means that the key itself has the plan, so that its limits count the key.
	OfKey bool
}

// Membership returns what a user of an org has, with a key; k may be nil.
func (d Defaults) Membership(o *Org, u *User, k *Key) Membership {
	if k != nil && k.Plan != "" {
		return Membership{Group: u.Group, Plan: k.Plan, OfKey: true}
	}
	return Membership{Group: u.Group, Plan: cmp.Or(u.Plan, o.Plan, d.Plan)}
}

// PlanFrom returns what names the plan of a user with a key: key, user, org, defaults, or "" if
// nothing does.
func (d Defaults) PlanFrom(o *Org, u *User, k *Key) string {
	switch {
	case k != nil && k.Plan != "":
		return "key"
	case u.Plan != "":
		return "user"
	case o.Plan != "":
		return "org"
	case d.Plan != "":
		return "defaults"
	}
	return ""
}

// Layer is a list of limits from one place.
type Layer struct {
	// From is defaults, org, group, plan or user; ID that of the group, plan or user.
	From, ID string
	Limits   []Limit
}

// Layers returns where the limits of a user with a membership are from. A limit of a later layer
// replaces that of the same name in an earlier one. u is nil for a member without limits of its own.
func (d Defaults) Layers(o *Org, u *User, m Membership) []Layer {
	out := []Layer{{From: "defaults", Limits: d.Limits}, {From: "org", Limits: o.Limits}}
	for i := range out {
		out[i].Limits = ofGroup(out[i].Limits, m.Group)
	}
	if g := o.Group(m.Group); g != nil {
		out = append(out, Layer{"group", g.ID, ofGroup(g.Limits, m.Group)})
	}
	if p := d.OrgPlan(o, m.Plan); p != nil {
		out = append(out, Layer{"plan", p.ID, p.limitsFor(m)})
	}
	if u != nil && len(u.Limits) > 0 {
		out = append(out, Layer{"user", u.ID, u.Limits})
	}
	return out
}

// ofGroup returns limits as they apply to the users of a group, or of none: a limit for each group
// is for this one, and those of other groups are left out.
func ofGroup(list []Limit, group string) []Limit {
	if !slices.ContainsFunc(list, func(l Limit) bool { return l.Subject == "group" }) {
		return list
	}
	var out []Limit
	for _, l := range list {
		if l.Subject == "group" {
			if l.Only != "" && l.Only != group {
				continue
			}
			l.Only = group
		}
		out = append(out, l)
	}
	return out
}

// limitsFor returns the plan's limits with their subject.
func (p *Plan) limitsFor(m Membership) []Limit {
	out := slices.Clone(p.Limits)
	for i := range out {
		out[i].Subject = "user"
		if m.OfKey {
			out[i].Subject = "key"
		}
	}
	return out
}

// LimitsOf returns the limits that apply to a user with a membership, and nobody else's.
func (d Defaults) LimitsOf(o *Org, u *User, m Membership) []Limit {
	var out []Limit
	for _, layer := range d.Layers(o, u, m) {
		out = replaced(out, layer.Limits)
	}
	if u == nil {
		return out
	}
	return slices.DeleteFunc(out, func(l Limit) bool {
		return l.Subject == "user" && l.Only != "" && l.Only != u.ID
	})
}

// Above returns the limits that one of the list of an owner replaces if it has their name. u is the
// owner if it is a user, or nil for a new one.
func (d Defaults) Above(o *Org, owner string, u *User) []Limit {
	switch kind, id := SplitOwner(owner); kind {
	case "group":
		return d.OrgLimits(o)
	case "plan":
		if p := d.OrgPlan(&Org{}, id); p != nil {
			return p.Limits
		}
		return nil
	case "user":
		if u == nil {
			u = &User{ID: id}
		}
		return d.LimitsOf(o, nil, d.Membership(o, u, nil))
	}
	return d.Limits
}

// Shared reports whether the membership alone changes which limits of the org apply.
func (d Defaults) Shared(o *Org, m Membership) bool {
	each := func(l Limit) bool { return l.Subject == "group" }
	return m != Membership{} || slices.ContainsFunc(o.Limits, each) || slices.ContainsFunc(d.Limits, each)
}
