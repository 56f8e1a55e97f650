package admin

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// ledgerHandler serves the ledger, its corrections, and late charges that are not in it yet.
type ledgerHandler struct {
	base
	usage *usageHandler
}

func (h *ledgerHandler) listLedger(c *call) (any, error) {
	org := c.r.PathValue("org")
	from, to, err := c.period()
	if err != nil {
		return nil, err
	}
	only, err := h.usage.filter(c)
	if err != nil {
		return nil, err
	}
	read := h.opts.Budget.Ledger.Entries
	switch order := c.r.URL.Query().Get("order"); order {
	case "", "oldest":
	case "newest":
		read = h.opts.Budget.Ledger.Recent
	default:
		return nil, invalid("order", "order must be oldest or newest")
	}
	return streamed(func(line func(any) error) error {
		return read(c.r.Context(), org, from, to, func(e ledger.Entry) error {
			if !only.Fits(&e) {
				return nil
			}
			return line(e)
		})
	}), nil
}

// listCorrections streams the manual corrections of an org's charges.
func (h *ledgerHandler) listCorrections(c *call) (any, error) {
	org := c.r.PathValue("org")
	from, to, err := c.period()
	if err != nil {
		return nil, err
	}
	return streamed(func(line func(any) error) error {
		return h.opts.Budget.Ledger.Audit(c.r.Context(), org, from, to, func(r ledger.AuditRecord) error { return line(r) })
	}), nil
}

type correction struct {
	// ID makes the request idempotent; it is generated if omitted.
	ID string `json:"id,omitempty" help:"idempotency id: up to 64 letters, digits, dots, dashes and underscores"`
	// Call is the id of the incorrectly charged call; user, key and model are taken from it.
	Call  string `json:"call,omitempty" help:"id of the call to correct"`
	User  string `json:"user,omitempty" help:"the user to bill (required without --call)"`
	Key   string `json:"key,omitempty" help:"the key to bill"`
	Model string `json:"model,omitempty" help:"the model"`
	// Amount is added to the charges; "-$1.20" is a credit.
	Amount string `json:"amount" input:"money" help:"amount to add to the bill, such as '-$1.20' or -1.20 for a refund"`
	// Limits changes the current usage of cost limits as well.
	Limits bool   `json:"limits,omitempty" help:"also change the current usage of cost limits, not only the bill"`
	Reason string `json:"reason"`
	By     string `json:"by,omitempty" help:"with --config: who makes the change (default: your OS user); otherwise the administrator"` // author; only for local commands
}

