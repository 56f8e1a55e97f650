package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/idempotency"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// holdHandler serves /v1/holds: budgets for work that other programs send.
type holdHandler struct {
	opts    *Options
	bodies  *bodyReader
	repeats *repeatHandler
	changes *reads // bounds extensions and ends, of which each hold has few
}

var holdChanges = readBounds{"hold-changes", "changes of holds", 1000, 5000, 256}

// Bounds of expires_in, in seconds.
const (
	leastHoldLife   = 60
	mostHoldLife    = 86_400
	defaultHoldLife = 600
)

// holdRepeats is how long a repetition of a request may still take the hold: as long as the store is sure to
// know how it ended.
const holdRepeats = 30 * time.Minute

// holdView is a hold as its owner sees it. Times are Unix seconds.
type holdView struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	Status  string  `json:"status"`
	Model   *string `json:"model"`
	Held    *string `json:"held_cost_usd"`
	Tokens  *int64  `json:"held_tokens"`
	Charged *string `json:"charged_cost_usd"`
	Overrun *string `json:"overrun_cost_usd"`
	Kept    bool    `json:"pending,omitempty"`
	Created int64   `json:"created_at"`
	Expires *int64  `json:"expires_at"`
}

func viewHold(st guard.HeldState) holdView {
	v := holdView{
		ID: st.ID, Object: "hold", Status: st.How, Model: given(st.Model), Kept: st.Kept, Created: st.Made.Unix(),
		Expires: unix(st.Ends),
	}
	if st.How == "" {
		v.Status, v.Tokens = "held", &st.Held.Tokens
		v.Held = new(usd(int64(st.Held.Cost)))
		return v
	}
	v.Charged, v.Overrun = new(usd(int64(st.Charged))), new(usd(int64(st.Overrun)))
	return v
}

// answer writes a hold with the state of its limits, or why a request about it failed.
func (h *holdHandler) answer(x *request, id string, st guard.HeldState, err error) error {
	if err != nil {
		return holdFailure(id, st, err)
	}
	if st.Price != nil {
		guard.TellLimits(x.Header(), &guard.LimitReport{
			Statuses: st.Statuses, Price: st.Price, Held: st.Held.Cost, At: time.Now(),
			Standard: h.opts.Guard.Policy().Headers.Standard,
		})
	}
	return x.json(http.StatusOK, viewHold(st))
}

func holdFailure(id string, st guard.HeldState, err error) error {
	switch {
	case errors.Is(err, guard.ErrNoHold):
		return wire.NotFound("id", "hold_not_found", "No such hold, or it ended more than an hour ago: %s", shorten(id))
	case errors.Is(err, budget.ErrTooOld):
		return wire.Gone("hold_ended", "The hold expired too long ago to be corrected. It was charged as held, and an "+
			"operator finds this charge with llmguard usage reconcile")
	case errors.Is(err, guard.ErrHoldEnded):
		how := st.How
		if how == "" {
			how = "over"
		}
		return &wire.Error{
			Status: http.StatusConflict, Type: "invalid_request_error", Code: "hold_ended",
			Message: "The hold is already " + how + ". GET /v1/holds/" + shorten(id) + " shows how it ended",
		}
	}
	return err
}

