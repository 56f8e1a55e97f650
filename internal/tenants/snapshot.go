package tenants

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Snapshot is the state of all records after a change. It is immutable.
type Snapshot struct {
	Tenants map[string]*Tenant // by org
	Admins  map[string]*Admin
	Stops   map[string]*Stop // by org, or AllOrgs
	Raises  map[RaiseOwner]*UserRaises
	Brakes  map[string]Brakes // by org
	last    string            // id of the last change included; empty: none
}

// Brakes are the fired and released brakes of an org, by BrakeID. They must not be modified.
type Brakes map[string]*Brake

func emptySnapshot() *Snapshot {
	return &Snapshot{
		Tenants: map[string]*Tenant{}, Admins: map[string]*Admin{}, Stops: map[string]*Stop{},
		Raises: map[RaiseOwner]*UserRaises{}, Brakes: map[string]Brakes{},
	}
}

// Tenant holds all records of one org. It is immutable; a change creates a new one.
type Tenant struct {
	Org         *Org // nil: only the file defines the org
	Users       map[string]*User
	Keys        map[string]*Key
	Limits      map[string]*Limit // by LimitID
	Overrides   map[string]*Override
	Credentials map[string]*Credential // by provider
}

func (t *Tenant) empty() bool {
	return t.Org == nil && len(t.Users)+len(t.Keys)+len(t.Limits)+len(t.Overrides)+len(t.Credentials) == 0
}

// clone copies the maps but not the records, which never change.
func (t *Tenant) clone() *Tenant {
	if t == nil {
		return &Tenant{
			Users: map[string]*User{}, Keys: map[string]*Key{}, Limits: map[string]*Limit{},
			Overrides: map[string]*Override{}, Credentials: map[string]*Credential{},
		}
	}
	return &Tenant{
		Org: t.Org, Users: maps.Clone(t.Users), Keys: maps.Clone(t.Keys), Limits: maps.Clone(t.Limits),
		Overrides: maps.Clone(t.Overrides), Credentials: maps.Clone(t.Credentials),
	}
}

// draft is a snapshot being derived from another.
type draft struct {
	Snapshot
	// own is what is already copied for this draft: pointers to maps, and Refs of tenants and of brakes of orgs.
	own map[any]bool
}

func (s *Snapshot) draft() *draft {
	d := &draft{Snapshot: *s, own: map[any]bool{}}
	d.Tenants = maps.Clone(s.Tenants)
	return d
}

// ownMap returns a map of the draft, which it copies before the first change.
func ownMap[K comparable, V any](d *draft, m *map[K]V) map[K]V {
	if !d.own[m] {
		*m, d.own[m] = maps.Clone(*m), true
	}
	return *m
}

func (d *draft) tenant(org string) *Tenant {
	if as := (Ref{Kind: KindOrg, Org: org}); !d.own[as] {
		d.Tenants[org], d.own[as] = d.Tenants[org].clone(), true
	}
	return d.Tenants[org]
}

// set stores a record, or deletes it if text is empty. Records that change often are apart from the tenant, so that
// they do not rebuild its org.
func (d *draft) set(r Ref, text string) error {
	switch r.Kind {
	case KindAdmin:
		return put(ownMap(d, &d.Admins), r.ID, r, text)
	case KindStop:
		return put(ownMap(d, &d.Stops), r.ID, r, text)
	case KindRaise:
		return put(ownMap(d, &d.Raises), RaiseOwner{r.Org, r.ID}, r, text)
	case KindBrake:
		return put(d.orgBrakes(r.Org), r.ID, r, text)
	}
	t := d.tenant(r.Org)
	switch r.Kind {
	case KindOrg:
		one := map[string]*Org{}
		err := put(one, r.ID, r, text)
		t.Org = one[r.ID]
		return err
	case KindUser:
		return put(t.Users, r.ID, r, text)
	case KindKey:
		return put(t.Keys, r.ID, r, text)
	case KindLimit:
		return put(t.Limits, r.ID, r, text)
	case KindOverride:
		return put(t.Overrides, r.ID, r, text)
	case KindCredential:
		return put(t.Credentials, r.ID, r, text)
	default:
		return nil // from a newer version
	}
}

// orgBrakes returns the draft's own copy of the brakes of an org.
func (d *draft) orgBrakes(org string) Brakes {
	all := ownMap(d, &d.Brakes)
	if as := (Ref{Kind: KindBrake, Org: org}); !d.own[as] {
		own := Brakes{}
		maps.Copy(own, all[org])
		all[org], d.own[as] = own, true
	}
	return all[org]
}

func put[K comparable, T any](to map[K]*T, at K, r Ref, text string) error {
	if text == "" {
		delete(to, at)
		return nil
	}
	v := new(T)
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("tenants: record %s: %w", r, err)
	}
	to[at] = v
	return nil
}

func (d *draft) finish(last string) *Snapshot {
	maps.DeleteFunc(d.Tenants, func(_ string, t *Tenant) bool { return t.empty() })
	if d.own[&d.Brakes] {
		maps.DeleteFunc(d.Brakes, func(_ string, b Brakes) bool { return len(b) == 0 })
	}
	done := d.Snapshot
	done.last = last
	return &done
}

// With returns the snapshot that would result from these changes, so that it can be validated.
func (s *Snapshot) With(changes ...Change) (*Snapshot, error) {
	d := s.draft()
	for _, c := range changes {
		text, err := c.text()
		if err == nil {
			err = d.set(c.Ref, text)
		}
		if err != nil {
			return nil, err
		}
	}
	return d.finish(s.last), nil
}

// Refs returns all records of an org, its own first; a nil Tenant has none.
func (t *Tenant) Refs(org string) []Ref {
	if t == nil {
		return nil
	}
	refs := slices.SortedFunc(maps.Keys(t.records(org)), func(a, b Ref) int {
		return strings.Compare(a.String(), b.String())
	})
	own := Ref{KindOrg, org, org}
	if i := slices.Index(refs, own); i > 0 {
		refs[0], refs[i] = own, refs[0]
	}
	return refs
}

// records returns the records of an org.
func (t *Tenant) records(org string) map[Ref]any {
	out := map[Ref]any{}
	if t.Org != nil {
		out[Ref{KindOrg, org, org}] = t.Org
	}
	collect(out, KindUser, org, t.Users)
	collect(out, KindKey, org, t.Keys)
	collect(out, KindLimit, org, t.Limits)
	collect(out, KindOverride, org, t.Overrides)
	collect(out, KindCredential, org, t.Credentials)
	return out
}

// collect adds the records of a kind to out.
func collect[T any](out map[Ref]any, kind Kind, org string, from map[string]*T) {
	for id, record := range from {
		out[Ref{kind, org, id}] = record
	}
}

// records returns all records.
func (s *Snapshot) records() map[Ref]any {
	out := map[Ref]any{}
	for org, t := range s.Tenants {
		maps.Copy(out, t.records(org))
	}
	collect(out, KindAdmin, "", s.Admins)
	for org, stop := range s.Stops {
		out[StopRef(org)] = stop
	}
	for owner, raises := range s.Raises {
		out[RaiseRef(owner.Org, owner.User)] = raises
	}
	for org, brakes := range s.Brakes {
		collect(out, KindBrake, org, brakes)
	}
	return out
}
