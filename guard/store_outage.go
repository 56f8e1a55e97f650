package guard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget"
)

// StoreFailure is what becomes of an org's calls while the store is away.
type StoreFailure string

// The choices for calls while the store is away.
const (
	Deny  StoreFailure = "deny"  // refused; the zero value too
	Local StoreFailure = "local" // admitted within this process's share of each limit, charged later
	Allow StoreFailure = "allow" // admitted, charged later
)

// errAway says that the store was not even asked.
var errAway = fmt.Errorf("%w: it has not answered for a while", budget.ErrUnavailable)

// Outage knows for which orgs the store is unavailable, and bounds what waits for it. It is
// safe for concurrent use.
type Outage struct {
	circuit  circuit
	health   health
	deadline time.Duration
}

func newOutage(o Options) *Outage {
	return &Outage{
		circuit:  circuit{log: o.Log, orgs: map[string]*outage{}},
		health:   health{ping: o.Budget.Ping, pings: map[string]*ping{}},
		deadline: o.StoreDeadline,
	}
}

// Reach runs one request to the store about a pool on behalf of an org, which ends when the store has
// not answered it for Options.StoreDeadline, nor a ping after it. While the store is known to be
// away it is not asked, and the error is budget.ErrUnavailable.
func (out *Outage) Reach(ctx context.Context, o *Org, pool string, request func(context.Context) error) error {
	if !out.circuit.ask(o.ID, time.Now()) {
		return errAway
	}
	ctx, cancel := out.health.bound(ctx, out.deadline, o.ID, pool)
	defer cancel()
	err := request(ctx)
	cause := context.Cause(ctx)
	if err == nil {
		out.circuit.told(o, nil, time.Now())
	} else if errors.Is(cause, errSilent) {
		out.circuit.told(o, cause, time.Now())
	}
	return err
}

// WithoutStore reports whether the org's live calls go on while the store is away.
func (o *Org) WithoutStore() bool { return o.OnStoreFailure == Local || o.OnStoreFailure == Allow }

// away words a refusal by a share.
func (p *Plan) away(err error) error {
	var e *budget.ExceededError
	if !errors.As(err, &e) {
		return err
	}
	return &Refusal{ExceededError: e, Away: true, plan: p, Advice: " The limits cannot be checked at the moment, " +
		"and this is the part of the limit that this proxy lets through by itself."}
}

// Away returns for how many orgs the store is known to be away.
func (out *Outage) Away() int { return out.circuit.away() }
