package admin

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// FiredBrake is a brake that fired for a subject, or that was released for it.
type FiredBrake struct {
	Org     string `json:"org" col:"org"`
	Brake   string `json:"brake" col:"brake"`
	Subject string `json:"subject" col:"subject"` // run=abc, or user=carol, run=abc
	// Action is stop, ask, slow or shadow, or released: until Until the brake does not fire again.
	Action string     `json:"action" col:"action"`
	Since  time.Time  `json:"since" col:"age;age"`
	Until  *time.Time `json:"until" col:"until;minute;until released"` // null: until it is released
	By     string     `json:"by" col:"by"`                             // the administrator who stopped or released it
	Reason string     `json:"reason" col:"reason"`
	Why    string     `json:"why" col:"why"` // the evidence in words
	// Evidence is what the brake saw; null after a stop by hand.
	Evidence *budget.BrakeEvidence `json:"evidence"`
}

// brakeRelease is also the order to stop a subject by hand.
type brakeRelease struct {
	Subject string `json:"subject" help:"whose calls: run=abc, or user=carol,run=abc"` // run=abc, or user=carol, run=abc
	For     string `json:"for,omitempty" help:"how long, such as 1h"`                  // such as 1h
	Reason  string `json:"reason,omitempty"`
}

type brakeHandler struct{ base }

const released = "released"

func viewBrake(org string, b *tenants.Brake) FiredBrake {
	out := FiredBrake{
		Org: org, Brake: b.Brake, Subject: guard.BrakeSubject(budget.Subject(b.Subject), b.Value),
		Action: cmp.Or(b.Action, released), Since: b.Updated, By: b.By, Reason: b.Reason,
	}
	if b.Until.Sub(b.Updated) < settings.MaxBrakeLife {
		out.Until = &b.Until
	}
	if seen, err := budget.ParseBrakeEvidence(b.Evidence); err == nil {
		out.Evidence, out.Why = &seen, seen.Text(true)
	}
	return out
}

// FiredBrakes lists the brakes of an org that fired or were released and still count, those that refuse
// calls first, newest first.
func FiredBrakes(s *tenants.Snapshot, org string, now time.Time) []FiredBrake {
	var out []FiredBrake
	for _, b := range s.Brakes[org] {
		if b.Counts(now) {
			out = append(out, viewBrake(org, b))
		}
	}
	refuses := func(b FiredBrake) int {
		if budget.Action(b.Action).Refuses() {
			return 0
		}
		return 1
	}
	slices.SortFunc(out, func(a, b FiredBrake) int {
		return cmp.Or(refuses(a)-refuses(b), b.Since.Compare(a.Since), strings.Compare(a.Brake, b.Brake),
			strings.Compare(a.Subject, b.Subject))
	})
	return out
}

func (h *brakeHandler) listBrakes(c *call) (any, error) {
	wants, err := h.dir.wants(c)
	if err != nil {
		return nil, err
	}
	snap := h.opts.Tenants.Snapshot()
	var out []FiredBrake
	for _, org := range slices.Sorted(maps.Keys(snap.Brakes)) {
		if wants(org) {
			out = append(out, FiredBrakes(snap, org, c.start)...)
		}
	}
	return listOf(out), nil
}

// parts splits "user=carol, run=abc" into names and values.
func (o *brakeRelease) parts() (map[string]string, error) {
	out := map[string]string{}
	for one := range strings.SplitSeq(o.Subject, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(one), "=")
		if !ok || name == "" || value == "" || out[name] != "" {
			return nil, invalid("subject",
				"subject must be the name and the value of what the brake counts by, such as run=abc or user=carol,run=abc")
		}
		var err error
		if name == string(budget.IP) {
			value, err = address(value)
		}
		if err != nil {
			return nil, err
		}
		out[name] = value
	}
	return out, nil
}

