package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// raisesPath is where callers request more of a limit.
const raisesPath = "/v1/limit_requests"

// headerAsk is where a refused caller may request more of the limit that refused.
const headerAsk = "Llmguard-Ask"

// raiseReason is the maximum length of a reason, in bytes.
const raiseReason = 500

// raiseBytes is about what Redis needs for a request, with its entry in the audit.
const raiseBytes = 4 << 10

// raiseHandler serves /v1/limit_requests: requests for more of a limit.
type raiseHandler struct {
	opts   *Options
	bodies *bodyReader
}

// raiseView is a request as its caller sees it.
type raiseView struct {
	ID       string              `json:"id"`
	Object   string              `json:"object"`
	Status   tenants.RaiseStatus `json:"status"`
	Limit    string              `json:"limit"`
	Amount   string              `json:"amount_usd"`
	Until    time.Time           `json:"until"`
	Reason   string              `json:"reason"`
	Created  time.Time           `json:"created_at"`
	Decided  *time.Time          `json:"decided_at"`
	Why      string              `json:"decision_reason"`
	Approved *string             `json:"approved_usd"`
	Lasts    *time.Time          `json:"approved_until"`
}

func viewRaise(r *tenants.RaiseRequest, now time.Time) raiseView {
	v := raiseView{
		ID: r.ID, Object: "limit_request", Status: r.Status(now), Limit: r.Limit, Amount: usd(r.Amount), Until: r.Until,
		Reason: r.Reason, Created: r.Created,
	}
	if d := r.Decision; d != nil {
		v.Decided, v.Why = &d.At, d.Reason
		if r.State == tenants.RaiseApproved {
			v.Approved, v.Lasts = new(usd(d.Amount)), &d.Until
		}
	}
	return v
}

// offerRaise adds to the refusal of a limit where the caller may request more of it.
func (x *request) offerRaise(e *wire.Error) *wire.Error {
	if !wire.OverLimit(e.Status) || x.caller.Org == nil || !x.may(raiseScope) {
		return e
	}
	cause := x.refusing().Cause
	if cause.Kind() != budget.CauseLimit {
		return e
	}
	limit, _ := x.caller.RaisableLimit(cause.Name(), x.may(raiseOrgScope))
	if limit == nil {
		return e
	}
	link := x.server.guard.Policy().PublicURL + raisesPath + "?limit=" + url.QueryEscape(limit.ID)
	x.Header().Set(headerAsk, link)
	with := *e
	with.Message += " To request more, send an amount and a reason: POST " + link
	return &with
}

// raiseBody is the body of a new request.
type raiseBody struct {
	Limit  string          `json:"limit"`
	Amount json.RawMessage `json:"amount"`
	Until  *time.Time      `json:"until"`
	Reason string          `json:"reason"`
}

// amount returns the requested amount in nano-USD.
func (b *raiseBody) amount(most pricing.Nano) (int64, error) {
	text := strings.TrimPrefix(strings.Trim(string(b.Amount), `"`), "$")
	if text == "" || text == "null" {
		return 0, wire.BadRequest("amount", "missing_required_parameter",
			"Set amount: how much more you need, such as \"$20\"")
	}
	n, err := pricing.ParseUSD(text)
	if err != nil || n <= 0 || n > most {
		return 0, wire.BadRequest("amount", "invalid_value",
			"amount must be money such as \"$20\", above $0 and at most %s, not %s", most.Short(), shorten(string(b.Amount)))
	}
	return int64(n), nil
}

func (b *raiseBody) end(now time.Time, most time.Duration) (time.Time, error) {
	if b.Until == nil {
		return now.Add(most).UTC().Truncate(time.Second), nil
	}
	if !now.Before(*b.Until) || b.Until.Sub(now) > most {
		return time.Time{}, wire.BadRequest("until", "invalid_value", "until must be in the future, at most %s from now",
			figures.Lasting(most))
	}
	return b.Until.UTC(), nil
}

