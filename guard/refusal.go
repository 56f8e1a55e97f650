package guard

import (
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/wire"
)

// Refusal is a refused hold with what would fit instead. It wraps the
// *budget.ExceededError.
type Refusal struct {
	*budget.ExceededError
	// Advice is a sentence for the caller, or empty.
	Advice string
}

// Unwrap returns the refusal of the store.
func (e *Refusal) Unwrap() error { return e.ExceededError }

// Final reports whether no waiting makes the call fit.
func (e *Refusal) Final() bool { return e.Binding.Never && !e.Soon }

// Public words the refusal for the caller: which limit, how much, when, and
// what output limit would fit.
func (e *Refusal) Public() *wire.Error {
	b := e.Binding
	text := fmt.Sprintf("limit %q of this %s (%s): Limit %s, Used %s, Requested %s.",
		b.LimitID, b.Subject, b.Metric, amount(b.Metric, b.Amount), amount(b.Metric, b.Used), amount(b.Metric, e.Requested))
	if b.Never {
		return wire.QuotaExceeded("Budget exceeded for " + text + " No waiting makes this call fit." + e.Advice)
	}
	return wire.RateLimited(fmt.Sprintf("Rate limit reached for %s Please try again in %s.%s", text, round(b.Wait), e.Advice), b.Wait)
}

// refusal adds advice to a hold's error when it is a refusal.
func (p *Plan) refusal(err error) error {
	var e *budget.ExceededError
	if !errors.As(err, &e) {
		return err
	}
	return &Refusal{ExceededError: e, Advice: p.advice(e)}
}

func amount(m budget.Metric, n int64) string {
	if m == budget.Cost {
		return pricing.Nano(n).String()
	}
	return fmt.Sprint(n)
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return max(d.Round(time.Millisecond), time.Millisecond)
	}
	return d.Round(time.Second)
}

// Check refuses a plan that no waiting could make fit, without a hold and
// without asking Redis. The error is a *Refusal.
func (p *Plan) Check() error {
	for i := range p.Limits {
		l := &p.Limits[i]
		if l.Mode == budget.Enforce && p.needs(l.Metric) > l.Shape.Amount {
			return p.refusal(&budget.ExceededError{Requested: p.needs(l.Metric), Binding: budget.Status{
				LimitID: l.ID, Subject: l.Subject, Metric: l.Metric, Mode: l.Mode, Amount: l.Shape.Amount,
				Remaining: l.Shape.Amount, Never: true, Refused: true,
			}})
		}
	}
	return nil
}

func (p *Plan) needs(m budget.Metric) int64 {
	switch m {
	case budget.Cost:
		return int64(p.Max.Cost)
	case budget.Tokens:
		return p.Max.Tokens
	default:
		return 1
	}
}

// advice names the output limit that would fit instead, found by bisection
// over the price.
func (p *Plan) advice(e *budget.ExceededError) string {
	room := e.Binding.Remaining
	if e.Binding.Never {
		room = e.Binding.Amount
	}
	if p.Request.Endpoint != wire.ChatCompletions || p.with(e.Binding.Metric, 1) > room {
		return ""
	}
	lo, hi := int64(1), p.Output/p.Request.Choices()
	for lo+1 < hi {
		if mid := lo + (hi-lo)/2; p.with(e.Binding.Metric, mid) <= room {
			lo = mid
		} else {
			hi = mid
		}
	}
	return fmt.Sprintf(" It would fit with max_completion_tokens (or max_tokens) of %d.", lo)
}

// with is what the plan would need of a metric at another output limit.
func (p *Plan) with(m budget.Metric, limit int64) int64 {
	out := limit * p.Request.Choices()
	switch m {
	case budget.Cost:
		cost, err := p.Price.Ceiling(pricing.Usage{Input: p.Input, Output: out, Requests: 1}, p.terms)
		if err != nil {
			return 1 << 62
		}
		return int64(cost)
	case budget.Tokens:
		return p.Input + out
	default:
		return 1 << 62
	}
}
