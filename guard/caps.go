package guard

import (
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
)

// tooLarge finds a limit that the call alone exceeds, so that no waiting helps.
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

// amountOf is a limit's amount for this call now.
func (p *Plan) amountOf(l *budget.Limit) int64 {
	return l.AmountFor(p.Caller.subject(), now())
}

// capped words the refusal of a spend cap. Its amounts would tell the caller
// what others spend, and so would an output limit that fits.
func (e *Refusal) capped() *wire.Error {
	whose := "this deployment"
	if e.Cap.Provider != "" {
		whose = "this model's provider"
	}
	if e.Binding.Never {
		return wire.QuotaExceeded("Budget exceeded: the call alone is larger than the spend cap of " + whose +
			". No waiting makes this call fit." + e.Advice)
	}
	if until := e.Binding.ClosedUntil; !until.IsZero() {
		return wire.RateLimited(fmt.Sprintf("The spend cap of %s is closed until %s, because the store lost its data and "+
			"what was used is not known. An operator can open it sooner: llmguard limits reopen --all.", whose,
			until.UTC().Format(time.RFC3339)),
			e.Binding.Wait)
	}
	return wire.RateLimited(fmt.Sprintf("Rate limit reached: the spend cap of %s, which all its callers share, has no "+
		"room for this call. Please try again in %s.%s",
		whose, round(e.Binding.Wait), e.Advice), e.Binding.Wait)
}
