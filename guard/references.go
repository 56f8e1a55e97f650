package guard

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/responses/conversation"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// references is what a request uses without containing it.
type references struct {
	provider string // that stores it; empty if there is nothing
	tokens   int64  // of hidden input
	edits    []wire.Edit

	model        string // of the stored prompt
	conversation string // the id of the one that the answer is added to
	total        int64  // an upper bound of the tokens it holds
	pictures     int64  // files shown as images
	documents    int64  // other files, of which the provider may read any number of tokens

	// For what is stored here:
	here  bool
	turns []conversation.Turn
	last  string            // the id of the last turn
	items map[string][]byte // referenced items, by id

	waited time.Duration // for Redis
}

// only narrows the providers to the one that stores what is referred to.
func (k references) only(allowed []string) []string {
	if k.provider == "" {
		return allowed
	}
	return []string{k.provider}
}

// ErrNotOwned means the org has no such object, whether or not another org has it.
var ErrNotOwned = errors.New("the org has no such object")

// resolver finds what providers, or we, store for the orgs.
type resolver struct {
	policy    *atomic.Pointer[Policy]
	ownership *ownership.Store    // nil: nothing can be referred to
	turns     *conversation.Store // nil: no responses are stored here
	deadline  time.Duration
}

func (rs *resolver) notes(ctx context.Context, c Caller, ids []string) (map[string]ownership.Note, error) {
	if rs.ownership == nil || len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rs.deadline+ownedMargin)
	defer cancel()
	found, err := rs.ownership.Find(ctx, c.Org.ID, ids...)
	return found, stored(err)
}

// ownedMargin allows for a second lookup of what was recorded a moment ago.
const ownedMargin = 100 * time.Millisecond

// refs returns what a request refers to. It omits reasoning if the request is translated,
// because then reasoning is not sent.
func (rs *resolver) refs(c Caller, r *wire.Request) []wire.Ref {
	if !slices.ContainsFunc(r.Refs, func(ref wire.Ref) bool { return ref.Reasoning }) {
		return r.Refs
	}
	t, err := rs.policy.Load().Providers.Resolve(r.Model, c.Org.Providers)
	if err != nil || t.Provider.Wire(r.Endpoint) == r.Endpoint {
		return r.Refs
	}
	return slices.DeleteFunc(slices.Clone(r.Refs), func(ref wire.Ref) bool { return ref.Reasoning })
}

// named finds the objects that refs name, in their order. All must belong to the org, be of the named kind,
// and be at one provider.
func (rs *resolver) named(ctx context.Context, c Caller, refs []wire.Ref) ([]ownership.Note, error) {
	ids := make([]string, len(refs))
	for i, ref := range refs {
		ids[i] = ref.ID
	}
	found, err := rs.notes(ctx, c, ids)
	if err != nil {
		return nil, err
	}
	notes := make([]ownership.Note, len(refs))
	for i, ref := range refs {
		n, ok := found[ref.ID]
		notes[i] = n
		o, first := ref.Kind.Object(), notes[0]
		if !ok || n.Is() != ref.Kind || o.Private && !o.Continued && !created(n, c) ||
			first.Provider != n.Provider || first.Here != n.Here {
			return nil, notOwned(ref)
		}
	}
	return notes, nil
}

func (rs *resolver) resolve(ctx context.Context, c Caller, refs []wire.Ref) (references, error) {
	k, refs, err := rs.prompted(c, refs)
	if err != nil {
		return k, err
	}
	notes, err := rs.named(ctx, c, refs)
	if err != nil {
		return references{}, err
	}
	whole := map[string]bool{} // responses that are used with all their items
	for i, ref := range refs {
		n := notes[i]
		if i == 0 && k.provider != "" && n.Provider != k.provider {
			return references{}, notOwned(ref)
		}
		k.provider, k.here = n.Provider, n.Here
		switch {
		case ref.Kind != wire.ObjectResponse:
			err = rs.content(ctx, c, &k, ref)
		case n.Here:
			k.last = ref.ID
		default:
			whole[ref.ID] = true
			k.tokens += n.Total
			if n.Upstream != "" {
				k.edits = append(k.edits, wire.Edit{Name: "previous_response_id", JSON: strconv.AppendQuote(nil, n.Upstream)})
			}
		}
		if err != nil {
			return references{}, err
		}
	}
	if k.here {
		k.turns, k.items, err = rs.conversation(ctx, c, refs, notes)
		return k, err
	}
	k.tokens += outputs(notes, whole)
	return k, nil
}

