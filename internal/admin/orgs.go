package admin

import (
	"fmt"
	"slices"
	"time"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// Source is where something is defined: in the file, in Redis, or in both, in which case Redis
// takes precedence.
type Source string

// The sources.
const (
	File  Source = "file"
	Redis Source = "redis"
	Both  Source = "both"
)

func sourceOf(file, record bool) Source {
	switch {
	case file && record:
		return Both
	case file:
		return File
	default:
		return Redis
	}
}

// Org is an org as in effect.
type Org struct {
	ID      string                        `json:"id" col:"id" fact:"id"`
	Deleted bool                          `json:"deleted,omitempty"` // only its ledger is left
	Fields  settings.Fields[settings.Org] `fields:"all" col:"name,disabled,weight" fact:"disabled,*"`
	Users   int                           `json:"users" col:"users" fact:"users"`
	Keys    int                           `json:"keys" col:"keys" fact:"keys"`
	// WorstHour is the most, in nano-USD, that the org can spend in a clock hour, or null if no
	// cost limit bounds it. Unbounded reports that calls are possible that no limit of cost,
	// tokens or requests bounds. UnboundedUsers are the users who can make them; empty means
	// all.
	WorstHour      *int64     `json:"worst_hour" fact:"worst case per hour;=worst"`
	Unbounded      bool       `json:"unbounded"`
	UnboundedUsers []string   `json:"unbounded_users"`
	Source         Source     `json:"source" col:"source" fact:"source"`
	Created        *time.Time `json:"created_at"`
	Updated        *time.Time `json:"updated_at"`
}

// MarshalJSON writes the fields among the other members.
func (o Org) MarshalJSON() ([]byte, error) { return settings.Marshal(o) }

// UnmarshalJSON is its inverse.
func (o *Org) UnmarshalJSON(raw []byte) error { return settings.Unmarshal(raw, o) }

// newOrg and orgPatch are the request bodies for an org.
type newOrg struct {
	ID string `json:"id" help:"the org"`
	orgPatch
}

type orgPatch struct {
	Fields settings.Fields[settings.Org]
}

type orgHandler struct{ base }

func (h *orgHandler) viewOrg(c *call, o *settings.Org, inFile bool) Org {
	v := Org{ID: o.ID, Fields: settings.All(o), Users: len(o.Users)}
	for _, u := range o.Users {
		v.Keys += len(u.Keys)
	}
	v.UnboundedUsers = []string{}
	if policy := h.opts.Policy(); policy.Orgs[o.ID] != nil {
		b := policy.Bound(policy.Orgs[o.ID], o.CallerKeys(c.start), c.start)
		v.Unbounded, v.UnboundedUsers = b.None, list(b.Users)
		if b.Hour != guard.Unlimited {
			hour := int64(b.Hour)
			v.WorstHour = &hour
		}
	}
	record := h.dir.records(o.ID).Org
	v.Source = sourceOf(inFile, record != nil)
	if record != nil {
		v.Created, v.Updated = &record.Created, &record.Updated
	}
	return v
}

// list returns l, or an empty list for nil, which JSON would encode as null.
func list(l []string) []string {
	if l == nil {
		return []string{}
	}
	return l
}

func (h *orgHandler) listOrgs(c *call) (any, error) {
	var out []Org
	for _, o := range h.opts.Effective().Orgs {
		out = append(out, h.viewOrg(c, &o, h.opts.File().Org(o.ID) != nil))
	}
	if c.r.URL.Query().Get("deleted") != "true" {
		return listOf(out), nil
	}
	deleted, err := h.dir.deletedOrgs(c.r.Context())
	if err != nil {
		return nil, err
	}
	for _, id := range deleted {
		one := h.viewOrg(c, &settings.Org{ID: id, Disabled: true}, false)
		one.Deleted = true
		out = append(out, one)
	}
	return listOf(out), nil
}

func (h *orgHandler) getOrg(c *call) (any, error) { return h.showOrg(c, c.r.PathValue("org")) }

func (h *orgHandler) showOrg(c *call, id string) (any, error) {
	o, inFile, err := h.dir.org(id)
	if err != nil {
		return nil, err
	}
	return h.viewOrg(c, o, inFile), nil
}

func (h *orgHandler) createOrg(c *call) (any, error) {
	n := body[newOrg](c)
	if n.ID == everyOrg {
		return nil, invalid("id", "An org cannot have the name %s, which means every org where "+
			"limits are set",
			everyOrg)
	}
	if err := absent("org", n.ID, h.dir.known(n.ID)); err != nil {
		return nil, err
	}
	ref := tenants.Ref{Kind: tenants.KindOrg, Org: n.ID, ID: n.ID}
	if err := h.audit.create(c, ref, tenants.Org{Fields: n.Fields, Stamp: c.newStamp()}); err != nil {
		return nil, err
	}
	v, err := h.showOrg(c, n.ID)
	return created{v}, err
}

func (h *orgHandler) updateOrg(c *call) (any, error) {
	id := c.r.PathValue("org")
	ref := tenants.Ref{Kind: tenants.KindOrg, Org: id, ID: id}
	if _, err := change(c, h.audit, c.entry(id, id), ref, func(r *tenants.Org) error {
		return patch(c, &r.Fields)
	}); err != nil {
		return nil, err
	}
	return h.showOrg(c, id)
}

func (h *orgHandler) deleteOrg(c *call) (any, error) {
	id := c.r.PathValue("org")
	_, inFile, err := h.dir.org(id)
	if err != nil {
		return nil, err
	}
	refs := h.dir.records(id).Refs(id)
	if !inFile { // nothing of it remains
		now := h.opts.Tenants.Snapshot()
		refs = slices.Concat(refs, now.RaiseRefs(id), now.Brakes[id].Refs(id))
	}
	if len(refs) == 0 {
		return nil, declared("org", id)
	}
	return h.audit.remove(c, c.entry(id, id), refs...)
}

func exists(kind, id string) error {
	e := conflict(kind+"_exists", fmt.Sprintf("The %s %q already exists", kind, id))
	e.Param = "id"
	return e
}

// declared is the error for removing what the file defines.
func declared(kind, id string) error {
	return conflict("declared_in_file", "The "+kind+" "+id+" is defined in the configuration file and has no runtime "+
		"changes. Disable it here, or remove it from the file")
}
