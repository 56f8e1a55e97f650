package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/responses/conversation"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// references is what a request uses without containing it.
type references struct {
	provider string // that keeps it; empty when there is nothing
	tokens   int64  // of hidden input
	edits    []wire.Edit

	model        string // of the stored prompt
	conversation string // the id of one that the answer is added to
	total        int64  // tokens it holds, never below the truth
	pictures     int64  // files shown as pictures
	documents    int64  // other files, of which the provider reads any number of tokens

	// Of what is kept here:
	here  bool
	turns []conversation.Turn
	last  string            // the id of the last of them
	items map[string][]byte // that are referred to, by id
}

// only narrows the providers to the one that keeps what is referred to.
func (k references) only(allowed []string) []string {
	if k.provider == "" {
		return allowed
	}
	return []string{k.provider}
}

// ErrNotOwned says that the org has no such thing, whoever else may have it.
var ErrNotOwned = errors.New("the org has no such thing")

// resolver finds what providers, or we, keep for the orgs.
type resolver struct {
	policy    *atomic.Pointer[Policy]
	ownership *ownership.Store
	turns     *conversation.Store
	deadline  time.Duration
}

// Owned finds a thing a provider keeps for the caller's org. The error is
// ErrNotOwned or wraps budget.ErrUnavailable.
func (o *Objects) Owned(ctx context.Context, c Caller, id string) (ownership.Note, error) {
	found, err := o.resolver.notes(ctx, c, []string{id})
	if err != nil {
		return ownership.Note{}, err
	}
	n, ok := found[id]
	if !ok {
		return n, ErrNotOwned
	}
	return n, nil
}

func (rs *resolver) notes(ctx context.Context, c Caller, ids []string) (map[string]ownership.Note, error) {
	if rs.ownership == nil || len(ids) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rs.deadline+ownedMargin)
	defer cancel()
	found, err := rs.ownership.Find(ctx, c.Org.ID, ids...)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", budget.ErrUnavailable, err)
	}
	return found, nil
}

// ownedMargin is for the second look for what was noted a moment ago.
const ownedMargin = 100 * time.Millisecond

// refs are what a request refers to. Reasoning is left out where it goes nowhere:
// in what is translated.
func (rs *resolver) refs(c Caller, r *wire.Request) []wire.Ref {
	if !slices.ContainsFunc(r.Refs, func(ref wire.Ref) bool { return ref.Reasoning }) {
		return r.Refs
	}
	t, err := rs.policy.Load().Providers.Resolve(r.Model, c.Org.Providers)
	if err != nil || !t.Provider.ChatOnly {
		return r.Refs
	}
	return slices.DeleteFunc(slices.Clone(r.Refs), func(ref wire.Ref) bool { return ref.Reasoning })
}

// kinds are what mentions of things name. Nothing else can be made through us and
// stay with the provider, so it is nobody's.
var kinds = map[wire.RefKind]ownership.Kind{
	wire.RefResponse: "", wire.RefItem: "", wire.RefConversation: ownership.Conversation, wire.RefFile: ownership.File,
	wire.RefVectorStore: ownership.VectorStore, wire.RefContainer: ownership.Container,
	wire.RefUploadPart: ownership.UploadPart,
}

// named finds the things that refs name. Each is the org's, of the kind named, and they
// are at one provider.
func (rs *resolver) named(ctx context.Context, c Caller, refs []wire.Ref) (map[string]ownership.Note, error) {
	ids := make([]string, 0, len(refs))
	for _, ref := range refs {
		if _, ok := kinds[ref.Kind]; !ok {
			return nil, notOwned(ref)
		}
		ids = append(ids, ref.ID)
	}
	found, err := rs.notes(ctx, c, ids)
	if err != nil {
		return nil, err
	}
	for i, ref := range refs {
		n, ok := found[ref.ID]
		isItem, first := n.Response != "", found[refs[0].ID]
		switch {
		case !ok, n.Kind != kinds[ref.Kind], isItem != (ref.Kind == wire.RefItem), private(n, c),
			i > 0 && (first.Provider != n.Provider || first.Here != n.Here):
			return nil, notOwned(ref)
		}
	}
	return found, nil
}

// private reports whether a thing is another user's alone.
func private(n ownership.Note, c Caller) bool { return n.Kind.Private() && n.User != c.User }

