package admin

import (
	"net/netip"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// Limit is a limit as in effect. Its usage is that of the org, or of the requested user and
// key.
type Limit struct {
	Name    string `json:"name" col:"limit"`
	Subject string `json:"subject" col:"subject;=whose"`
	Only    string `json:"only"`
	Metric  string `json:"metric"`
	Unit    string `json:"unit"` // of the amounts: nano_usd, tokens, requests or calls
	Mode    string `json:"mode" col:"mode"`
	// Sources lists where the limit is defined, each overriding the previous ones: defaults (of
	// the file), all (set for all orgs), file (for the org or the user) and redis (set for the
	// org or the user). A limit of a user's group or plan has only that, such as "plan pro".
	Sources   []string `json:"sources" col:"source;plus"`
	Shape     string   `json:"shape" col:"shape"` // such as "window 1d"
	Models    []string `json:"models"`
	Endpoints []string `json:"endpoints"`
	Amount    int64    `json:"amount" col:"amount;unit"` // current, with overrides
	Base      int64    `json:"base_amount"`              // without overrides
	// Used, Held, Remaining and Reset are null if the limit counts individual users, keys or
	// addresses and none was requested. Reset is also null if the limit never empties.
	Used      *int64   `json:"used" col:"used;unit;-"`
	Held      *int64   `json:"held" col:"held;unit;-"`
	Remaining *int64   `json:"remaining" col:"remaining;unit;-"`
	Reset     *float64 `json:"reset_seconds" col:"resets in;=reset"`
	// PerHour is the recent rate of use, and UsedUp when the limit is used up if that continues: 0 if
	// it is now, null if not before it resets, or if it regains its amount faster.
	PerHour   *int64     `json:"rate_per_hour"`
	UsedUp    *float64   `json:"used_up_seconds" col:"runs out in;about"`
	Until     *time.Time `json:"override_until"` // when the first override in Amount expires
	Closed    *time.Time `json:"closed_until"`   // when a limit closed by data loss in Redis opens again; null: open
	Overrides []Override `json:"overrides"`
	// ShadowSince is since when a limit in shadow mode has had this shape; null if it is not in
	// shadow mode, or from before this was recorded.
	ShadowSince *time.Time `json:"shadow_since"`
}

type limitPatch struct {
	Fields settings.Fields[settings.Limit]
}

type limitReset struct {
	User string `json:"user,omitempty" help:"the user whose usage is reset, for limits with a counter per user"`
	Key  string `json:"key,omitempty" help:"the key whose usage is reset, for limits with a counter per key"`
	IP   string `json:"ip,omitempty" help:"client address, for limits per address"`
	// Group names the counter of a limit that the users of a group share.
	Group string `json:"group,omitempty" help:"the group whose shared usage is reset"`
	// Labels name the counter of a limit by labels.
	Labels map[string]string `json:"labels,omitempty" flag:"label" help:"value of a label, as name=value, for limits per label (repeat for several)"`
	Reason string            `json:"reason"`
}

type limitsReopen struct {
	Reason string `json:"reason"`
}

var units = map[budget.Metric]string{
	budget.Cost: "nano_usd", budget.Tokens: "tokens", budget.Requests: "requests",
	budget.Concurrency: "calls",
}

type limitHandler struct{ base }

// limitsOf returns the limits of an org, or those that apply to a user and a key. It sets the user whose key it is.
func (h *limitHandler) limitsOf(who *ledger.Call) ([]budget.Limit, error) {
	if h.dir.isAll(who.Org) {
		return h.defaultLimits(who.User, who.Key)
	}
	_, owner, _, err := h.dir.caller(who.Org, who.User, who.Key)
	if err != nil {
		return nil, err
	}
	if owner != nil {
		who.User = owner.ID
	}
	in := h.opts.Policy().Orgs[who.Org]
	if in == nil {
		return nil, wire.NotFound("org", "org_not_found", "There is no org %.80q", who.Org)
	}
	return in.LimitsFor(who.User, who.Key), nil
}

func (h *limitHandler) listLimits(c *call) (any, error) {
	org, q := c.r.PathValue("org"), c.r.URL.Query()
	who := ledger.Call{Org: org, User: q.Get("user"), Key: q.Get("key")}
	owner, err := ownerOf(c)
	if err != nil {
		return nil, err
	}
	limits, err := h.limitsOf(&who)
	if kind, _ := settings.SplitOwner(owner); kind == "group" || kind == "plan" {
		limits, err = h.limitsOfOwner(org, owner)
	}
	if err != nil {
		return nil, err
	}
	who.IP, err = address(q.Get("ip"))
	if err != nil {
		return nil, err
	}
	who.Labels, err = labelsOf(q["label"])
	if err != nil {
		return nil, err
	}
	out, err := h.viewLimits(c, org, limits, who)
	return listOf(out), err
}

func address(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return "", invalid("ip", "ip: %.80q is not an IP address", text)
	}
	return ip.Unmap().String(), nil
}

