package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/outage"
)

// StoreFailure says what happens to an org's calls while the store is unavailable.
type StoreFailure = string

// The choices for calls while the store is unavailable.
const (
	Deny  StoreFailure = "deny"  // refused; also the zero value
	Local StoreFailure = "local" // admitted within this process's share of each limit, charged later
	Allow StoreFailure = "allow" // admitted, charged later
)

// errAway means that the store was not asked at all.
var errAway = fmt.Errorf("%w: it has not answered for a while", budget.ErrUnavailable)

// Outage tracks for which orgs the store is unavailable, and bounds waiting for it. It is
// safe for concurrent use.
type Outage struct {
	circuit  *outage.Circuit
	health   *outage.Health
	probe    func(ctx context.Context, tag string) error // fails unless the store accepts writes
	deadline time.Duration
	checking sync.Mutex
}

func newOutage(o Options) *Outage {
	return &Outage{
		circuit:  outage.NewCircuit(o.Log),
		health:   outage.NewHealth(o.Budget.Ping),
		probe:    o.Budget.Probe,
		deadline: o.StoreDeadline,
	}
}

// Reach runs one request to the store about a pool on behalf of an org. The request ends
// once the store has not answered for Options.StoreDeadline and then fails a ping. While
// the store is known to be unavailable, the request is not made and the error is
// budget.ErrUnavailable.
func (out *Outage) Reach(ctx context.Context, o *Org, tags []string, request func(context.Context) error) error {
	if !out.circuit.Ask(tags[0], time.Now()) {
		return errAway
	}
	ctx, cancel := out.health.Bound(ctx, out.deadline, tags...)
	defer cancel()
	err := request(ctx)
	cause := context.Cause(ctx)
	if err == nil {
		out.heard(o, tags, nil)
	} else if errors.Is(cause, outage.ErrSilent) {
		out.heard(o, tags, cause)
	}
	return err
}

// heard records the outcome of asking servers with all of the tags.
func (out *Outage) heard(o *Org, tags []string, err error) {
	out.circuit.Told(o.ID, cmp.Or(o.OnStoreFailure, Deny), tags, err, time.Now())
}

// WithoutStore reports whether the org's live calls continue while the store is
// unavailable.
func (o *Org) WithoutStore() bool { return o.OnStoreFailure == Local || o.OnStoreFailure == Allow }

// away words a refusal by a local share.
func (p *Plan) away(err error) error {
	var e *budget.ExceededError
	if !errors.As(err, &e) {
		return err
	}
	return &Refusal{ExceededError: e, Away: true, plan: p, Advice: " The store is unavailable, so this proxy admits " +
		"calls only up to its local share of the limit."}
}

// Away returns for how many orgs the store is known to be unavailable, by what happens to
// their calls.
func (out *Outage) Away() map[StoreFailure]int { return out.circuit.Away() }

// checkMost bounds a Check.
const checkMost = time.Second

// Check asks the store again for the orgs for which it is known to be unavailable, so that
// an outage ends for orgs that make no calls too. It asks for one org after another and, while
// the store is silent, ends after checkMost without having asked for all.
func (out *Outage) Check() {
	if !out.checking.TryLock() {
		return
	}
	defer out.checking.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), checkMost) //nolint:forbidigo // a scrape has none
	defer cancel()
	for tag, tags := range out.circuit.AwayTags() {
		if ctx.Err() != nil {
			return
		}
		err := out.health.Answer(ctx, tags)
		if err == nil {
			err = out.probe(ctx, tag)
		}
		if err == nil || errors.Is(err, budget.ErrFull) { // a full store answers
			out.circuit.Answered(tag)
		}
	}
}