func (b *raiseBody) checkReason() error {
	b.Reason = strings.TrimSpace(b.Reason)
	switch {
	case b.Reason == "":
		return wire.BadRequest("reason", "missing_required_parameter", "Set reason: what you need it for")
	case len(b.Reason) > raiseReason, !utf8.ValidString(b.Reason),
		strings.ContainsFunc(b.Reason, func(r rune) bool { return !unicode.IsPrint(r) }):
		return wire.BadRequest("reason", "invalid_value", "reason must be one line of at most %d bytes, without control "+
			"characters", raiseReason)
	}
	return nil
}

// all serves GET and POST /v1/limit_requests.
func (h *raiseHandler) all(x *request, r *http.Request, _ string) error {
	if err := noRun(x); err != nil {
		return err
	}
	if r.Method == http.MethodPost {
		return h.create(x, r)
	}
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	asked, err := h.of(ctx, x)
	if err != nil {
		return err
	}
	now, list := time.Now(), []raiseView{}
	for _, one := range asked {
		list = append(list, viewRaise(&one, now))
	}
	return x.json(http.StatusOK, map[string]any{"object": "list", "data": list})
}

// noRun refuses runs: the requests are of their key's user, and their budget is what they were given.
func noRun(x *request) error {
	if x.caller.Run == "" {
		return nil
	}
	return wire.Forbidden("limit_requests_disabled",
		"A run cannot request more of a limit. Add to its budget with the key that created it, or send the request "+
			"without a run")
}

func (h *raiseHandler) of(ctx context.Context, x *request) ([]tenants.RaiseRequest, error) {
	if h.opts.Raises == nil {
		return nil, nil
	}
	err := h.opts.Raises.Refresh(ctx)
	if err != nil {
		return nil, raiseFailure(err)
	}
	all := h.opts.Raises.Snapshot().RaiseRequests(x.caller.Org.ID)
	others := func(r tenants.RaiseRequest) bool { return r.User != x.caller.User }
	return slices.DeleteFunc(slices.Clone(all), others), nil
}

func (h *raiseHandler) create(x *request, r *http.Request) error {
	rule := x.caller.Org.RaiseRequests
	if rule.Mode != "allow" {
		return wire.Forbidden("limit_requests_disabled",
			"Your organization does not accept requests for more of a limit (raise_requests). Ask its administrator")
	}
	body, err := h.bodies.readRecord(x, r)
	if err != nil {
		return err
	}
	var b raiseBody
	err = decodeRecord(body, &b, "with limit, amount, reason and perhaps until, a time such as 2026-12-01T18:00:00Z")
	if err != nil {
		return err
	}
	if b.Limit == "" {
		b.Limit = r.URL.Query().Get("limit")
	}
	now := time.Now().UTC().Truncate(time.Millisecond)
	ask := tenants.RaiseRequest{
		ID: "lreq_" + wire.NewCallID(), Org: x.caller.Org.ID, User: x.caller.User, Key: x.caller.Key, Limit: b.Limit,
		Created: now, State: tenants.RaisePending,
	}
	limit, only := x.caller.RaisableLimit(b.Limit, x.may(raiseOrgScope))
	if limit == nil {
		return wire.BadRequest("limit", "limit_not_raisable", "%q is not the name of a limit in money of which you may "+
			"request more: one that counts your user or key, or with the scope %s also your organization or group. "+
			"GET /v1/limits lists your limits", shorten(b.Limit), raiseOrgScope)
	}
	ask.Subject, ask.Only = string(limit.Subject), only
	ask.Amount, err = b.amount(pricing.Nano(rule.MaxAmount.N))
	if err != nil {
		return err
	}
	ask.Until, err = b.end(now, rule.MaxFor)
	if err != nil {
		return err
	}
	if err := b.checkReason(); err != nil {
		return err
	}
	ask.Reason = b.Reason
	return h.request(x, r, ask)
}

