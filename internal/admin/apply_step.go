package admin

import (
	stdjson "encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// refOf returns the reference of the record that a plan names.
func (p *planner) refOf(kind, user, id string) tenants.Ref {
	if kind == "limit" {
		id = tenants.LimitID(user, id)
	}
	return tenants.Ref{Kind: tenants.Kind(kind), Org: p.org, ID: id}
}

// step plans a record that contains the changed fields.
func (p *planner) step(of thing, fields []changed) {
	kind := of.kind
	s := planned{
		PlanChange: PlanChange{Action: "update", Kind: kind, User: of.user, ID: of.id, Fields: []PlanField{}},
		action:     kind + ".update",
	}
	if !of.there {
		s.Action, s.action = "create", kind+".create"
	}
	if kind == "limit" {
		s.action = "limit.set"
	}
	values := map[string]stdjson.RawMessage{}
	for _, f := range fields {
		s.Fields = append(s.Fields, f.PlanField)
		values[f.Name] = f.value
	}
	ref := p.refOf(kind, of.user, of.id)
	s.target = ref.ID
	var err error
	switch kind {
	case "org":
		err = record(p, &s, ref, func(r *tenants.Org) error {
			r.Stamp = p.c.stamp(&r.Stamp)
			return put(&r.OrgSpec, values)
		}, nil)
	case "user":
		err = record(p, &s, ref, func(r *tenants.User) error {
			r.Stamp = p.c.stamp(&r.Stamp)
			return put(&r.UserSpec, values)
		}, nil)
	case "limit":
		err = record(p, &s, ref, func(r *tenants.Limit) error {
			r.Stamp = p.c.stamp(&r.Stamp)
			reshape(&r.LimitSpec, values)
			return put(&r.LimitSpec, values)
		}, nil)
	case "key":
		err = record(p, &s, ref, func(r *tenants.Key) error {
			r.Stamp, r.User = p.c.stamp(&r.Stamp), of.user
			return p.putKey(r, of, values)
		}, func(r tenants.Key) any { return bare(r) })
	}
	if err != nil {
		p.fail(err)
		return
	}
	p.steps = append(p.steps, s)
}

// record reads a record, changes it, and adds it to the step. show removes what must not be in
// the audit.
func record[T any](p *planner, s *planned, ref tenants.Ref, change func(*T) error, show func(T) any) error {
	if show == nil {
		show = func(r T) any { return r }
	}
	var r T
	old, err := p.h.opts.Tenants.Get(p.c.r.Context(), ref, &r)
	if err != nil {
		return err
	}
	if old != "" {
		s.before = show(r)
	}
	if err := change(&r); err != nil {
		return err
	}
	s.after, s.change = show(r), tenants.Change{Ref: ref, Old: old, New: r}
	return nil
}

// put sets fields of a specification.
func put(spec any, values map[string]stdjson.RawMessage) error {
	raw, err := stdjson.Marshal(values)
	if err != nil {
		return err
	}
	return stdjson.Unmarshal(raw, spec)
}

// reshape removes the shape from a record when a different one is declared.
func reshape(spec *tenants.LimitSpec, values map[string]stdjson.RawMessage) {
	shapes := []string{"window", "calendar", "bucket"}
	if !slices.ContainsFunc(shapes, func(name string) bool { return values[name] != nil }) {
		return
	}
	if values["window"] == nil {
		spec.Window = nil
		spec.Exact = nil
		spec.Fixed = nil
	}
	if values["calendar"] == nil {
		spec.Calendar = nil
		spec.Starts = nil
		spec.TZ = nil
	}
	if values["bucket"] == nil {
		spec.Bucket = nil
	} else {
		spec.Amount = nil
	}
}

// putKey sets fields of a key, and generates the secret if the key does not exist.
func (p *planner) putKey(r *tenants.Key, of thing, values map[string]stdjson.RawMessage) error {
	if hash := values["hash"]; hash != nil {
		if err := stdjson.Unmarshal(hash, &r.Hash); err != nil {
			return err
		}
		r.Last4 = ""
		r.Previous = ""
		r.PreviousUntil = time.Time{}
		delete(values, "hash")
	} else if !of.there {
		var text string
		text, r.Hash = p.h.keys.freshKey(false)
		r.Last4, p.secrets[of.id] = keys.Last4(text), text
	}
	return put(&r.KeySpec, values)
}

// prune plans to remove the org's runtime records that are not declared. What the file defines
// stays.
func (p *planner) prune(d *Declaration, users map[string]bool) {
	keep := map[string]bool{}
	for _, l := range d.Limits {
		keep["limit "+l.Name] = true
	}
	for kind, list := range map[string][]DeclaredGroup{"group": d.Groups, "plan": d.Plans} {
		for _, g := range list {
			for _, l := range g.Limits {
				keep["limit "+tenants.LimitID(settings.Owner(kind, g.ID), l.Name)] = true
			}
		}
	}
	for _, u := range d.Users {
		for _, k := range u.Keys {
			keep["key "+k.ID] = true
		}
		for _, l := range u.Limits {
			keep["limit "+tenants.LimitID(u.ID, l.Name)] = true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.records.Limits)) {
		if !keep["limit "+id] {
			user, name := tenants.SplitLimitID(id)
			p.remove("limit", user, name)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.records.Keys)) {
		if !keep["key "+id] {
			p.remove("key", p.records.Keys[id].User, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.records.Users)) {
		if !users[id] {
			p.remove("user", "", id)
		}
	}
}

func (p *planner) remove(kind, user, id string) {
	ref := p.refOf(kind, user, id)
	var before map[string]any
	old, err := p.h.opts.Tenants.Get(p.c.r.Context(), ref, &before)
	if err != nil {
		p.fail(err)
		return
	}
	for _, secret := range []string{"hash", "previous"} {
		delete(before, secret)
	}
	s := planned{
		PlanChange: PlanChange{Action: "delete", Kind: kind, User: user, ID: id, Fields: []PlanField{}},
		action:     kind + ".delete", target: ref.ID,
		before: before, change: tenants.Change{Ref: ref, Old: old},
	}
	if kind == "limit" {
		s.action = "limit.unset"
	}
	p.steps = append(p.steps, s)
}
