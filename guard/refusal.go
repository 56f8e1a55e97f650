package guard

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// Refusal is a refused hold with advice on what would fit instead. It wraps the
// *budget.ExceededError.
type Refusal struct {
	*budget.ExceededError
	// Advice is a sentence for the caller, or empty.
	Advice string
	// Away means the store was unavailable and this process's share of the limit
	// refused, so there is no queue to wait in either.
	Away bool

	plan       *Plan
	ofRequests bool // a limit on requests refused
}

// Unwrap returns the refusal of the store.
func (e *Refusal) Unwrap() error { return e.ExceededError }

// Final reports whether waiting can never make the call fit.
func (e *Refusal) Final() bool { return e.Binding.Never && !e.Soon }

// OfRun reports whether the budget of a run refused. Such calls do not wait in the queue, because
// other runs of the same user would wait behind them.
func (e *Refusal) OfRun() bool { return e.Cap == nil && e.Binding.Subject == budget.RunBudget }

// Limits returns the org's limits that apply to the refused call.
func (e *Refusal) Limits() []budget.Limit {
	if e.plan == nil {
		return nil
	}
	return e.plan.Limits
}

// Public words the refusal for the caller: which limit, how much, when, and what output
// limit would fit.
func (e *Refusal) Public() *wire.Error {
	if e.Cap != nil {
		return e.capped()
	}
	b := e.Binding
	if !b.ClosedUntil.IsZero() {
		return wire.RateLimited(fmt.Sprintf("Limit %q of this %s is closed until %s, because the store lost its data and "+
			"the amount used is unknown. An operator can reopen it earlier with llmguard limits reopen.", b.LimitID, b.Subject,
			b.ClosedUntil.UTC().Format(time.RFC3339)), b.Wait)
	}
	if b.Subject == budget.RunBudget {
		return e.ofRun()
	}
	if b.Never && e.Requested > b.Amount {
		return wire.QuotaExceeded(fmt.Sprintf("The call alone is larger than limit %q of this %s (%s): it needs up to %s, "+
			"and the limit allows %s. Waiting does not help.%s", b.LimitID, b.Subject, b.Metric, amount(b.Metric, e.Requested),
			amount(b.Metric, b.Amount), e.Advice))
	}
	text := fmt.Sprintf("limit %q of this %s (%s): Limit %s, Used %s, Requested %s.",
		b.LimitID, b.Subject, b.Metric, amount(b.Metric, b.Amount), amount(b.Metric, b.Used), amount(b.Metric, e.Requested))
	if b.Never {
		return wire.QuotaExceeded("Budget exceeded for " + text + " Waiting does not help." + e.Advice)
	}
	wait := retryIn(b)
	return wire.RateLimited(fmt.Sprintf("Rate limit reached for %s Please try again in %s.%s", text, round(wait),
		e.Advice), wait)
}

// openCallsRetry is the wait advised while too many calls are open. They can end at any time; what is
// known, the end of their leases, is only the latest.
const openCallsRetry = 5 * time.Second

// retryIn returns the wait to advise to a caller that a limit refused.
func retryIn(b budget.Status) time.Duration {
	if b.Metric == budget.Concurrency {
		return min(b.Wait, openCallsRetry)
	}
	return b.Wait
}

// Tell adds the state of the limits to the headers of a refusal.
func (e *Refusal) Tell(h http.Header) {
	if e.plan != nil {
		r := e.limitReport()
		TellLimits(h, &r)
	}
}

func (e *Refusal) limitReport() LimitReport {
	return LimitReport{
		Statuses: e.Statuses, Price: e.plan.Price, Held: e.plan.First.Cost, At: time.Now(), Standard: e.plan.standard,
		Endpoint: e.plan.Request.Endpoint,
	}
}

// RequestLimitStates returns enforced limits on requests, for wire.SetLimits.
func RequestLimitStates(statuses []budget.Status) []wire.LimitState {
	r := LimitReport{Statuses: statuses, At: time.Now()}
	return r.states(nil)
}

// LimitStates returns the org's enforced limits, or those on requests, for wire.SetLimits; none if
// the limits were not read, because the call could never fit.
func (e *Refusal) LimitStates() []wire.LimitState {
	if e.ofRequests {
		return RequestLimitStates(e.Statuses)
	}
	if e.plan == nil {
		return nil
	}
	r := e.limitReport()
	if e.Away { // this process's share of a limit, which is all that is known
		share := e.Binding
		share.Mode = budget.Enforce
		share.Reset = share.Wait
		r.Statuses = []budget.Status{share}
	}
	return r.states(nil)
}

// refusal adds advice to a hold's error if it is a refusal.
func (p *Plan) refusal(err error) error {
	var e *budget.ExceededError
	if !errors.As(err, &e) {
		return err
	}
	return &Refusal{ExceededError: e, Advice: p.advice(e), plan: p}
}

func amount(m budget.Metric, n int64) string {
	if m == budget.Cost {
		return pricing.Nano(n).String()
	}
	return fmt.Sprint(n)
}

// round rounds a wait up, so that no caller retries too early.
func round(d time.Duration) time.Duration {
	unit := time.Second
	if d < time.Second {
		unit = time.Millisecond
	}
	return max(d.Truncate(unit)+unit*min(d%unit, 1), time.Millisecond)
}

// Check refuses a plan that waiting could never make fit, without a hold and without Redis.
// The error is a *Refusal.
func (p *Plan) Check() error {
	if e := p.tooLarge(p.Limits); e != nil {
		return p.refusal(e)
	}
	for _, c := range p.Caps {
		if e := p.tooLarge(c.Limits); e != nil {
			e.Cap = &c
			return p.refusal(e)
		}
	}
	return nil
}