// request records a request and sends its event. A repetition sends it again, so that an event that
// could not be sent is not lost.
func (h *raiseHandler) request(x *request, r *http.Request, ask tenants.RaiseRequest) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), storeTimeout)
	defer cancel()
	e, err := tenants.RaiseEntry("limit_request.create", nil, &ask)
	if err != nil {
		return err
	}
	e.RequestID, e.IP = x.id, x.from
	record := x.caller.Org.ID + " raise " + x.caller.User + " " + ask.Limit // a repetition replaces it
	err = h.opts.Guard.AdmitRecord(ctx, x.caller.Org.ID, record, raiseBytes, time.Until(ask.Until)+tenants.KeepRaises)
	if err != nil {
		return unavailable(err)
	}
	made, err := h.opts.Raises.RequestRaise(ctx, ask, e)
	if errors.Is(err, tenants.ErrRaiseOpen) {
		return &wire.Error{
			Status: http.StatusConflict, Type: "invalid_request_error", Code: "limit_request_open", Param: "limit",
			Message: "You have a pending request for this limit: " + made.ID + ". Withdraw it with DELETE " + raisesPath +
				"/" + made.ID + " to make another",
		}
	}
	if err != nil {
		return raiseFailure(err)
	}
	if h.opts.Webhooks != nil {
		if err := h.opts.Webhooks.RaiseRequested(ctx, made); err != nil {
			h.opts.Log.Warn("event of a limit request not sent", "request", made.ID, "err", err)
		}
	}
	return x.json(http.StatusCreated, viewRaise(&made, time.Now()))
}

// one serves GET and DELETE /v1/limit_requests/{id}.
func (h *raiseHandler) one(x *request, r *http.Request, id string) error {
	if err := noRun(x); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), storeTimeout)
	defer cancel()
	asked, err := h.of(ctx, x)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(asked, func(r tenants.RaiseRequest) bool { return r.ID == id })
	if at < 0 {
		return wire.NotFound("id", "limit_request_not_found", "You have no limit request %s", shorten(id))
	}
	if r.Method == http.MethodDelete {
		return h.withdraw(ctx, x, id)
	}
	return x.json(http.StatusOK, viewRaise(&asked[at], time.Now()))
}

func (h *raiseHandler) withdraw(ctx context.Context, x *request, id string) error {
	now := time.Now().UTC()
	end := func(r tenants.RaiseRequest) (tenants.RaiseRequest, tenants.AuditEntry, []tenants.Change, error) {
		next := r.End(tenants.RaiseWithdrawn, tenants.RaiseDecision{At: now, By: tenants.RaiseActor(r.User)})
		e, err := tenants.RaiseEntry("limit_request.withdraw", &r, &next)
		e.RequestID, e.IP = x.id, x.from
		return next, e, nil, err
	}
	is, ended, err := h.opts.Raises.EndRaise(ctx, id, end)
	switch {
	case err != nil:
		return raiseFailure(err)
	case is == nil:
		return wire.NotFound("id", "limit_request_not_found", "You have no limit request %s", shorten(id))
	case !ended && is.State != tenants.RaiseWithdrawn:
		return &wire.Error{
			Status: http.StatusConflict, Type: "invalid_request_error", Code: "limit_request_decided",
			Message: "The request is already " + string(is.Status(now)),
		}
	}
	if ended && h.opts.Webhooks != nil {
		if err := h.opts.Webhooks.RaiseDecided(ctx, *is); err != nil {
			h.opts.Log.Warn("event of a withdrawn limit request not sent", "request", id, "err", err)
		}
	}
	return x.json(http.StatusOK, viewRaise(is, now))
}

// raiseFailure words the errors of the store of requests for the caller.
func raiseFailure(err error) error {
	var bound *tenants.RaiseBoundError
	switch {
	case errors.As(err, &bound):
		return wire.RateLimited("Too many limit requests: at most "+bound.What, bound.Wait)
	case errors.Is(err, tenants.ErrConflict), errors.Is(err, tenants.ErrUnavailable):
		return wire.ServiceUnavailable("Limit requests cannot be stored right now", time.Second, err)
	}
	return err
}
