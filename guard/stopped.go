package guard

import (
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/wire"
)

// StoppedError means that an operator has stopped spending, for all orgs or for this one. Nothing
// was sent.
type StoppedError struct{ Everybody bool }

func (e *StoppedError) Error() string { return e.Public().Message }

// Public words the refusal for the caller.
func (e *StoppedError) Public() *wire.Error { return wire.SpendingStopped(e.Everybody) }

// Stopped returns a *StoppedError while the spending of an org is stopped, otherwise nil. For
// tenants.AllOrgs it only finds a stop of all spending.
func (g *Guard) Stopped(org string) error {
	if g.policy.Load().Stopped {
		return &StoppedError{Everybody: true}
	}
	if g.stops == nil {
		return nil
	}
	switch stops := g.stops(); {
	case len(stops) == 0:
		return nil
	case stops[tenants.AllOrgs] != nil:
		return &StoppedError{Everybody: true}
	case stops[org] != nil:
		return &StoppedError{}
	}
	return nil
}

// AllStopped reports whether all spending is stopped.
func (g *Guard) AllStopped() bool { return g.Stopped(tenants.AllOrgs) != nil }

// stopCounts returns 1 if all spending is stopped, and the number of orgs that are stopped
// themselves.
func (g *Guard) stopCounts() (all, orgs float64) {
	if g.stops != nil {
		stops := g.stops()
		orgs = float64(len(stops))
		if stops[tenants.AllOrgs] != nil {
			orgs--
		}
	}
	if g.AllStopped() {
		all = 1
	}
	return all, orgs
}