// take serves POST /v1/holds.
func (h *holdHandler) take(x *request, r *http.Request, _ string) error {
	body, err := h.bodies.readRecord(x, r)
	if err != nil {
		return err
	}
	var b holdBody
	if err := b.parse(body); err != nil {
		return err
	}
	if b.spend == (guard.Spend{}) {
		return wire.BadRequest("cost_usd", "missing_required_parameter",
			"Set cost_usd, or model with input_tokens and max_output_tokens: the most that the work may cost")
	}
	life, err := b.life(defaultHoldLife)
	if err != nil {
		return err
	}
	x.caller, err = h.opts.Guard.Plans.Label(r.Context(), x.caller, guard.LabelPlaces{Header: r.Header})
	if err != nil {
		return err
	}
	plan, err := h.opts.Guard.Holds.Plan(x.caller, b.Model, b.spend)
	if err != nil {
		return err
	}
	x.plan = plan
	if err := x.countFree(r.Context()); err != nil {
		return err
	}
	id, repeated, err := h.idOf(x, r, body)
	if err != nil {
		return err
	}
	if repeated {
		st, err := h.opts.Guard.Holds.Get(r.Context(), x.caller, id)
		if err == nil {
			x.replayed = true
			x.Header().Set(headerReplayed, "true")
			return h.answer(x, id, st, nil)
		}
		if !errors.Is(err, guard.ErrNoHold) || time.Since(h.opts.Guard.Holds.Made(x.caller, id)) > holdRepeats {
			return holdFailure(id, st, err)
		}
	}
	st, err := h.opts.Guard.Holds.Take(r.Context(), plan, id, life, len(r.Header["Idempotency-Key"]) > 0)
	if errors.Is(err, budget.ErrEnded) { // by a request at the same time
		st, err = h.opts.Guard.Holds.Get(r.Context(), x.caller, id)
	}
	if err != nil {
		h.forget(x, id, err)
		return holdFailure(id, st, err)
	}
	if x.holdKey != nil {
		_ = h.opts.Queue.Records().Keep(r.Context(), x.id, h.opts.KeepAnswer) // else it stays reserved
	}
	return h.answer(x, id, st, nil)
}

// forget frees the Idempotency-Key of a hold that was certainly not taken.
func (h *holdHandler) forget(x *request, id string, err error) {
	if x.holdKey == nil || errors.Is(err, budget.ErrUnavailable) && !errors.Is(err, budget.ErrFull) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.request.Context()), storeTimeout)
	defer cancel()
	if err := errors.Join(x.holdKey.Undo(ctx, id), h.opts.Queue.Records().Drop(ctx, x.id)); err != nil {
		h.opts.Log.Debug("idempotency key of a refused hold not freed, it will expire", "id", x.id, "err", err)
	}
}

// idOf returns the id of a new hold, or that of an earlier request with the same Idempotency-Key.
// The key leads to the id before anything is held, so that a crash in between holds nothing twice.
func (h *holdHandler) idOf(x *request, r *http.Request, body []byte) (id string, repeated bool, err error) {
	texts := r.Header.Values("Idempotency-Key")
	if len(texts) == 0 {
		return h.opts.Guard.Holds.NewID(x.caller, ""), false, nil
	}
	text, err := keyText(texts)
	if err != nil {
		return "", false, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), storeTimeout)
	defer cancel()
	sum := sha256.Sum256([]byte(text))
	id = h.opts.Guard.Holds.NewID(x.caller, hex.EncodeToString(sum[:10]))
	scope := idempotency.FingerprintOf([]byte(x.caller.Owner()), []byte(guard.HoldEndpoint), []byte(text))
	key, found, err := h.opts.Idempotency.Open(ctx, x.caller.Org.ID, scope, idempotency.FingerprintOf(body), x.id)
	if err != nil {
		return "", false, keyFailure(err)
	}
	if found.Answer != "" {
		return found.Answer, true, nil
	}
	x.key = key
	if err := h.repeats.admitKey(ctx, x); err != nil {
		return "", false, err
	}
	x.key, x.holdKey = nil, key // it is decided here
	return id, false, unavailable(key.Done(ctx, id, h.opts.KeepAnswer))
}

func (h *holdHandler) get(x *request, r *http.Request, id string) error {
	st, err := h.opts.Guard.Holds.Get(r.Context(), x.caller, id)
	return h.answer(x, id, st, err)
}