// resolve finds what a request refers to.
func (rs *resolver) resolve(ctx context.Context, c Caller, refs []wire.Ref) (references, error) {
	k, refs, err := rs.prompted(c, refs)
	if err != nil {
		return k, err
	}
	found, err := rs.named(ctx, c, refs)
	if err != nil {
		return references{}, err
	}
	if len(refs) > 0 && k.provider != "" && found[refs[0].ID].Provider != k.provider {
		return references{}, notOwned(refs[0])
	}
	counted, of := map[string]bool{}, map[string]string{}
	for _, ref := range refs { // whole responses first: they include their items
		n := found[ref.ID]
		k.provider, k.here = n.Provider, n.Here
		switch {
		case n.Kind != "":
			if err := rs.thing(ctx, c, &k, ref); err != nil {
				return references{}, err
			}
			continue
		case ref.Kind == wire.RefItem:
			of[ref.ID] = n.Response
			continue
		case n.Here:
			k.last = ref.ID
			continue
		}
		counted[ref.ID] = true
		if n.Upstream != "" {
			k.edits = append(k.edits, wire.Edit{Name: "previous_response_id", JSON: strconv.AppendQuote(nil, n.Upstream)})
		}
		k.tokens += n.Total
	}
	if k.here {
		k.turns, k.items, err = rs.conversation(ctx, c, refs, of)
		return k, err
	}
	for _, ref := range refs {
		if n := found[ref.ID]; n.Kind == "" && n.Response != "" && !counted[n.Response] {
			counted[n.Response] = true
			k.tokens += n.Output
		}
	}
	return k, nil
}

// notOwned refuses what nobody in the org has made here. It reads the same
// whether anybody else has.
func notOwned(ref wire.Ref) *wire.Error {
	codes := map[wire.RefKind]string{
		wire.RefResponse: "previous_response_not_found", wire.RefFile: "file_not_found",
	}
	code := codes[ref.Kind]
	if code == "" {
		code = string(ref.Kind) + "_not_found"
	}
	return wire.NotFound(ref.Param, code,
		"No such %s: %.100q. It must have been made through this proxy by the same org", spaced(ref.Kind), ref.ID)
}

func spaced(k wire.RefKind) string {
	return strings.ReplaceAll(string(k), "_", " ")
}

// note remembers a response that the provider keeps. Before its usage is known
// it may hold all that the call could.
func (e *upstreamCall) note(a wire.Answer) {
	c := e.call
	if c.guard.ownership == nil {
		return
	}
	if a.HasUsage && c.bill.faultOf(a) == "" {
		e.counted(a.Usage)
	}
	e.noteContainers(a)
	if !c.Plan.Request.Store || a.ID == "" {
		return
	}
	if c.Plan.Request.Endpoint == wire.ChatCompletions && !c.Plan.translated() {
		e.noteCompletion(a)
	}
	if c.Plan.Request.Endpoint != wire.Responses {
		return
	}
	n := ownership.Note{
		ID: a.ID, User: c.Plan.Caller.User, Provider: c.Plan.Target.Provider.ID, Model: c.Plan.Request.Model,
		Here: c.Plan.translated(), Total: c.Plan.Input + c.Plan.Output, Output: c.Plan.Output,
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
			ID: id, User: n.User, Provider: n.Provider, Here: n.Here, Response: a.ID,
			Output: n.Output,
		})
	}
	c.guard.ownership.Put(e.upstream, c.Plan.Caller.Org.ID, notes...)
}

// freePrice is the price of what costs nothing.
func freePrice(t providers.Target, at time.Time) (*pricing.Price, error) {
	zero := pricing.Rate{Given: true}
	e := pricing.Entry{
		Model: t.Model, Provider: t.Provider.ID,
		Prices: []pricing.Row{{Rates: pricing.Rates{Input: zero, Output: zero}}},
	}
	return e.Price(at)
}

// priceOf finds what a call of an endpoint to a target costs. Counting tokens is
// free, whatever the model costs, and so are moderations by a model without a price.
func (p *Policy) priceOf(ep wire.Endpoint, t providers.Target,
	at time.Time,
) (price *pricing.Price, free bool, err error) {
	switch {
	case !ep.Free():
		price, err = p.price(t, at)
		return price, false, err
	case ep == wire.Moderations:
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
// The operator lists the prompts and what they add: their account shows neither.
func (rs *resolver) prompted(c Caller, refs []wire.Ref) (k references, rest []wire.Ref, err error) {
	at := slices.IndexFunc(refs, func(ref wire.Ref) bool { return ref.Kind == wire.RefPrompt })
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