func (p *Plan) needs(m budget.Metric) int64 {
	switch m {
	case budget.Cost:
		return int64(p.First.Cost)
	case budget.Tokens:
		return p.First.Tokens
	default:
		return 1
	}
}

func enforced(m budget.Mode) bool { return m == budget.Enforce || m == "" }

// room is what a limit has left for the call.
type room struct {
	metric budget.Metric
	amount int64
}

// rooms returns what the call would have to fit into: the whole limits if waiting cannot
// help, otherwise what they have left now. It returns none if another output limit would
// not help.
func (p *Plan) rooms(e *budget.ExceededError) []room {
	var out []room
	for i := range p.Limits {
		if l := &p.Limits[i]; e.Binding.Never && enforced(l.Mode) && l.Subject != budget.RunBudget {
			out = append(out, room{l.Metric, p.amountOf(l)})
		}
	}
	for _, s := range e.Statuses {
		switch {
		case !e.Binding.Never && enforced(s.Mode):
			out = append(out, room{s.Metric, s.Remaining})
		case s.Subject == budget.RunBudget: // what it spent never returns
			out = append(out, room{s.Metric, s.Remaining + s.Held})
		}
	}
	return out
}

// advice names the largest output limit that would fit instead.
func (p *Plan) advice(e *budget.ExceededError) string {
	if e.Cap != nil || p.cached { // it would reveal what others spend
		return ""
	}
	text := p.largest(p.rooms(e))
	if text == "" && e.Binding.Never && p.unread > 0 {
		text = fmt.Sprintf(" Its documents are counted as %d input tokens, the model's maximum. An operator can set a "+
			"lower document_tokens for the provider.", p.unread)
	}
	return text
}

// Advice returns a sentence, with a leading space, that names the largest output limit with
// which the call counts at most `tokens` tokens; empty if there is none.
func (p *Plan) Advice(tokens int64) string { return p.largest([]room{{budget.Tokens, tokens}}) }

// largest names the largest output limit that fits, found by bisection over the price.
func (p *Plan) largest(rooms []room) string {
	if p.Output == 0 || !p.Request.Endpoint.Traits().Shows || len(rooms) == 0 || !p.fits(rooms, 1) {
		return ""
	}
	lo, hi := int64(1), (p.Output-p.predicted())/p.Request.Choices()
	if p.fits(rooms, hi) {
		return ""
	}
	for lo+1 < hi {
		if mid := lo + (hi-lo)/2; p.fits(rooms, mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return fmt.Sprintf(" It would fit with %s of %d.", p.limitNames(), lo)
}

// limitName and limitNames return where callers set an output limit.
func (p *Plan) limitName() string {
	if p.Request.Endpoint.Traits().OutputField == "" {
		return "max_completion_tokens"
	}
	return p.limitField()
}

func (p *Plan) limitNames() string {
	if p.Request.Endpoint.Traits().OutputField == "" {
		return "max_completion_tokens (or max_tokens)"
	}
	return p.limitField()
}

// fits reports whether the call would fit with another output limit.
func (p *Plan) fits(rooms []room, limit int64) bool {
	output := limit*p.Request.Choices() + p.predicted()
	cost, err := p.ceiling(output)
	if err != nil {
		return false
	}
	for _, r := range rooms {
		need := int64(1)
		switch r.metric {
		case budget.Cost:
			need = int64(cost)
		case budget.Tokens:
			need = p.Input + output
		}
		if need > r.amount {
			return false
		}
	}
	return true
}

// tooLarge returns the refusal by a limit that the call alone exceeds, so that waiting
// cannot help; nil if there is none.
func (p *Plan) tooLarge(limits []budget.Limit) *budget.ExceededError {
	for i := range limits {
		l := &limits[i]
		amount := p.amountOf(l)
		if need := p.needs(l.Metric); enforced(l.Mode) && need > amount {
			return &budget.ExceededError{Requested: need, Binding: budget.Status{
				LimitID: l.ID, Subject: l.Subject, Metric: l.Metric, Mode: l.Mode, Amount: amount,
				Remaining: amount, Never: true, Refused: true,
			}}
		}
	}
	return nil
}

func (p *Plan) amountOf(l *budget.Limit) int64 {
	return l.AmountFor(p.Caller.subject(), time.Now())
}

// capped words the refusal by a spend cap. It omits the cap's amounts and an output limit
// that would fit, because both would reveal what others spend.
func (e *Refusal) capped() *wire.Error {
	whose := "this deployment"
	if e.Cap.Provider != "" {
		whose = "this model's provider"
	}
	if e.Binding.Never {
		return wire.QuotaExceeded("Budget exceeded: the call alone is larger than the spend cap of " + whose +
			". Waiting does not help." + e.Advice)
	}
	if until := e.Binding.ClosedUntil; !until.IsZero() {
		return wire.RateLimited(fmt.Sprintf("The spend cap of %s is closed until %s, because the store lost its data and "+
			"the amount used is unknown. An operator can reopen it earlier with llmguard limits reopen --all.", whose,
			until.UTC().Format(time.RFC3339)),
			e.Binding.Wait)
	}
	return wire.RateLimited(fmt.Sprintf("Rate limit reached: the spend cap of %s, which all its callers share, has no "+
		"capacity for this call. Please try again in %s.%s",
		whose, round(e.Binding.Wait), e.Advice), e.Binding.Wait)
}
