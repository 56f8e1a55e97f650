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
	own    map[string]bool // tenants already copied for this draft
	admins bool            // admins are copied
	stops  bool            // stops are copied
	raises bool            // raises are copied
	brakes map[string]bool // orgs whose brakes are copied
}

func (s *Snapshot) draft() *draft {
	return &draft{
		Snapshot: Snapshot{
			Tenants: maps.Clone(s.Tenants), Admins: s.Admins, Stops: s.Stops, Raises: s.Raises, Brakes: s.Brakes,
			last: s.last,
		},
		own: map[string]bool{}, brakes: map[string]bool{},
	}
}

func (d *draft) tenant(org string) *Tenant {
	if !d.own[org] {
		d.Tenants[org], d.own[org] = d.Tenants[org].clone(), true
	}
	return d.Tenants[org]
}

// set stores a record, or deletes it if text is empty.
func (d *draft) set(r Ref, text string) error {
	if r.Kind == KindAdmin {
		if !d.admins {
			d.Admins, d.admins = maps.Clone(d.Admins), true
		}
		return put(d.Admins, r, text)
	}
	if r.Kind == KindStop { // apart from the tenant, so that a stop does not rebuild its org
		if !d.stops {
			d.Stops, d.stops = maps.Clone(d.Stops), true
		}
		return put(d.Stops, r, text)
	}
	if r.Kind == KindRaise { // apart from the tenant, likewise
		if !d.raises {
			d.Raises, d.raises = maps.Clone(d.Raises), true
		}
		return putAt(d.Raises, RaiseOwner{r.Org, r.ID}, r, text)
	}
	if r.Kind == KindBrake { // apart from the tenant, likewise
		return put(d.orgBrakes(r.Org), r, text)
	}
	t := d.tenant(r.Org)
	switch r.Kind {
	case KindOrg:
		one := map[string]*Org{}
		err := put(one, r, text)
		t.Org = one[r.ID]
		return err
	case KindUser:
		return put(t.Users, r, text)
	case KindKey:
		return put(t.Keys, r, text)
	case KindLimit:
		return put(t.Limits, r, text)
	case KindOverride:
		return put(t.Overrides, r, text)
	case KindCredential:
		return put(t.Credentials, r, text)
	default:
		return nil // from a newer version
	}
}

// orgBrakes returns the draft's own copy of the brakes of an org.
func (d *draft) orgBrakes(org string) Brakes {
	if len(d.brakes) == 0 {
		d.Brakes = maps.Clone(d.Brakes)
	}
	if !d.brakes[org] {
		own := maps.Clone(d.Brakes[org])
		if own == nil {
			own = Brakes{}
		}
		d.Brakes[org], d.brakes[org] = own, true
	}
	return d.Brakes[org]
}

func put[T any](to map[string]*T, r Ref, text string) error { return putAt(to, r.ID, r, text) }

func putAt[K comparable, T any](to map[K]*T, at K, r Ref, text string) error {
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
	for org := range d.own {
		if d.Tenants[org].empty() {
			delete(d.Tenants, org)
		}
	}
	for org := range d.brakes {
		if len(d.Brakes[org]) == 0 {
			delete(d.Brakes, org)
		}
	}
	return &Snapshot{
		Tenants: d.Tenants, Admins: d.Admins, Stops: d.Stops, Raises: d.Raises, Brakes: d.Brakes, last: last,
	}
}

// With returns the snapshot that would result from these changes, so that it can be validated.
func (s *Snapshot) With(changes ...Change) (*Snapshot, error) {
	d := s.draft()
	for _, c := range changes {
		text := ""
		if c.New != nil {
			raw, err := json.Marshal(c.New)
			if err != nil {
				return nil, fmt.Errorf("tenants: encode record: %w", err)
			}
			text = string(raw)
		}
		if err := d.set(c.Ref, text); err != nil {
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
