package admin

import (
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// Key is an API key as in force, without what opens anything.
type Key struct {
	ID          string     `json:"id"`
	Org         string     `json:"org"`
	User        string     `json:"user"`
	Name        string     `json:"name"`
	Status      string     `json:"status"` // active, disabled or expired
	Last4       string     `json:"last4"`
	Disabled    bool       `json:"disabled"`
	Models      []string   `json:"models"`
	Scopes      []string   `json:"scopes"`
	Networks    []string   `json:"networks"`
	Concurrency int64      `json:"concurrency"` // 0: any number
	Expires     *time.Time `json:"expires"`
	// OldUntil is until when the key before the last rotation still works.
	OldUntil *time.Time `json:"old_key_until"`
	LastUsed *time.Time `json:"last_used_at"` // to about a minute
	Source   Source     `json:"source"`
	Created  *time.Time `json:"created_at"`
	Updated  *time.Time `json:"updated_at"`
}

// NewKey is a key that was just made. Secret is told only here.
type NewKey struct {
	Key
	Secret string `json:"secret"`
}

type newKey struct {
	ID   string `json:"id,omitempty"` // made up when left out
	User string `json:"user"`
	Test bool   `json:"test,omitempty"` // begins with lg_test_
	keyPatch
}

type keyPatch struct {
	tenants.KeySpec
}

// keyChange is a change of a key, and of what runs with it.
type keyChange struct {
	keyPatch
	// CancelJobs, with "disabled": true, cancels the key's jobs and batches that have not
	// ended.
	CancelJobs bool `json:"cancel_jobs,omitempty"`
}

type rotation struct {
	// Overlap is how long the old key still works: a duration such as 24h or 7d,
	// at most 90d; left out: 24h. "0s" ends it at once.
	Overlap *string `json:"overlap,omitempty"`
	Reason  string  `json:"reason,omitempty"`
}

const (
	defaultOverlap = 24 * time.Hour
	maxOverlap     = 90 * 24 * time.Hour
)

// key returns a key as in force, its user's id, and whether the file has it.
func (c *call) key(org *settings.Org, id string) (k *settings.Key, user *settings.User, inFile bool, err error) {
	for i := range org.Users {
		for j := range org.Users[i].Keys {
			if org.Users[i].Keys[j].ID == id {
				k, user = &org.Users[i].Keys[j], &org.Users[i]
			}
		}
	}
	if k == nil {
		return nil, nil, false, wire.NotFound("key", "key_not_found", "Org %s has no key %.80q", org.ID, id)
	}
	if o := c.o.File().Org(org.ID); o != nil {
		for _, u := range o.Users {
			inFile = inFile || slices.ContainsFunc(u.Keys, func(k settings.Key) bool { return k.ID == id })
		}
	}
	return k, user, inFile, nil
}

func (c *call) viewKey(org *settings.Org, u *settings.User, k *settings.Key, inFile bool, used map[string]time.Time) Key {
	v := Key{
		ID: k.ID, Org: org.ID, User: u.ID, Name: k.Name, Disabled: k.Disabled, Models: list(k.Models), Scopes: list(k.Scopes),
		Networks: []string{}, Concurrency: k.Concurrency, Status: "active",
	}
	for _, n := range k.Networks {
		v.Networks = append(v.Networks, n.String())
	}
	if !k.Expires.IsZero() {
		v.Expires = &k.Expires
	}
	switch {
	case k.Disabled, u.Disabled, org.Disabled:
		v.Status = "disabled"
	case v.Expires != nil && !c.start.Before(k.Expires):
		v.Status = "expired"
	}
	if at, ok := used[k.ID]; ok {
		v.LastUsed = &at
	}
	record := c.records(org.ID).Keys[k.ID]
	v.Source = sourceOf(inFile, record != nil)
	if record != nil {
		v.Created, v.Updated, v.Last4 = &record.Created, &record.Updated, record.Last4
		if record.Previous != "" && c.start.Before(record.PreviousUntil) {
			v.OldUntil = &record.PreviousUntil
		}
	}
	return v
}

func (c *call) listKeys() (any, error) {
	o, _, err := c.org(c.r.PathValue("org"))
	if err != nil {
		return nil, err
	}
	only := c.r.URL.Query().Get("user")
	if only != "" {
		if _, _, err := c.user(o, only); err != nil {
			return nil, err
		}
	}
	var ids []string
	for _, u := range o.Users {
		for _, k := range u.Keys {
			ids = append(ids, k.ID)
		}
	}
	used, err := c.o.Tenants.LastUsed(c.r.Context(), o.ID, ids...)
	if err != nil {
		return nil, err
	}
	var out []Key
	for _, id := range ids {
		k, u, inFile, err := c.key(o, id)
		if err != nil {
			return nil, err
		}
		if only == "" || u.ID == only {
			out = append(out, c.viewKey(o, u, k, inFile, used))
		}
	}
	return listOf(out), nil
}

func (c *call) getKey() (any, error) { return c.showKey(c.r.PathValue("org"), c.r.PathValue("key")) }

func (c *call) showKey(org, id string) (Key, error) {
	o, _, err := c.org(org)
	if err != nil {
		return Key{}, err
	}
	k, u, inFile, err := c.key(o, id)
	if err != nil {
		return Key{}, err
	}
	used, err := c.o.Tenants.LastUsed(c.r.Context(), org, id)
	if err != nil {
		return Key{}, err
	}
	return c.viewKey(o, u, k, inFile, used), nil
}

// fresh makes a key and its hash under the newest pepper.
func (c *call) fresh(test bool) (text, hash string) {
	class := keys.Live
	if test {
		class = keys.Test
	}
	return c.freshOf(class)
}

func (c *call) freshOf(class keys.Class) (text, hash string) {
	text = keys.New(class)
	var pepper keys.Pepper
	if list := c.o.File().Peppers; len(list) > 0 {
		pepper = list[0]
	}
	return text, keys.Hash(pepper, text)
}

func (c *call) createKey() (any, error) {
	o, _, err := c.org(c.r.PathValue("org"))
	if err != nil {
		return nil, err
	}
	var n newKey
	if err := c.read(&n); err != nil {
		return nil, err
	}
	if _, _, err := c.user(o, n.User); err != nil {
		return nil, err
	}
	text, hash := c.fresh(n.Test)
	if n.ID == "" {
		n.ID = "key-" + keys.Last4(hash) + keys.Last4(wire.NewCallID()+wire.NewCallID())
	}
	if err := newID("id", n.ID); err != nil {
		return nil, err
	}
	if _, _, _, err := c.key(o, n.ID); err == nil {
		return nil, exists("key", n.ID)
	}
	ref := tenants.Ref{Kind: tenants.KindKey, Org: o.ID, ID: n.ID}
	record := tenants.Key{KeySpec: n.KeySpec, User: n.User, Test: n.Test, Hash: hash, Last4: keys.Last4(text), Stamp: c.stamp(nil)}
	if err := c.commit(c.entry("key.create", o.ID, n.ID), nil, bare(record), tenants.Change{Ref: ref, New: record}); err != nil {
		return nil, taken(err, "key", n.ID)
	}
	v, err := c.showKey(o.ID, n.ID)
	return created{NewKey{v, text}}, err
}

// bare is a key's record for the audit.
func bare(k tenants.Key) tenants.Key {
	k.Hash, k.Previous = "", ""
	return k
}

// keyRecord reads a key's record; of a key that only the file has an empty one.
func (c *call) keyRecord(org, id string) (record tenants.Key, old tenants.Text, inFile *settings.Key, err error) {
	o, _, err := c.org(org)
	if err != nil {
		return record, "", nil, err
	}
	k, u, _, err := c.key(o, id)
	if err != nil {
		return record, "", nil, err
	}
	old, err = c.o.Tenants.Get(c.r.Context(), tenants.Ref{Kind: tenants.KindKey, Org: org, ID: id}, &record)
	record.User = u.ID
	return record, old, k, err
}

func (c *call) updateKey() (any, error) {
	org, id := c.r.PathValue("org"), c.r.PathValue("key")
	record, old, _, err := c.keyRecord(org, id)
	if err != nil {
		return nil, err
	}
	before := record
	patch := keyChange{keyPatch: keyPatch{record.KeySpec}}
	if err := c.merge(&patch); err != nil {
		return nil, err
	}
	if patch.CancelJobs && (patch.Disabled == nil || !*patch.Disabled) {
		return nil, wire.BadRequest("cancel_jobs", "invalid_value", "cancel_jobs needs \"disabled\": true: a key in use would make new jobs meanwhile")
	}
	record.KeySpec, record.Stamp = patch.KeySpec, c.stamp(&before.Stamp)
	ref := tenants.Ref{Kind: tenants.KindKey, Org: org, ID: id}
	if err := c.commit(c.entry("key.update", org, id), orNil(old, bare(before)), bare(record), tenants.Change{Ref: ref, Old: old, New: record}); err != nil {
		return nil, err
	}
	if patch.CancelJobs {
		if err := c.cancelOf(org, record.User, id, c.r.URL.Query().Get("reason")); err != nil {
			return nil, err
		}
	}
	return c.showKey(org, id)
}

func (c *call) rotateKey() (any, error) {
	org, id := c.r.PathValue("org"), c.r.PathValue("key")
	var how rotation
	if err := c.read(&how); err != nil {
		return nil, err
	}
	overlap := defaultOverlap
	if how.Overlap != nil {
		d, err := settings.ParseDuration(*how.Overlap)
		if err != nil || d > maxOverlap {
			return nil, wire.BadRequest("overlap", "invalid_value", "overlap must be a duration such as 0s, 24h or 7d, at most 90d")
		}
		overlap = d
	}
	record, old, now, err := c.keyRecord(org, id)
	if err != nil {
		return nil, err
	}
	before := record
	text, hash := c.fresh(record.Test)
	record.Previous, record.PreviousUntil = now.Hash, c.start.UTC().Add(overlap)
	if overlap == 0 {
		record.Previous, record.PreviousUntil = "", time.Time{}
	}
	record.Hash, record.Last4, record.Stamp = hash, keys.Last4(text), c.stamp(&before.Stamp)
	e := c.entry("key.rotate", org, id)
	e.Reason = how.Reason
	ref := tenants.Ref{Kind: tenants.KindKey, Org: org, ID: id}
	if err := c.commit(e, orNil(old, bare(before)), bare(record), tenants.Change{Ref: ref, Old: old, New: record}); err != nil {
		return nil, err
	}
	v, err := c.showKey(org, id)
	return NewKey{v, text}, err
}

func (c *call) deleteKey() (any, error) {
	org, id := c.r.PathValue("org"), c.r.PathValue("key")
	o, _, err := c.org(org)
	if err != nil {
		return nil, err
	}
	_, _, inFile, err := c.key(o, id)
	if err != nil {
		return nil, err
	}
	if c.records(org).Keys[id] == nil {
		return nil, declared("key", id, "Disable it here, or take it out of the file")
	}
	refs := []tenants.Ref{{Kind: tenants.KindKey, Org: org, ID: id}}
	if !inFile {
		refs = append(refs, c.boundTo(org, budget.Key, id)...)
	}
	if err := c.remove(c.entry("key.delete", org, id), refs...); err != nil {
		return nil, err
	}
	return empty{}, nil
}
