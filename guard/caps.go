package guard

import (
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
)

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

// amountOf returns a limit's current amount for this call.
func (p *Plan) amountOf(l *budget.Limit) int64 {
	return l.AmountFor(p.Caller.subject(), now())
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
