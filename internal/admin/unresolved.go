package admin

import (
	"errors"
	"fmt"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/wire"
)

// resolution is a request to resolve such a charge.
type resolution struct {
	// Action is charge or drop.
	Action string `json:"action"`
	// Attempt selects one if several attempts of the call are listed.
	Attempt *int `json:"attempt,omitempty" help:"the attempt, if the list has several of the call"`
	// AlthoughBooked charges it even if the ledger already has the call.
	AlthoughBooked bool `json:"although_booked,omitempty" help:"charge even if the ledger already has the call"`
	// Limits changes the current usage of cost limits as well.
	Limits bool   `json:"limits,omitempty" help:"also change the current usage of cost limits, not only the bill"`
	Reason string `json:"reason"`
	By     string `json:"by,omitempty" help:"with --config: who makes the change (default: your OS user); otherwise the administrator"` // author; only for local commands
}

func (h *ledgerHandler) listUnresolved(c *call) (any, error) {
	list, err := h.unresolved(c, c.r.PathValue("org"))
	return listOf(list), err
}

// unresolved reads an org's list, with the ledger entries of its calls.
func (h *ledgerHandler) unresolved(c *call, org string) ([]ledger.Unresolved, error) {
	list, err := h.opts.Budget.Ledger.Reconcile(c.r.Context(), org, ledger.MostReconcile)
	if err != nil {
		return nil, err
	}
	return ledger.JoinLedger(c.r.Context(), h.opts.Budget.Ledger.Entries, org, list, wire.CallTime)
}

// resolve books or drops a charge of the list.
func (h *ledgerHandler) resolve(c *call) (any, error) {
	org, id := c.r.PathValue("org"), c.r.PathValue("call")
	n := body[resolution](c)
	if n.Action != "charge" && n.Action != "drop" {
		return nil, invalid("action", "action must be charge or drop")
	}
	if err := h.dir.known(org); err != nil {
		return nil, err
	}
	by, err := c.by(n.By)
	if err != nil {
		return nil, err
	}
	r := ledger.Resolution{Charge: n.Action == "charge", By: by, Reason: c.why}
	if err := c.needed("A correction needs a reason"); err != nil {
		return nil, err
	}
	list, err := h.unresolved(c, org)
	if err != nil {
		return nil, err
	}
	u, err := ledger.FindUnresolved(list, id, n.Attempt)
	if err != nil {
		return nil, notFound(err, org)
	}
	if r.Charge && !n.AlthoughBooked {
		if err := u.CheckCharge(); err != nil {
			const text = "The ledger already has this call (%s, %s). Drop the charge, or set although_booked"
			return nil, conflict("booked_already", fmt.Sprintf(text, u.Booked.Kind, u.Booked.Total.Short()))
		}
	}
	var limits []budget.Limit
	if r.Charge && n.Limits {
		limits, err = h.opts.LimitsOf(u.Call)
		if err != nil {
			return nil, err
		}
	}
	done, err := h.opts.Budget.Resolve(c.r.Context(), u.Entry, r, limits)
	if err != nil {
		return nil, corrected(err)
	}
	return Corrected{
		ID: u.ID, Org: org, User: u.User, Amount: int64(u.Cost), By: by, At: c.start.UTC(),
		Limits: costNames(limits), Runs: append([]string{}, done.Runs...),
	}, nil
}

// notFound explains why no charge matches.
func notFound(err error, org string) error {
	var several *ledger.AttemptsError
	if errors.As(err, &several) {
		return wire.BadRequest("attempt", "missing_field", "%d attempts of the call are on the list. Name one",
			several.Attempts)
	}
	return wire.NotFound("call", "charge_not_found", "No such charge is on the list of org %s", org)
}
