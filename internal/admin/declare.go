package admin

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
)

// Declaration is an org as declared in a file: its settings, users, keys and limits, under
// their configuration names. Omitted fields are left unspecified.
type Declaration struct {
	ID string `json:"id"`
	tenants.OrgSpec
	Limits []DeclaredLimit `json:"limits,omitempty"`
	Groups []DeclaredGroup `json:"groups,omitempty"`
	Plans  []DeclaredGroup `json:"plans,omitempty"`
	Users  []DeclaredUser  `json:"users,omitempty"`
}

// DeclaredGroup is a group or a plan of a Declaration, with its limits.
type DeclaredGroup struct {
	ID     string          `json:"id"`
	Limits []DeclaredLimit `json:"limits,omitempty"`
}

// DeclaredUser is a user of a Declaration. Its limits apply to this user only.
type DeclaredUser struct {
	ID string `json:"id"`
	tenants.UserSpec
	Limits []DeclaredLimit `json:"limits,omitempty"`
	Keys   []DeclaredKey   `json:"keys,omitempty"`
}

// DeclaredKey is an API key of a Declaration. A key without a hash is generated if it does not
// exist.
type DeclaredKey struct {
	ID   string  `json:"id"`
	Hash *string `json:"hash,omitempty"`
	tenants.KeySpec
}

// DeclaredLimit is a limit of a Declaration.
type DeclaredLimit struct {
	Name string `json:"name"`
	tenants.LimitSpec
}

// declarationHandler shows orgs as declarations, and applies declarations.
type declarationHandler struct {
	opts    *Options
	dir     *directory
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
	d, usual := Declaration{ID: o.ID}, h.opts.NewOrg(o.ID)
	d.Name, d.Disabled = unless(o.Name, usual.Name), unless(o.Disabled, usual.Disabled)
	d.Models, d.Providers = texts(o.Models), texts(o.Providers)
	d.DefaultOutputLimit, d.Hold = unless(o.DefaultOutputLimit, usual.DefaultOutputLimit), unless(o.Hold, usual.Hold)
	d.OverLimit, d.MaxWait = unless(o.OverLimit, usual.OverLimit), span(o.MaxWait)
	d.OnDisconnect, d.OnStoreFailure = unless(o.OnDisconnect, usual.OnDisconnect),
		unless(o.OnStoreFailure, usual.OnStoreFailure)
	d.AllowBuiltinTools, d.RetryStartedJobs = unless(o.AllowBuiltinTools, usual.AllowBuiltinTools),
		unless(o.RetryStartedJobs, usual.RetryStartedJobs)
	d.Labels, d.Cache = valuesOf(o.Labels), declaredCache(o.Cache, usual.Cache)
	d.Runs = declaredRuns(o.Runs, usual.Runs)
	d.Weight, d.Limits = unless(o.Weight, usual.Weight), h.declaredLimits("", o.Limits)
	d.Spread = unless(o.Spread, usual.Spread)
	d.MaxPriority, d.Plan = unless(o.MaxPriority, usual.MaxPriority), unless(o.Plan, usual.Plan)
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
	d := DeclaredUser{ID: u.ID, Limits: h.declaredLimits(u.ID, u.Limits)}
	d.Name = unless(u.Name, usual.Name)
	d.Disabled = unless(u.Disabled, usual.Disabled)
	d.Weight, d.Labels = unless(u.Weight, usual.Weight), valuesOf(u.Labels)
	d.Priority = unless(u.Priority, usual.Priority)
	d.Group, d.Plan = unless(u.Group, usual.Group), unless(u.Plan, usual.Plan)
	for i := range u.Keys {
		d.Keys = append(d.Keys, declaredKey(&u.Keys[i]))
	}
	slices.SortFunc(d.Keys, func(a, b DeclaredKey) int { return strings.Compare(a.ID, b.ID) })
	return d
}

// valuesOf returns the values of labels; nil for none.
func valuesOf(values map[string]string) *map[string]string {
	if len(values) == 0 {
		return nil
	}
	return &values
}

// declaredCache returns the settings of a cache that differ from the default; nil if it is off.
func declaredCache(o, usual settings.Cache) *tenants.Cache {
	all := cacheOf(o)
	if all == nil {
		return nil
	}
	if o.Cost == usual.Cost {
		all.Cost = nil
	}
	if o.MaxBytes == usual.MaxBytes {
		all.MaxBytes = nil
	}
	all.Always = unless(o.Always, usual.Always)
	return all
}

// declaredRuns returns the bounds of runs that differ from the default; nil for none.
func declaredRuns(o, usual settings.Runs) *tenants.Runs {
	if o == usual {
		return nil
	}
	all := runsOf(o)
	all.MaxDepth, all.MaxOpen = unless(o.MaxDepth, usual.MaxDepth), unless(o.MaxOpen, usual.MaxOpen)
	if o.MaxAmount == usual.MaxAmount {
		all.MaxAmount = nil
	}
	if o.MaxLife == usual.MaxLife {
		all.MaxLife = nil
	}
	return &all
}

