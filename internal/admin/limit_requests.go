package admin

import (
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// LimitRequest is a caller's request for more of a limit.
type LimitRequest struct {
	ID      string    `json:"id" col:"id"`
	Org     string    `json:"org" col:"org"`
	User    string    `json:"user" col:"user"`
	Key     string    `json:"key"`
	Limit   string    `json:"limit" col:"limit"`
	Subject string    `json:"subject"`             // what the limit counts by
	Only    string    `json:"only"`                // whose amount is raised; empty: the org's
	Amount  string    `json:"amount" col:"amount"` // to add, such as $20
	Until   time.Time `json:"until" col:"until;minute"`
	Reason  string    `json:"reason" col:"reason"`
	// Status is pending, approved, denied, withdrawn or expired.
	Status  string    `json:"status" col:"status"`
	Created time.Time `json:"created_at"`
	// The rest is of the decision; Override is the id of the override of an approved one.
	DecidedAt      *time.Time `json:"decided_at"`
	DecidedBy      string     `json:"decided_by" col:"by"`
	DecisionReason string     `json:"decision_reason"`
	ApprovedAmount string     `json:"approved_amount"`
	ApprovedUntil  *time.Time `json:"approved_until"`
	Override       string     `json:"override"`
}

type approval struct {
	// Amount ("$20") and Until replace what was requested.
	Amount string     `json:"amount,omitempty" input:"money" help:"amount to add instead of the requested one: '$10'"`
	Until  *time.Time `json:"until,omitempty" help:"when the override expires, instead of the requested end"`
	Reason string     `json:"reason,omitempty"`
}

type denial struct {
	Reason string `json:"reason"`
}

type limitRequestHandler struct {
	base
	limits    *limitHandler
	overrides *overrideHandler
}

func viewLimitRequest(r *tenants.RaiseRequest, now time.Time) LimitRequest {
	v := LimitRequest{
		ID: r.ID, Org: r.Org, User: r.User, Key: r.Key, Limit: r.Limit, Subject: r.Subject, Only: r.Only,
		Amount: pricing.Nano(r.Amount).Trimmed(), Until: r.Until, Reason: r.Reason, Status: string(r.Status(now)),
		Created: r.Created,
	}
	if d := r.Decision; d != nil {
		v.DecidedAt, v.DecidedBy, v.DecisionReason, v.Override = &d.At, d.By, d.Reason, d.Override
		if r.State == tenants.RaiseApproved {
			v.ApprovedAmount, v.ApprovedUntil = pricing.Nano(d.Amount).Trimmed(), &d.Until
		}
	}
	return v
}

var limitRequestParameters = []parameter{
	{name: "org", text: "Only this org's"},
	{
		name: "status", text: "Only those with this status, such as pending; default: all",
		choices: []string{"pending", "approved", "denied", "withdrawn", "expired"},
	},
}

func (h *limitRequestHandler) listLimitRequests(c *call) (any, error) {
	if err := h.opts.Tenants.Refresh(c.r.Context()); err != nil {
		return nil, err
	}
	q := c.r.URL.Query()
	return h.list(c, q.Get("org"), q.Get("status")), nil
}

// list returns the requests of an org, or of all for "", with a status, or with any for "".
func (h *limitRequestHandler) list(c *call, org, status string) page[LimitRequest] {
	var out []LimitRequest
	for _, r := range h.opts.Tenants.Snapshot().RaiseRequests(org) {
		v := viewLimitRequest(&r, c.start)
		if status == "" || status == v.Status {
			out = append(out, v)
		}
	}
	return listOf(out)
}

// ofOrg lists the requests of the org in the path, for its export.
func (h *limitRequestHandler) ofOrg(c *call) (any, error) {
	return h.list(c, c.r.PathValue("org"), ""), nil
}

func noLimitRequest(id string) error {
	return wire.NotFound("request", "limit_request_not_found", "There is no limit request %.80q", id)
}

func (h *limitRequestHandler) getLimitRequest(c *call) (any, error) {
	if err := h.opts.Tenants.Refresh(c.r.Context()); err != nil {
		return nil, err
	}
	id := c.r.PathValue("request")
	r := h.opts.Tenants.Snapshot().RaiseRequest(id)
	if r == nil {
		return nil, noLimitRequest(id)
	}
	return viewLimitRequest(r, c.start), nil
}

func (h *limitRequestHandler) approve(c *call) (any, error) {
	a := body[approval](c)
	same := func(d *tenants.RaiseDecision) (bool, error) {
		want := *d
		if err := h.grant(c, a, &want); err != nil {
			return false, err
		}
		return want.Amount == d.Amount && want.Until.Equal(d.Until), nil
	}
	return h.end(c, same, func(r *tenants.RaiseRequest) (tenants.RaiseRequest, []tenants.Change, error) {
		d := tenants.RaiseDecision{
			At: c.start.UTC(), By: c.actor.id, Reason: c.why, Amount: r.Amount, Until: r.Until, Override: r.ID,
		}
		if err := h.grant(c, a, &d); err != nil {
			return *r, nil, err
		}
		override, err := h.override(c, r, &d)
		if err != nil {
			return *r, nil, err
		}
		return r.End(tenants.RaiseApproved, d), append(h.overrides.over(c, r.Org), *override), nil
	})
}

// grant applies what the administrator changes of the request.
func (h *limitRequestHandler) grant(c *call, a *approval, d *tenants.RaiseDecision) error {
	if a.Amount != "" {
		n, err := quantity("amount", a.Amount, budget.Cost)
		if err != nil {
			return err
		}
		d.Amount = n
	}
	if a.Until != nil {
		d.Until = a.Until.UTC()
	}
	switch {
	case d.Amount <= 0:
		return invalid("amount", "amount must be above $0; deny the request instead")
	case !c.start.Before(d.Until):
		return invalid("until", "until must be in the future")
	case d.Until.Sub(c.start) > longest:
		return invalid("until", "until is more than a year away. Change the limit's amount instead")
	}
	return nil
}

// override returns the override of an approved request. Its id is that of the request, so that no
// second one can exist.
func (h *limitRequestHandler) override(
	c *call, r *tenants.RaiseRequest, d *tenants.RaiseDecision,
) (*tenants.Change, error) {
	key := ""
	if r.Subject == string(budget.Key) {
		key = r.Key // it may have a plan of its own
	}
	if _, err := h.limits.limit(r.Org, r.User, key, r.Limit); err != nil {
		return nil, err
	}
	record := tenants.Override{
		Limit: r.Limit, Only: r.Only, Add: d.Amount, Until: d.Until, Unit: units[budget.Cost], By: c.actor.id,
		Reason: "requested by " + r.User + ": " + r.Reason, Stamp: c.newStamp(),
	}
	ref := tenants.Ref{Kind: tenants.KindOverride, Org: r.Org, ID: d.Override}
	change := tenants.Change{Ref: ref, New: record}
	return &change, h.audit.check([]tenants.Change{change})
}

func (h *limitRequestHandler) deny(c *call) (any, error) {
	if err := c.needed("A denial needs a reason; the caller sees it"); err != nil {
		return nil, err
	}
	same := func(*tenants.RaiseDecision) (bool, error) { return true, nil }
	return h.end(c, same, func(r *tenants.RaiseRequest) (tenants.RaiseRequest, []tenants.Change, error) {
		d := tenants.RaiseDecision{At: c.start.UTC(), By: c.actor.id, Reason: c.why}
		return r.End(tenants.RaiseDenied, d), nil, nil
	})
}

// entry returns the audit entry of a decision of the call's administrator.
func (h *limitRequestHandler) entry(
	c *call, before, after *tenants.RaiseRequest,
) (tenants.AuditEntry, error) {
	e, err := tenants.RaiseEntry(c.op.Audit, before, after)
	made := c.entry(after.Org, after.ID)
	e.RequestID, e.IP = made.RequestID, made.IP
	return e, err
}

// ending returns a request as a decision ends it, and what else the decision changes.
type ending = func(*tenants.RaiseRequest) (tenants.RaiseRequest, []tenants.Change, error)

// end decides a request. Repeating a decision changes nothing; another one after it is a conflict, also if it
// is not the same one.
func (h *limitRequestHandler) end(
	c *call, same func(*tenants.RaiseDecision) (bool, error), how ending,
) (any, error) {
	id := c.r.PathValue("request")
	var entry tenants.AuditEntry
	r, ended, err := h.opts.Tenants.EndRaise(c.r.Context(), id, func(r tenants.RaiseRequest) (
		tenants.RaiseRequest, tenants.AuditEntry, []tenants.Change, error,
	) {
		if now := r.Status(c.start); now != tenants.RaisePending {
			return r, tenants.AuditEntry{}, nil, decided(&r, now)
		}
		next, changes, err := how(&r)
		if err != nil {
			return r, tenants.AuditEntry{}, nil, err
		}
		entry, err = h.entry(c, &r, &next)
		return next, entry, changes, err
	})
	switch {
	case err != nil:
		return nil, err
	case r == nil:
		return nil, noLimitRequest(id)
	case ended:
		c.logEntry(entry)
		h.opts.Applied()
		h.announce(c, r)
		return viewLimitRequest(r, c.start), nil
	}
	wants := map[string]tenants.RaiseStatus{
		"approveLimitRequest": tenants.RaiseApproved, "denyLimitRequest": tenants.RaiseDenied,
	}[c.name()]
	if r.State != wants {
		return nil, decided(r, r.Status(c.start))
	}
	again, err := same(r.Decision)
	if err != nil {
		return nil, err
	}
	if !again {
		return nil, decided(r, r.State)
	}
	return viewLimitRequest(r, c.start), nil
}

func decided(r *tenants.RaiseRequest, status tenants.RaiseStatus) error {
	what := string(status)
	if status == tenants.RaiseApproved {
		what += ", with " + pricing.Nano(r.Decision.Amount).Trimmed() + " until " +
			r.Decision.Until.UTC().Format(time.RFC3339)
	}
	return conflict("limit_request_decided",
		"The request is already "+what+". Change the limit with an override instead")
}

// announce sends the event of a decision. The decision is made; a failure is only logged.
func (h *limitRequestHandler) announce(c *call, r *tenants.RaiseRequest) {
	if h.opts.Webhooks == nil {
		return
	}
	sender, err := h.opts.Webhooks()
	if err == nil {
		err = sender.RaiseDecided(c.r.Context(), *r)
	}
	if err != nil {
		c.log.Warn("event of a decided limit request not sent", "request", r.ID, "err", err)
	}
}