// Corrected is the result of a correction.
type Corrected struct {
	ID       string    `json:"id"`
	Org      string    `json:"org"`
	User     string    `json:"user"`
	Amount   int64     `json:"amount_nano_usd" col:"amount;usd"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
	Replayed bool      `json:"replayed"` // it was made before, so nothing has changed
	Limits   []string  `json:"limits"`   // whose usage was changed
	Runs     []string  `json:"runs"`     // whose spending was changed
}

func (c *call) by(named string) (string, error) {
	switch {
	case !c.actor.local && named != "":
		return "", invalid("by",
			"by is only for commands on the machine itself; over the network, the administrator is recorded")
	case named != "":
		return named, nil
	}
	return strings.TrimPrefix(c.actor.id, "local:"), nil
}

func (h *ledgerHandler) createCorrection(c *call) (any, error) {
	org := c.r.PathValue("org")
	n := body[correction](c)
	o, _, err := h.dir.org(org)
	if err != nil {
		return nil, err
	}
	by, err := c.by(n.By)
	if err != nil {
		return nil, err
	}
	a := ledger.Adjustment{
		ID: n.ID, Call: ledger.Call{Org: org, User: n.User, Key: n.Key, Model: n.Model}, By: by, Charged: true,
		Reason: c.why,
	}
	if err := c.needed("A correction needs a reason"); err != nil {
		return nil, err
	}
	a.Amount, err = signed(n.Amount)
	if err != nil {
		return nil, err
	}
	if a.ID == "" {
		a.ID = wire.NewCallID()
	}
	switch {
	case n.Call != "":
		a.Call, err = h.charged(c, org, n)
	case n.User == "":
		err = wire.BadRequest("user", "missing_field", "Name the user to bill, or the call")
	default:
		_, _, err = h.dir.user(o, n.User)
		if err != nil {
			err = wire.NotFound("user", "user_not_found",
				"Org %s has no user %.80q. To correct the bill of a removed user, name the call", org, n.User)
		}
	}
	if err != nil {
		return nil, err
	}
	var limits []budget.Limit
	if n.Limits {
		limits, err = h.opts.LimitsOf(a.Call)
		if err != nil {
			return nil, err
		}
	}
	done, err := h.opts.Budget.Adjust(c.r.Context(), a, limits)
	if err != nil {
		return nil, corrected(err)
	}
	return created{Corrected{
		a.ID, org, a.Call.User, int64(a.Amount), a.By, done.At.UTC(), done.Replayed,
		costNames(limits), append([]string{}, done.Runs...),
	}}, nil
}

func signed(text string) (pricing.Nano, error) {
	digits, negative := strings.CutPrefix(strings.TrimSpace(text), "-")
	digits = strings.TrimPrefix(digits, "+")
	n, err := pricing.ParseUSD(digits)
	if err != nil || n == 0 {
		return 0, invalid("amount", "amount %s: expected an amount such as '-$1.20' or 0.05, not 0", cut(text))
	}
	if negative {
		n = -n
	}
	return n, nil
}

// charged finds the call to correct, and checks the other fields against it.
func (h *ledgerHandler) charged(c *call, org string, n *correction) (ledger.Call, error) {
	made, ok := wire.CallTime(n.Call)
	if !ok {
		const text = "call %s: this is not a call's id (26 letters and digits)"
		return ledger.Call{}, invalid("call", text, cut(n.Call))
	}
	found, ok, err := ledger.FindCall(c.r.Context(), h.opts.Budget.Ledger.Entries, org, n.Call, made)
	if err != nil {
		return found, err
	}
	if !ok {
		return found, wire.NotFound("call", "call_not_found",
			"The ledger of org %s has no such call. If it is too old, omit the call and name user, key and model", org)
	}
	for _, f := range [][3]string{
		{"user", n.User, found.User},
		{"key", n.Key, found.Key},
		{"model", n.Model, found.Model},
	} {
		if f[1] != "" && f[1] != f[2] {
			return found, invalid(f[0], "The call was made by %s %q, not %q", f[0], f[2], f[1])
		}
	}
	return found, nil
}

// costNames returns the names of the cost limits, whose usage a correction changes.
func costNames(limits []budget.Limit) []string {
	out := []string{}
	for _, l := range limits {
		if l.Metric == budget.Cost {
			out = append(out, l.ID)
		}
	}
	return out
}

func corrected(err error) error {
	switch {
	case errors.Is(err, ledger.ErrNotListed), errors.Is(err, ledger.ErrConflict):
		return conflict("changed_meanwhile",
			"Another administrator has just made this change, or the id is already in use: "+err.Error())
	case errors.Is(err, budget.ErrUnavailable):
		return err
	}
	if errors.Is(err, ledger.ErrBelowZero) {
		return wire.BadRequest("amount", "below_zero", "A correction cannot take a charge below zero: %s",
			strings.TrimPrefix(err.Error(), ledger.ErrBelowZero.Error()+": "))
	}
	return invalid("", "%v", err)
}

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

func notFound(err error, org string) error {
	if several, ok := errors.AsType[*ledger.AttemptsError](err); ok {
		return wire.BadRequest("attempt", "missing_field", "%d attempts of the call are on the list. Name one",
			several.Attempts)
	}
	return wire.NotFound("call", "charge_not_found", "No such charge is on the list of org %s", org)
}