func declaredKey(k *settings.Key) DeclaredKey {
	d := DeclaredKey{ID: k.ID, Hash: unless(k.Hash, "")}
	d.Name = unless(k.Name, "")
	d.Disabled = unless(k.Disabled, false)
	d.Models = texts(k.Models)
	d.Scopes = texts(k.Scopes)
	d.Concurrency, d.Labels = unless(k.Concurrency, 0), valuesOf(k.Labels)
	d.Priority, d.Plan = unless(k.Priority, ""), unless(k.Plan, "")
	if !k.Expires.IsZero() {
		d.Expires = &k.Expires
	}
	var networks []string
	for _, n := range k.Networks {
		networks = append(networks, n.String())
	}
	d.Networks = texts(networks)
	return d
}

// declaredLimits returns the limits of an org, or of a user, group or plan (settings.Owner). A user's
// own limits omit subject and only.
func (h *declarationHandler) declaredLimits(owner string, list []settings.Limit) []DeclaredLimit {
	var out []DeclaredLimit
	for i := range list {
		l := &list[i]
		usual := h.opts.NewLimit(owner, l.Name)
		d := DeclaredLimit{Name: l.Name}
		if kind, _ := settings.SplitOwner(owner); kind == "org" || kind == "group" {
			d.Subject, d.Only = unless(l.Subject, usual.Subject), unless(l.Only, usual.Only)
		}
		d.Models, d.Endpoints = texts(l.Models), texts(l.Endpoints)
		d.Metric, d.Mode = unless(l.Metric, usual.Metric), unless(l.Mode, usual.Mode)
		d.Amount, d.Window = unless(amountText(l.Amount), ""), span(l.Window)
		d.Exact = unless(l.Exact, false)
		d.Fixed = unless(l.Fixed, false)
		d.Calendar = unless(l.Calendar, "")
		d.Starts = unless(l.Starts, "")
		d.TZ = unless(l.TZ, "")
		if l.Bucket.Capacity.N > 0 {
			d.Bucket = &tenants.Bucket{Capacity: unless(amountText(l.Bucket.Capacity), "")}
			if l.Bucket.Refill.N > 0 {
				d.Bucket.Refill = unless(amountText(l.Bucket.Refill.Quantity)+"/"+settings.DurationText(l.Bucket.Refill.Per), "")
			}
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b DeclaredLimit) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// unless returns a pointer to v, or nil if v is the default.
func unless[T comparable](v, usual T) *T {
	if v == usual {
		return nil
	}
	return &v
}

func texts(list []string) *[]string {
	if len(list) == 0 {
		return nil
	}
	return &list
}

func span(d time.Duration) *string { return unless(settings.DurationText(d), settings.DurationText(0)) }

// amountText formats a quantity as in the file.
func amountText(q settings.Quantity) string {
	switch {
	case q.N == 0:
		return ""
	case q.Money:
		return strings.TrimSuffix(strings.TrimRight(pricing.Nano(q.N).String(), "0"), ".")
	}
	return strconv.FormatInt(q.N, 10)
}

// valueText formats a field of a declaration; it is empty for an unspecified field.
func valueText(field any) string {
	v := reflect.ValueOf(field)
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return ""
		}
		v = v.Elem()
	}
	switch one := v.Interface().(type) {
	case []string:
		return strings.Join(one, ", ")
	case time.Time:
		return one.UTC().Format(time.RFC3339)
	case tenants.Bucket:
		text := valueText(one.Capacity)
		if one.Refill != nil {
			text += " + " + *one.Refill
		}
		return text
	case map[string]string:
		return valuesText(one)
	case tenants.Cache:
		return partsText([]part{
			{"max_age", one.MaxAge}, {"cost", one.Cost}, {"always", one.Always}, {"max_bytes", one.MaxBytes},
		})
	case tenants.Runs:
		return partsText([]part{
			{"max_depth", one.MaxDepth},
			{"max_open", one.MaxOpen},
			{"max_amount", one.MaxAmount},
			{"max_life", one.MaxLife},
		})
	default:
		return fmt.Sprint(one)
	}
}

// part is a member of a value that has several.
type part struct {
	name  string
	value any
}

func partsText(parts []part) string {
	var out []string
	for _, p := range parts {
		if text := valueText(p.value); text != "" {
			out = append(out, p.name+": "+text)
		}
	}
	return strings.Join(out, ", ")
}

// valuesText formats the values of labels.
func valuesText(values map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out = append(out, name+"="+values[name])
	}
	return strings.Join(out, ", ")
}

// getRecords returns the runtime records of an org. Keys have a placeholder instead of their
// hash, so that clients can still validate limits of single keys.
func (h *declarationHandler) getRecords(c *call) (any, error) {
	org := c.r.PathValue("org")
	if _, _, err := h.dir.org(org); err != nil && !h.dir.isAll(org) {
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
