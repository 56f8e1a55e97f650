package admin

import (
	"crypto/rand"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// Key is an API key as in effect, without secrets.
type Key struct {
	ID     string                        `json:"id" col:"id" fact:"id"`
	Org    string                        `json:"org" fact:"org"`
	User   string                        `json:"user" col:"user" fact:"user"`
	Status string                        `json:"status" col:"status" fact:"status"` // active, disabled or expired
	Last4  string                        `json:"last4" col:"ends with" fact:"ends with"`
	Fields settings.Fields[settings.Key] `fields:"all" col:"name,expires" fact:"*"`
	// OldUntil is when the key from before the last rotation stops working.
	OldUntil *time.Time `json:"old_key_until" fact:"old key until;minute"`
	LastUsed *time.Time `json:"last_used_at" col:"last used;minute;unknown" fact:"last used;minute;unknown"` // accurate to about a minute
	Source   Source     `json:"source" col:"source" fact:"source"`
	Created  *time.Time `json:"created_at"`
	Updated  *time.Time `json:"updated_at"`
}

// MarshalJSON writes the fields among the other members.
func (k Key) MarshalJSON() ([]byte, error) { return settings.Marshal(k) }

// UnmarshalJSON is its inverse.
func (k *Key) UnmarshalJSON(raw []byte) error { return settings.Unmarshal(raw, k) }

// NewKey is a newly created key. Secret is returned only here.
type NewKey struct {
	Key
	Secret string `json:"secret" secret:"key"`
}

// MarshalJSON writes the fields among the other members.
func (k NewKey) MarshalJSON() ([]byte, error) { return settings.Marshal(k) }

// UnmarshalJSON is its inverse. Keys that are not new have no secret.
func (k *NewKey) UnmarshalJSON(raw []byte) error { return settings.Unmarshal(raw, k) }

type newKey struct {
	ID   string `json:"id,omitempty" help:"the id of the key"` // generated if omitted
	User string `json:"user" help:"the user who owns the key"`
	Test bool   `json:"test,omitempty" help:"create a key that begins with lg_test_"` // prefix lg_test_
	keyPatch
}

type keyPatch struct {
	Fields settings.Fields[settings.Key]
}

// keyChange is a change of a key, and of its work in progress.
type keyChange struct {
	keyPatch
	// CancelJobs, together with "disabled": true, cancels the key's unfinished jobs and
	// batches.
	CancelJobs bool `json:"cancel_jobs,omitempty" help:"also cancel the unfinished jobs and batches of the key"`
}

type rotation struct {
	// Overlap is how long the old key still works: a duration such as 24h or 7d, at most 90d,
	// by default 24h. "0s" ends it immediately.
	Overlap *string `json:"overlap,omitempty" default:"24h" help:"how long the old key keeps working, at most 90d (0s: revoke it now)"`
	// KeepChildren keeps the child keys that the old key created. By default they end with it.
	KeepChildren bool   `json:"keep_children,omitempty" help:"keep the child keys that the old key created; without it they end with the old key"`
	Reason       string `json:"reason,omitempty"`
}

// rotated is what the audit shows of a rotated key.
type rotated struct {
	tenants.Key
	KeepChildren bool `json:"keep_children"`
}

// MarshalJSON writes the fields among the other members.
func (k rotated) MarshalJSON() ([]byte, error) { return settings.Marshal(k) }

const (
	defaultOverlap = 24 * time.Hour
	maxOverlap     = 90 * 24 * time.Hour
)

type keyHandler struct {
	base
	overrides *overrideHandler
	jobs      *jobHandler
	runs      *runHandler
}

// viewKey shows a key of an org; used holds when keys were last used.
func (h *keyHandler) viewKey(c *call, org *settings.Org, id string, used map[string]time.Time) (Key, error) {
	k, u, inFile, err := h.dir.key(org, id)
	if err != nil {
		return Key{}, err
	}
	v := Key{ID: k.ID, Org: org.ID, User: u.ID, Status: "active", Fields: settings.All(k)}
	switch {
	case k.Disabled, u.Disabled, org.Disabled:
		v.Status = "disabled"
	case !k.Expires.IsZero() && !c.start.Before(k.Expires):
		v.Status = "expired"
	}
	if at, ok := used[k.ID]; ok {
		v.LastUsed = &at
	}
	record := h.dir.records(org.ID).Keys[k.ID]
	v.Source = sourceOf(inFile, record != nil)
	if record != nil {
		v.Created = &record.Created
		v.Updated = &record.Updated
		v.Last4 = record.Last4
		if record.Previous != "" && c.start.Before(record.PreviousUntil) {
			v.OldUntil = &record.PreviousUntil
		}
	}
	return v, nil
}

func (h *keyHandler) listKeys(c *call) (any, error) {
	only := c.r.URL.Query().Get("user")
	o, _, _, err := h.dir.caller(c.r.PathValue("org"), only, "")
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, u := range o.Users {
		for _, k := range u.Keys {
			ids = append(ids, k.ID)
		}
	}
	used, err := h.opts.Tenants.LastUsed(c.r.Context(), o.ID, ids...)
	if err != nil {
		return nil, err
	}
	var out []Key
	for _, id := range ids {
		v, err := h.viewKey(c, o, id, used)
		if err != nil {
			return nil, err
		}
		if only == "" || v.User == only {
			out = append(out, v)
		}
	}
	return listOf(out), nil
}

func (h *keyHandler) getKey(c *call) (any, error) {
	return h.showKey(c, c.r.PathValue("org"), c.r.PathValue("key"))
}

func (h *keyHandler) showKey(c *call, org, id string) (Key, error) {
	o, _, _, err := h.dir.caller(org, "", id)
	if err != nil {
		return Key{}, err
	}
	used, err := h.opts.Tenants.LastUsed(c.r.Context(), org, id)
	if err != nil {
		return Key{}, err
	}
	return h.viewKey(c, o, id, used)
}

// fresh generates a key and its hash under the newest pepper.
func (f *FileSettings) fresh(class keys.Class) (text, hash string) {
	text = keys.New(class)
	return text, keys.Hash(f.pepper(), text)
}

func (f *FileSettings) pepper() keys.Pepper {
	if len(f.Peppers) == 0 {
		return keys.Pepper{}
	}
	return f.Peppers[0]
}

func (h *keyHandler) freshKey(test bool) (text, hash string) {
	file, class := h.opts.File(), keys.Live
	if test {
		class = keys.Test
	}
	return file.fresh(class)
}

func (h *keyHandler) createKey(c *call) (any, error) {
	o, _, err := h.dir.org(c.r.PathValue("org"))
	if err != nil {
		return nil, err
	}
	n := body[newKey](c)
	if _, _, err := h.dir.user(o, n.User); err != nil {
		return nil, err
	}
	text, hash := h.freshKey(n.Test)
	if n.ID == "" {
		n.ID = "key-" + keys.Last4(hash) + keys.Last4(wire.NewCallID()+wire.NewCallID())
	}
	_, _, _, err = h.dir.key(o, n.ID)
	if err := absent("key", n.ID, err); err != nil {
		return nil, err
	}
	record := tenants.Key{
		Fields: n.Fields, User: n.User, Test: n.Test, Hash: hash, Last4: keys.Last4(text),
		Born: newborn(), Stamp: c.newStamp(),
	}
	if err := h.audit.create(c, tenants.Ref{Kind: tenants.KindKey, Org: o.ID, ID: n.ID}, record); err != nil {
		return nil, err
	}
	v, err := h.showKey(c, o.ID, n.ID)
	return created{NewKey{v, text}}, err
}

// newborn returns 65 bits that distinguish users or keys that had the same id.
func newborn() string { return rand.Text()[:13] }

// bare strips a key's record for the audit.
func bare(k tenants.Key) tenants.Key {
	k.Hash, k.Previous, k.Lineage, k.PreviousLineage = "", "", "", ""
	return k
}

func (h *keyHandler) updateKey(c *call) (any, error) {
	org, id := c.r.PathValue("org"), c.r.PathValue("key")
	_, user, _, err := h.dir.caller(org, "", id)
	if err != nil {
		return nil, err
	}
	var patch keyChange
	ref := tenants.Ref{Kind: tenants.KindKey, Org: org, ID: id}
	if _, err := change(c, h.audit, c.entry(org, id), ref, func(r *tenants.Key) error {
		patch.Fields = r.Fields
		if err := c.merge(&patch); err != nil {
			return err
		}
		if patch.CancelJobs && !patch.Fields.Is("disabled") {
			return invalid("cancel_jobs",
				"cancel_jobs needs \"disabled\": true, because an active key could submit new jobs")
		}
		r.Fields, r.User = patch.Fields, user.ID
		return nil
	}); err != nil {
		return nil, err
	}
	if patch.CancelJobs {
		if err := h.jobs.cancelOf(c, org, user.ID, id); err != nil {
			return nil, err
		}
	}
	return h.showKey(c, org, id)
}

func (h *keyHandler) rotateKey(c *call) (any, error) {
	org, id := c.r.PathValue("org"), c.r.PathValue("key")
	how, overlap := body[rotation](c), defaultOverlap
	if how.Overlap != nil {
		d, err := settings.ParseDuration(*how.Overlap)
		if err != nil || d > maxOverlap {
			return nil, invalid("overlap", "overlap must be a duration such as 0s, 24h or 7d, at most 90d")
		}
		overlap = d
	}
	_, user, now, err := h.dir.caller(org, "", id)
	if err != nil {
		return nil, err
	}
	owner, err := h.runs.caller(org, id)
	if err != nil {
		return nil, err
	}
	var record tenants.Key
	ref := tenants.Ref{Kind: tenants.KindKey, Org: org, ID: id}
	old, err := h.opts.Tenants.Get(c.r.Context(), ref, &record)
	if err != nil {
		return nil, err
	}
	before := bare(record)
	text, hash := h.freshKey(record.Test)
	record.User, record.Hash, record.Last4 = user.ID, hash, keys.Last4(text)
	record.Previous, record.PreviousUntil = now.Hash, c.start.UTC().Add(overlap)
	record.Lineage, record.PreviousLineage = "", record.Lineage
	if how.KeepChildren {
		record.Lineage = owner.Lineage
	}
	if overlap == 0 {
		record.Previous, record.PreviousUntil, record.PreviousLineage = "", time.Time{}, ""
	}
	record.Touch(c.start.UTC())
	if err := h.audit.commit(c, c.entry(org, id), orNil(old, before), rotated{bare(record), how.KeepChildren},
		tenants.Change{Ref: ref, Old: old, New: record}); err != nil {
		return nil, err
	}
	if overlap == 0 && !how.KeepChildren {
		h.runs.endChildren(c, owner)
	}
	v, err := h.showKey(c, org, id)
	return NewKey{v, text}, err
}

func (h *keyHandler) deleteKey(c *call) (any, error) {
	org, id := c.r.PathValue("org"), c.r.PathValue("key")
	o, _, err := h.dir.org(org)
	if err != nil {
		return nil, err
	}
	_, _, inFile, err := h.dir.key(o, id)
	if err != nil {
		return nil, err
	}
	if h.dir.records(org).Keys[id] == nil {
		return nil, declared("key", id)
	}
	refs := []tenants.Ref{{Kind: tenants.KindKey, Org: org, ID: id}}
	if !inFile {
		refs = append(refs, h.overrides.boundTo(org, budget.Key, id)...)
	}
	owner, err := h.runs.caller(org, id)
	if err != nil {
		return nil, err
	}
	done, err := h.audit.remove(c, c.entry(org, id), refs...)
	if err == nil && !inFile {
		h.runs.endChildren(c, owner)
	}
	return done, err
}