// viewLimits shows limits with their usage by the subjects of who.
func (h *limitHandler) viewLimits(c *call, org string, limits []budget.Limit, who ledger.Call) ([]Limit, error) {
	var known []budget.Limit
	for _, l := range limits {
		if l.Mode != budget.Off && !h.dir.isAll(org) && l.Tells(who) {
			known = append(known, l)
		}
	}
	statuses, err := h.opts.Budget.Peek(c.r.Context(), known, who)
	if err != nil {
		return nil, err
	}
	var burns *budget.Burns
	if len(statuses) > 0 {
		burns, err = h.opts.Budget.Burns(c.r.Context(), org, c.start)
		if err != nil {
			return nil, err
		}
	}
	since, err := h.shadowSince(c, org, limits)
	if err != nil {
		return nil, err
	}
	overrides, sources := h.dir.overrides(c, org), h.dir.sources(org, who.User)
	var out []Limit
	for i := range limits {
		l := &limits[i]
		amount := l.AmountFor(who, c.start)
		v := Limit{
			Name: l.ID, Subject: string(l.Subject), Only: l.Only, Metric: string(l.Metric), Unit: units[l.Metric],
			Mode: string(l.Mode), Shape: shapeOf(l.Shape),
			Models: list(l.Models), Endpoints: list(l.Endpoints), Amount: amount, Base: l.Shape.Amount, Overrides: []Override{},
			Sources: sources(l.ID),
		}
		if at, noted := since[l.Is()]; noted && l.Mode == budget.Shadow {
			v.ShadowSince = &at
		}
		if at := slices.IndexFunc(statuses, func(s budget.Status) bool { return s.LimitID == l.ID }); at >= 0 {
			s := statuses[at]
			v.Amount = s.Amount
			v.Used = &s.Used
			v.Held = &s.Held
			v.Remaining = &s.Remaining
			if reset := s.Reset.Seconds(); s.Reset < budget.Endless {
				v.Reset = &reset
			}
			v.forecast(burns.Forecast(l, &s, who))
			if !s.RaisedUntil.IsZero() {
				v.Until = &s.RaisedUntil
			}
			if !s.ClosedUntil.IsZero() {
				v.Closed = &s.ClosedUntil
			}
		}
		for _, o := range overrides {
			if o.Limit == l.ID && o.Active {
				v.Overrides = append(v.Overrides, o)
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// shadowSince returns since when limits are in shadow mode, if any are.
func (h *limitHandler) shadowSince(c *call, org string, limits []budget.Limit) (map[string]time.Time, error) {
	if !slices.ContainsFunc(limits, func(l budget.Limit) bool { return l.Mode == budget.Shadow }) {
		return nil, nil
	}
	return h.opts.Budget.ShadowSince(c.r.Context(), org)
}

// limit returns a limit of the org, a user or a key by name.
func (h *limitHandler) limit(org, user, key, name string) (*budget.Limit, error) {
	limits, err := h.limitsOf(&ledger.Call{Org: org, User: user, Key: key})
	if err != nil {
		return nil, err
	}
	return limitNamed(limits, name)
}

func limitNamed(limits []budget.Limit, name string) (*budget.Limit, error) {
	var names []string
	for i := range limits {
		if limits[i].ID == name {
			return &limits[i], nil
		}
		names = append(names, limits[i].ID)
	}
	return nil, wire.NotFound("limit", "limit_not_found", "There is no limit %.80q here%s", name,
		settings.Hint(name, names))
}

func (h *limitHandler) setLimit(c *call) (any, error) {
	org := c.r.PathValue("org")
	name := c.r.PathValue("limit")
	if err := newID("limit", name); err != nil {
		return nil, err
	}
	owner, err := ownerOf(c)
	if err != nil {
		return nil, err
	}
	if err := h.mayOwn(org, owner); err != nil {
		return nil, err
	}
	ref := tenants.Ref{Kind: tenants.KindLimit, Org: h.dir.recordOrg(org), ID: tenants.LimitID(owner, name)}
	if _, err := change(c, h.audit, c.entry(org, ref.ID), ref, func(r *tenants.Limit) error {
		return patch(c, &r.Fields)
	}); err != nil {
		return nil, err
	}
	return h.showLimit(c, org, owner, name)
}

func (h *limitHandler) showLimit(c *call, org, owner, name string) (any, error) {
	limits, err := h.limitsOfOwner(org, owner)
	if err != nil {
		return nil, err
	}
	l, err := limitNamed(limits, name)
	if err != nil {
		return nil, err
	}
	who := ledger.Call{Org: org}
	if kind, id := settings.SplitOwner(owner); kind == "user" {
		who.User = id
	}
	views, err := h.viewLimits(c, org, []budget.Limit{*l}, who)
	if err != nil {
		return nil, err
	}
	return views[0], nil
}

func (h *limitHandler) unsetLimit(c *call) (any, error) {
	org := c.r.PathValue("org")
	name := c.r.PathValue("limit")
	owner, err := ownerOf(c)
	if err != nil {
		return nil, err
	}
	id := tenants.LimitID(owner, name)
	if err := h.dir.known(org); err != nil && !h.dir.isAll(org) {
		return nil, err
	}
	ref := tenants.Ref{Kind: tenants.KindLimit, Org: h.dir.recordOrg(org), ID: id}
	if h.dir.records(ref.Org).Limits[id] == nil {
		return nil, wire.NotFound("limit", "limit_not_set", "The limit %.80q has no runtime changes", name)
	}
	return h.audit.remove(c, c.entry(org, id), ref)
}

func (h *limitHandler) defaultLimits(user, key string) ([]budget.Limit, error) {
	if user != "" || key != "" {
		return nil, invalid("org", "A user or key belongs to one org. Name that org instead of %s", everyOrg)
	}
	return h.opts.Defaults()
}

// forecast sets the rate of a limit, and when it is used up.
func (v *Limit) forecast(f budget.Forecast) {
	rate := f.PerHour()
	v.PerHour = &rate
	if f.Known {
		seconds := f.UsedUp.Truncate(time.Second).Seconds()
		v.UsedUp = &seconds
	}
}

// shapeOf describes how capacity returns.
func shapeOf(s budget.Shape) string {
	switch s.Kind {
	case budget.Window:
		return "window " + figures.Lasting(s.Window)
	case budget.ExactWindow:
		return "exact window " + figures.Lasting(s.Window)
	case budget.Fixed:
		return "fixed window " + figures.Lasting(s.Window)
	case budget.Calendar:
		period := s.Calendar
		if s.Starts != "" {
			period += " from " + s.Starts
		}
		zone := "UTC"
		if s.Location != nil {
			zone = s.Location.String()
		}
		return "calendar " + period + " " + zone
	case budget.Bucket:
		if s.Refill == 0 {
			return "bucket, never refilled"
		}
		return "bucket, refilled in " +
			figures.Lasting(budget.Lasting(s.Per.Seconds()*float64(s.Amount)/float64(s.Refill)))
	case budget.Once:
		return "once"
	default:
		return "open calls"
	}
}
