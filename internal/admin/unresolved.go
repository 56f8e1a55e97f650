package admin

import (
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// Unresolved is a charge that came too late to be booked, and what the ledger has of its call.
type Unresolved struct {
	budget.Entry
	Booked *Booked `json:"booked"`
}

// Booked is the last entry of a call in the ledger.
type Booked struct {
	Kind  string `json:"kind"`
	Total int64  `json:"total_nano_usd"`
}

// resolution is what becomes of such a charge.
type resolution struct {
	// Action is charge or drop.
	Action string `json:"action"`
	// Attempt is which one, when several of the call are listed.
	Attempt *int `json:"attempt,omitempty"`
	// AlthoughBooked charges it although the ledger has the call already.
	AlthoughBooked bool `json:"although_booked,omitempty"`
	// Limits changes the present use of the cost limits as well.
	Limits bool   `json:"limits,omitempty"`
	Reason string `json:"reason"`
	By     string `json:"by,omitempty"` // who does it; on this machine only
}

// reconcileRead is more than the list may hold.
const reconcileRead = 200_000

func (c *call) listUnresolved() (any, error) {
	org := c.r.PathValue("org")
	if _, _, err := c.org(org); err != nil {
		return nil, err
	}
	list, err := c.unresolved(org)
	return listOf(list), err
}

// unresolved reads an org's list, and its ledger from the oldest call on.
func (c *call) unresolved(org string) ([]Unresolved, error) {
	list, err := c.o.Budget.Ledger.Reconcile(c.r.Context(), org, reconcileRead)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	type attempt struct {
		id string
		n  int
	}
	out := make([]Unresolved, len(list))
	at, first := map[attempt][]int{}, c.start
	for i, e := range list {
		out[i].Entry = e
		a := attempt{e.ID, e.Attempt}
		at[a] = append(at[a], i)
		if t, ok := wire.CallTime(e.ID); ok && t.Before(first) {
			first = t
		}
	}
	err = c.o.Budget.Ledger.Entries(c.r.Context(), org, first.Add(-clockSkew), time.Time{}, func(e budget.Entry) error {
		for _, i := range at[attempt{e.ID, e.Attempt}] {
			out[i].Booked = &Booked{e.Kind, int64(e.Total)}
		}
		return nil
	})
	return out, err
}

// resolve books a charge of the list, or drops it.
func (c *call) resolve() (any, error) {
	org, id := c.r.PathValue("org"), c.r.PathValue("call")
	var n resolution
	if err := c.read(&n); err != nil {
		return nil, err
	}
	if n.Action != "charge" && n.Action != "drop" {
		return nil, wire.BadRequest("action", "invalid_value", "action must be charge or drop")
	}
	if _, _, err := c.org(org); err != nil {
		return nil, err
	}
	by, err := c.by(n.By)
	if err != nil {
		return nil, err
	}
	r := budget.Resolution{Charge: n.Action == "charge", By: by}
	if r.Reason, err = c.needed(n.Reason, "A correction"); err != nil {
		return nil, err
	}
	list, err := c.unresolved(org)
	if err != nil {
		return nil, err
	}
	u, err := n.pick(list, org, id)
	if err != nil {
		return nil, err
	}
	if r.Charge && u.Booked != nil && !n.AlthoughBooked {
		return nil, conflict("booked_already", fmt.Sprintf("The ledger has this call already (%s, %s). Drop the charge, or set although_booked", u.Booked.Kind, pricing.Nano(u.Booked.Total).Short()))
	}
	if r.Charge && n.Limits {
		if r.Limits, err = c.o.LimitsOf(u.Call); err != nil {
			return nil, err
		}
	}
	if _, err := c.o.Budget.Ledger.Resolve(c.r.Context(), u.Entry, r); err != nil {
		return nil, corrected(err)
	}
	return Corrected{ID: u.ID, Org: org, User: u.User, Amount: int64(u.Cost), By: by, At: c.start.UTC(), Limits: costNames(r.Limits)}, nil
}

// pick is the charge of the list that is meant.
func (n *resolution) pick(list []Unresolved, org, id string) (*Unresolved, error) {
	var found []*Unresolved
	for i := range list {
		if u := &list[i]; u.ID == id && (n.Attempt == nil || u.Attempt == *n.Attempt) {
			found = append(found, u)
		}
	}
	switch {
	case len(found) == 0:
		return nil, wire.NotFound("call", "charge_not_found", "No such charge is on the list of org %s", org)
	case len(found) > 1 && n.Attempt == nil && found[0].Attempt != found[1].Attempt:
		return nil, wire.BadRequest("attempt", "missing_field", "%d attempts of the call are on the list. Name one", len(found))
	}
	return found[0], nil
}

// Cap is a spend cap as it stands. Amounts are in its unit.
type Cap struct {
	Provider  string   `json:"provider"` // empty: of the deployment
	Name      string   `json:"name"`
	Metric    string   `json:"metric"`
	Unit      string   `json:"unit"` // nano_usd, tokens or requests
	Mode      string   `json:"mode"`
	Used      int64    `json:"used"`
	Held      int64    `json:"held"`
	Amount    int64    `json:"amount"`
	Remaining int64    `json:"remaining"`
	Reset     *float64 `json:"reset_seconds"` // until nothing is used, if no more is; null: never
}

func (c *call) listCaps() (any, error) {
	var out []Cap
	for _, one := range c.o.Policy().Caps {
		statuses, err := c.o.Budget.PeekCap(c.r.Context(), one)
		if err != nil {
			return nil, err
		}
		for _, s := range statuses {
			v := Cap{
				Provider: one.Provider, Name: s.LimitID, Metric: string(s.Metric), Unit: units[s.Metric], Mode: string(s.Mode),
				Used: s.Used, Held: s.Held, Amount: s.Amount, Remaining: s.Remaining,
			}
			if reset := s.Reset.Seconds(); s.Reset < budget.Endless {
				v.Reset = &reset
			}
			out = append(out, v)
		}
	}
	return listOf(out), nil
}