// outputs returns the output tokens of the responses that items belong to, except those in whole: each
// counts once.
func outputs(items []ownership.Note, whole map[string]bool) (tokens int64) {
	for _, n := range items {
		if n.Response != "" && !whole[n.Response] {
			whole[n.Response] = true
			tokens += n.Output
		}
	}
	return tokens
}

// notOwned refuses an object that no user of the org created here. The error is the same
// whether or not another org has it.
func notOwned(ref wire.Ref) *wire.Error {
	return wire.NotFound(ref.Param, ref.Kind.Object().Code(),
		"No such %s: %.100q. It must have been created through this proxy by the same organization", ref.Kind.Words(), ref.ID)
}

// note records a response that the provider stores. Before its usage is known, it counts as
// everything the call could hold.
func (e *upstreamCall) note(a wire.Answer) {
	c := e.call
	if c.guard.ownership == nil {
		return
	}
	if a.HasUsage && c.bill.faultOf(a) == "" {
		e.counted(a.Usage)
	}
	if !c.Plan.translated() {
		e.noteMade(a)
	}
	if !c.Plan.Request.Store || a.ID == "" || c.Plan.Request.Endpoint != wire.Responses {
		return
	}
	n := ownership.Note{
		ID: a.ID, User: c.Plan.Caller.User, Born: c.Plan.Caller.UserBorn, Provider: c.Plan.Target.Provider.ID,
		Model: c.Plan.Request.Model, Here: c.Plan.translated(), Total: c.Plan.Input + c.Plan.Output, Output: c.Plan.Output,
	}
	if a.HasUsage {
		n.Total, n.Output = a.Usage.Input+a.Usage.Output, a.Usage.Output
	}
	notes := make([]ownership.Note, 0, 2+len(a.Items))
	notes = append(notes, n)
	if c.Alias != "" && c.Alias != a.ID {
		other := n
		other.ID, other.Upstream = c.Alias, a.ID
		notes = append(notes, other)
	}
	for _, id := range a.Items {
		notes = append(notes, ownership.Note{
			ID: id, User: n.User, Born: n.Born, Provider: n.Provider, Here: n.Here, Response: a.ID,
			Output: n.Output,
		})
	}
	c.guard.ownership.Put(e.upstream, c.Plan.Caller.Org.ID, notes...)
}

func freePrice(t providers.Target, at time.Time) (*pricing.Price, error) {
	zero := pricing.Rate{Given: true}
	e := pricing.Entry{
		Model: t.Model, Provider: t.Provider.ID,
		Prices: []pricing.Row{{Rates: pricing.Rates{Input: zero, Output: zero}}},
	}
	return e.Price(at)
}

// priceOf returns the price of a call of an endpoint to a target, and whether it is free.
func (p *Policy) priceOf(ep wire.Endpoint, t providers.Target,
	at time.Time,
) (price *pricing.Price, free bool, err error) {
	switch traits := ep.Traits(); {
	case !traits.Free:
		price, err = p.price(t, at)
		return price, false, err
	case traits.Priceable:
		price, err = p.Catalogue.Lookup(t.Provider.ID, t.Model, at)
		var unknown *pricing.UnknownModelError
		if !errors.As(err, &unknown) || len(unknown.Providers) > 0 {
			return price, false, err
		}
	}
	price, err = freePrice(t, at)
	return price, true, err
}

// prompted finds the stored prompt among what a request refers to, and returns the rest.
// The operator configures the prompts and what they add, because their account exposes
// neither.
func (rs *resolver) prompted(c Caller, refs []wire.Ref) (k references, rest []wire.Ref, err error) {
	at := slices.IndexFunc(refs, func(ref wire.Ref) bool { return ref.Kind == wire.ObjectPrompt })
	if at < 0 {
		return k, refs, nil
	}
	for _, p := range rs.policy.Load().Providers.All() {
		prompt, ok := p.Prompts[refs[at].ID]
		if !ok || len(c.Org.Providers) > 0 && !slices.Contains(c.Org.Providers, p.ID) || !mayPrompt(c.Org, p.ID, prompt) {
			continue
		}
		k.provider = p.ID
		k.model = prompt.Model
		k.tokens = prompt.InputTokens
		return k, slices.Delete(slices.Clone(refs), at, at+1), nil
	}
	return k, nil, notOwned(refs[at])
}

// mayPrompt reports whether an org may use a prompt. With its own credential it calls
// another account, which has other prompts.
func mayPrompt(o *Org, provider string, p providers.Prompt) bool {
	_, own := o.Credentials[provider]
	return !own && (len(p.Orgs) == 0 || slices.Contains(p.Orgs, o.ID))
}