func (h *holdHandler) extend(x *request, r *http.Request, id string) error {
	b, err := h.readChange(x, r)
	if err != nil {
		return err
	}
	more := guard.More{Total: b.spend}
	if b.Expires != nil {
		more.Life, err = b.life(0)
		if err != nil {
			return err
		}
	}
	if more == (guard.More{}) {
		return wire.BadRequest("", "missing_required_parameter", "Set cost_usd, tokens or expires_in: the new totals")
	}
	st, err := h.opts.Guard.Holds.Extend(r.Context(), x.caller, id, more)
	return h.answer(x, id, st, err)
}

func (h *holdHandler) settle(x *request, r *http.Request, id string) error {
	b, err := h.readChange(x, r)
	if err != nil {
		return err
	}
	if b.spend == (guard.Spend{}) {
		return wire.BadRequest("cost_usd", "missing_required_parameter", "Set cost_usd or tokens: what the work cost")
	}
	st, err := h.opts.Guard.Holds.Settle(r.Context(), x.caller, id, b.spend)
	return h.answer(x, id, st, err)
}

func (h *holdHandler) void(x *request, r *http.Request, id string) error {
	st, err := h.opts.Guard.Holds.Void(r.Context(), x.caller, id)
	return h.answer(x, id, st, err)
}

func (h *holdHandler) read(x *request, r *http.Request) (b holdBody, err error) {
	body, err := h.bodies.readRecord(x, r)
	if err != nil {
		return b, err
	}
	return b, b.parse(body)
}

// readChange is read for a hold that exists, whose model cannot change.
func (h *holdHandler) readChange(x *request, r *http.Request) (holdBody, error) {
	b, err := h.read(x, r)
	if err == nil && b.Model != "" {
		err = wire.BadRequest("model", "unknown_parameter",
			"The model of a hold is set when it is taken. Remove model, or take another hold")
	}
	return b, err
}

// holdBody is the body of all requests about holds.
type holdBody struct {
	Model     string          `json:"model"`
	Cost      json.RawMessage `json:"cost_usd"`
	Input     int64           `json:"input_tokens"`
	Cached    int64           `json:"cached_input_tokens"`
	Written   int64           `json:"cache_write_tokens"`
	Output    int64           `json:"output_tokens"`
	MaxOutput int64           `json:"max_output_tokens"`
	Expires   *int64          `json:"expires_in"`

	spend guard.Spend
}

func (b *holdBody) parse(body []byte) error {
	if err := decodeRecord(body, b, "with cost_usd, or with a model and tokens"); err != nil {
		return err
	}
	output := max(b.Output, b.MaxOutput)
	u := pricing.Usage{Input: b.Input, CachedInput: b.Cached, CacheWrite: b.Written, Output: output}
	if _, wrong := u.Clamp(); wrong != nil || min(b.Output, b.MaxOutput) < 0 {
		return wire.BadRequest("input_tokens", "invalid_value",
			"Tokens must be 0 to %d, and cached and written ones part of input_tokens", pricing.MaxCount)
	}
	b.spend.Usage = u
	if len(b.Cost) == 0 || string(b.Cost) == "null" {
		return nil
	}
	cost, err := pricing.ParseUSD(strings.Trim(string(b.Cost), `"`))
	if err != nil || cost > budget.MaxAmount {
		return wire.BadRequest("cost_usd", "invalid_value",
			"cost_usd must be an amount such as \"0.25\", at most %s, not %s", usd(budget.MaxAmount), shorten(string(b.Cost)))
	}
	b.spend.Cost = &cost
	return nil
}

func (b *holdBody) life(otherwise int64) (time.Duration, error) {
	seconds := otherwise
	if b.Expires != nil {
		seconds = *b.Expires
	}
	if seconds < leastHoldLife || seconds > mostHoldLife {
		return 0, wire.BadRequest("expires_in", "invalid_value", "expires_in must be %d to %d seconds, not %d", leastHoldLife,
			mostHoldLife, seconds)
	}
	return time.Duration(seconds) * time.Second, nil
}
