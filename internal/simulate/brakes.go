package simulate

import (
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// Firing is a brake that would have fired. Nobody releases it.
type Firing struct {
	Org      string               `json:"org"`
	Brake    string               `json:"brake"`
	Subject  string               `json:"subject"` // such as run=abc
	Action   budget.Action        `json:"action"`
	At       time.Time            `json:"at"`
	Evidence budget.BrakeEvidence `json:"evidence"`
}

// counters returns the limits of a subject, followed by what its brakes count.
func (s *subject) counters() []budget.Limit {
	if len(s.brakes) == 0 {
		return s.limits
	}
	all := append([]budget.Limit{}, s.limits...)
	for _, b := range s.brakes {
		all = append(all, b.Counters()...)
	}
	return all
}

func (s *subject) brakeKey(b guard.Braking) string {
	return s.org.ID + " " + tenants.BrakeID(b.ID, b.Value)
}

// braked returns what refuses a call because a brake has fired, or "".
func (e *engine) braked(s *subject) string {
	for _, b := range s.brakes {
		if b.Action.Refuses() && e.brakes[s.brakeKey(b)] > e.now {
			return brakeReason(b)
		}
	}
	return ""
}

func brakeReason(b guard.Braking) string { return "brake " + b.ID }

// judge fires the brakes at a call that was just held. It returns what then refuses the call, or "".
func (e *engine) judge(s *subject) (why string) {
	if len(s.brakes) == 0 {
		return ""
	}
	all := e.budget.Peek(e.now, s.on.Own)
	counted := all[len(s.limits):]
	for _, b := range s.brakes {
		n := len(b.Counters())
		seen, fires, over := b.Judge(counted[:n])
		counted = counted[n:]
		if !over && !fires || e.brakes[s.brakeKey(b)] > e.now {
			continue
		}
		if why == "" && b.Action.Refuses() {
			why = brakeReason(b)
		}
		if !fires {
			continue
		}
		life := b.For
		if life == 0 {
			life = settings.MaxBrakeLife
		}
		e.brakes[s.brakeKey(b)] = e.now + life.Microseconds()
		e.result.firings = append(e.result.firings, Firing{
			Org: s.org.ID, Brake: b.ID, Subject: guard.BrakeSubject(b.Subject, b.Value), Action: b.Action,
			At: time.UnixMicro(e.now).UTC(), Evidence: seen,
		})
	}
	return why
}

// Firings returns the brakes that would have fired, in order.
func (r *Result) Firings() []Firing { return r.firings }
