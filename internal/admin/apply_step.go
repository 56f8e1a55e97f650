package admin

import (
	stdjson "encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
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

// thing identifies what a step of a plan changes.
type thing struct {
	kind  string // org, user, key or limit
	user  string // the user that the key belongs to, or whose limit it is (settings.Owner)
	id    string
	there bool // exists now
	hash  bool // a key gets another hash
}

// state is the current state of a thing, its declaration now, and the one to follow.
type state[T any] struct {
	now       *T
	was, spec settings.Fields[T]
}

// object plans one thing. write sets the fields that change in its record.
func object[T, R any, P interface {
	*R
	Touch(at time.Time)
}](p *planner, of thing, s state[T], write func(P, settings.Fields[T])) {
	if p.err != nil {
		return
	}
	if err := newID(of.kind, of.id); err != nil {
		p.fail(err)
		return
	}
	set, err := changes(p, s.now, s.spec)
	if err != nil {
		p.fail(invalid(of.kind, "%s %s: %v", of.kind, of.id, err))
		return
	}
	if of.there && len(set) == 0 && !of.hash {
		return
	}
	step := planned{
		PlanChange: PlanChange{Action: "update", Kind: of.kind, User: of.user, ID: of.id, Fields: []PlanField{}},
		action:     of.kind + ".update",
	}
	if !of.there {
		step.Action, step.action = "create", of.kind+".create"
	}
	if of.kind == "limit" {
		step.action = "limit.set"
	}
	if of.hash {
		step.Fields = append(step.Fields, PlanField{Name: "hash", After: "another key"})
	}
	for name := range set {
		step.Fields = append(step.Fields, PlanField{name, s.was.Text(name), set.Text(name)})
	}
	slices.SortFunc(step.Fields, func(a, b PlanField) int { return strings.Compare(a.Name, b.Name) })
	ref := p.refOf(of.kind, of.user, of.id)
	var r R
	old, err := p.h.opts.Tenants.Get(p.c.r.Context(), ref, &r)
	if err != nil {
		p.fail(err)
		return
	}
	if old != "" {
		step.before = audited(ref, r)
	}
	write(&r, set)
	P(&r).Touch(p.c.start.UTC())
	step.target, step.after, step.change = ref.ID, audited(ref, r), tenants.Change{Ref: ref, Old: old, New: r}
	p.steps = append(p.steps, step)
}

// changes returns the fields of spec that differ from the current state.
func changes[T any](p *planner, now *T, spec settings.Fields[T]) (settings.Fields[T], error) {
	out := settings.Fields[T]{}
	for _, name := range slices.Sorted(maps.Keys(spec)) {
		patch, err := stdjson.Marshal(settings.Fields[T]{name: spec[name]})
		if err != nil {
			return nil, err
		}
		after := *now
		if err := p.h.opts.Patch(&after, patch); err != nil {
			return nil, err
		}
		if !reflect.DeepEqual(*now, after) {
			out[name] = spec[name]
		}
	}
	return out, nil
}

// shapeFields are the fields of each shape of a limit.
var shapeFields = map[string][]string{
	"window": {"window", "exact", "fixed"}, "calendar": {"calendar", "starts", "tz"}, "bucket": {"bucket"},
}

// reshape removes the shape from a record when a different one is declared.
func reshape(record, declared settings.Fields[settings.Limit]) {
	for shape := range shapeFields {
		if declared[shape] == nil {
			continue
		}
		for other, fields := range shapeFields {
			if declared[other] == nil {
				maps.DeleteFunc(record, func(name string, _ stdjson.RawMessage) bool { return slices.Contains(fields, name) })
			}
		}
		if shape == "bucket" {
			delete(record, "amount")
		}
	}
}

// hash sets the hash of a key, and generates the secret if the key does not exist.
func (p *planner) hash(r *tenants.Key, of thing, hash *string) {
	switch {
	case of.hash:
		r.Hash, r.Last4, r.Previous, r.PreviousUntil = *hash, "", "", time.Time{}
	case !of.there:
		var text string
		text, r.Hash = p.h.keys.freshKey(false)
		r.Last4, p.secrets[of.id] = keys.Last4(text), text
	}
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