// value returns the id of the subject for a brake that counts by the given names; false if the order names
// others.
func (o *brakeRelease) value(by budget.Subject, parts map[string]string) (string, bool) {
	names := by.Parts()
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = parts[name]
	}
	return strings.Join(values, ","), len(names) == len(parts) && !slices.Contains(values, "")
}

// life returns how long an order lasts.
func (o *brakeRelease) life(otherwise time.Duration) (time.Duration, error) {
	if o.For == "" {
		return otherwise, nil
	}
	d, err := settings.ParseDuration(o.For)
	if err == nil && (d < time.Second || d > settings.MaxBrakeLife) {
		err = errors.New("must be from 1s to 30d")
	}
	if err != nil {
		return 0, invalid("for", "for: %v", err)
	}
	return d, nil
}

// configured returns a brake of an org as configured; nil if there is none of this name.
func (h *brakeHandler) configured(org, name string) *budget.Brake {
	o := h.opts.Policy().Orgs[org]
	if o == nil {
		return nil
	}
	if i := slices.IndexFunc(o.Brakes, func(b *budget.Brake) bool { return b.ID == name }); i >= 0 {
		return o.Brakes[i]
	}
	return nil
}

// release lets the calls of a subject run again, and keeps the brake from firing for it for a while: by
// default for one window of the brake, after which everything that it saw has left its counters.
func (h *brakeHandler) release(c *call) (any, error) {
	order, org, name := body[brakeRelease](c), c.r.PathValue("org"), c.r.PathValue("brake")
	parts, err := order.parts()
	if err != nil {
		return nil, err
	}
	var fired *tenants.Brake
	for _, b := range h.opts.Tenants.Snapshot().Brakes[org] {
		if value, ok := order.value(budget.Subject(b.Subject), parts); ok && b.Brake == name && b.Value == value &&
			b.Fired(c.start) {
			fired = b
		}
	}
	if fired == nil {
		return nil, wire.NotFound("subject", "brake_not_fired",
			"The brake %.64q of org %.64q has not fired for %.200q. GET /brakes lists those that have", name, org, order.Subject)
	}
	window := time.Minute // the brake is not configured any more
	if b := h.configured(org, name); b != nil {
		window = b.Rule.Window
	}
	life, err := order.life(window)
	if err != nil {
		return nil, err
	}
	next := *fired
	next.Action, next.Until = "", c.start.UTC().Add(life)
	return h.set(c, org, next)
}

// stop makes a configured brake stop a subject, as if it had fired.
func (h *brakeHandler) stop(c *call) (any, error) {
	order, org, name := body[brakeRelease](c), c.r.PathValue("org"), c.r.PathValue("brake")
	parts, err := order.parts()
	if err != nil {
		return nil, err
	}
	b := h.configured(org, name)
	if b == nil {
		return nil, wire.NotFound("brake", "brake_not_found", "Org %.64q has no brake %.64q", org, name)
	}
	subject := b.Subject
	value, ok := order.value(subject, parts)
	if !ok && b.By != "" { // without the user, it stops all users
		subject = b.By
		value, ok = order.value(subject, parts)
	}
	if !ok {
		return nil, invalid("subject", "The brake %s counts by %s", name, b.Subject)
	}
	life, err := order.life(settings.MaxBrakeLife)
	if err != nil {
		return nil, err
	}
	return h.set(c, org, tenants.Brake{
		Brake: name, Subject: string(subject), Value: value, Action: string(budget.BrakeStop),
		Until: c.start.UTC().Add(life),
	})
}

// set stores what an administrator has decided about a subject.
func (h *brakeHandler) set(c *call, org string, next tenants.Brake) (any, error) {
	ref := tenants.BrakeRef(org, next.Brake, next.Value)
	record, err := change(c, h.audit, c.entry(org, next.Target()), ref, func(r *tenants.Brake) error {
		next.Stamp, next.By, next.Reason = r.Stamp, c.actor.id, c.why
		*r = next
		return nil
	})
	return viewBrake(org, &record), err
}
