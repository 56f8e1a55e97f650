package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// Keeper is the provider that keeps what the caller makes without naming a model: the
// first of the org's whose API is OpenAI's own, else the first that may have it. The
// error is a *wire.Error.
func (g *Guard) Keeper(c Caller) (string, error) {
	all := slices.DeleteFunc(slices.Clone(g.Policy().Providers.All()), func(p *providers.Provider) bool {
		named := len(c.Org.Providers) == 0 || slices.Contains(c.Org.Providers, p.ID)
		return !named || p.ChatOnly || len(p.Pools) == 0
	})
	at := slices.IndexFunc(all, (*providers.Provider).KnowsBothLimits)
	switch {
	case at >= 0:
		return all[at].ID, nil
	case len(all) > 0:
		return all[0].ID, nil
	}
	return "", wire.NotFound("", "not_served", "No provider of your organization keeps files, conversations or the like")
}

// Thing finds something of a kind that a provider keeps for the caller's org. The error
// is ErrNotOwned or wraps budget.ErrUnavailable.
func (g *Guard) Thing(ctx context.Context, c Caller, k ownership.Kind, id string) (ownership.Note, error) {
	n, err := g.Owned(ctx, c, id)
	if err == nil && (n.Kind != k || private(n, c)) {
		return ownership.Note{}, ErrNotOwned
	}
	return n, err
}

// Mentioned finds what a request about such a thing mentions. The error is a *wire.Error
// or wraps budget.ErrUnavailable.
func (g *Guard) Mentioned(ctx context.Context, c Caller, refs []wire.Ref) ([]ownership.Note, error) {
	found, err := g.named(ctx, c, refs)
	if err != nil {
		return nil, err
	}
	notes := make([]ownership.Note, len(refs))
	for i, ref := range refs {
		notes[i] = found[ref.ID]
	}
	return notes, nil
}

// MayKeep reports whether the caller's org may have one more thing of a kind; else the error
// is a *wire.Error or wraps budget.ErrUnavailable.
func (g *Guard) MayKeep(ctx context.Context, c Caller, k ownership.Kind) error {
	if g.ownership == nil {
		return wire.NotFound("", "not_served", "This proxy notes nothing of what providers keep")
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	err := g.ownership.Room(ctx, c.Org.ID, c.User, k)
	if errors.Is(err, ownership.ErrTooMany) {
		return wire.BadRequest("", "too_many_objects",
			"Your organization has %d of these, which is the most it may have. Delete some first", ownership.MostKept)
	}
	if errors.Is(err, ownership.ErrNoRoom) {
		return wire.RateLimited("Your organization has its share of the memory of the store (queue.memory_org_share). "+
			"Delete some of what it keeps", roomPause)
	}
	return stored(err)
}

// roomPause is when to try again what had no room in Redis: it frees memory as things expire.
const roomPause = 10 * time.Second

// KeepThing notes something that a provider has made for the caller. What cannot be noted
// is deleted at the provider.
func (g *Guard) KeepThing(ctx context.Context, c Caller, n ownership.Note) error {
	n.User = c.User
	return g.keepThing(ctx, c, n)
}

func (g *Guard) keepThing(ctx context.Context, c Caller, n ownership.Note) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	if n.Made == 0 {
		n.Made = now().UnixMicro()
	}
	var err error
	for range 3 {
		err = g.ownership.Keep(ctx, c.Org.ID, n)
		if err == nil {
			return nil
		}
	}
	g.discard(ctx, c, n, err)
	return stored(err)
}

// discard deletes at the provider what could not be noted because of an error: no caller
// could use or delete it.
func (g *Guard) discard(ctx context.Context, c Caller, n ownership.Note, cause error) {
	r := providers.Request{Method: http.MethodDelete, Path: thingPaths[n.Kind] + n.ID}
	switch n.Kind {
	case ownership.UploadPart: // goes with its upload
		return
	case ownership.Upload:
		r.Method, r.Path = http.MethodPost, r.Path+"/cancel"
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	log := g.log.With("org", c.Org.ID, "provider", n.Provider, "kind", string(n.Kind), "thing", n.ID, "err", cause)
	status, _, err := g.Read(ctx, c.Org, n, r)
	if err != nil || status >= 300 && status != http.StatusNotFound {
		log.Error("the provider keeps something that could not be noted: no org can use or delete it", "status", status,
			"delete_err", err)
		return
	}
	log.Warn("something that could not be noted was deleted at the provider")
}

// thingPaths are where a provider has what it keeps.
var thingPaths = map[ownership.Kind]string{
	ownership.Conversation: "/conversations/", ownership.File: "/files/", ownership.Upload: "/uploads/",
	ownership.VectorStore: "/vector_stores/",
	ownership.Container:   "/containers/", ownership.Completion: "/chat/completions/",
}

// ChangeThing notes another state of something.
func (g *Guard) ChangeThing(ctx context.Context, c Caller, n ownership.Note) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return stored(g.ownership.Change(ctx, c.Org.ID, n))
}

// ForgetThing drops what the provider keeps no more.
func (g *Guard) ForgetThing(ctx context.Context, c Caller, n ownership.Note) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return stored(g.ownership.Forget(ctx, c.Org.ID, n))
}

// Things lists what the caller's org has of a kind; of what is private, the caller's own.
// The error is owned.ErrNoSuch or wraps budget.ErrUnavailable.
func (g *Guard) Things(ctx context.Context, c Caller, k ownership.Kind,
	p ownership.Page,
) ([]ownership.Note, bool, error) {
	if g.ownership == nil && p.After == "" && p.Before == "" {
		return nil, false, nil
	}
	if g.ownership == nil {
		return nil, false, ownership.ErrNoSuch
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	list, more, err := g.ownership.List(ctx, c.Org.ID, c.User, k, p)
	if errors.Is(err, ownership.ErrNoSuch) {
		return nil, false, err
	}
	return list, more, stored(err)
}

func stored(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", budget.ErrUnavailable, err)
}

// Fee plans a charge that the price of an entry of the catalogue bounds by itself: so
// many units of its per_request. Endpoint is what limits call it by. The error is a
// *wire.Error.
func (g *Guard) Fee(c Caller, provider, endpoint, entry string, units int64) (*Plan, error) {
	policy, at := g.Policy(), now()
	p := policy.Providers.Get(provider)
	if p == nil || len(p.Pools) == 0 {
		return nil, gone()
	}
	target, err := c.Org.owning(providers.Target{Provider: p, Pool: p.Pools[0].ID, Model: entry})
	if err != nil {
		return nil, err
	}
	price, err := policy.Catalogue.Lookup(p.ID, entry, at)
	if err != nil {
		return nil, wire.BadRequest("", "not_priced",
			"This costs money and has no price here: an operator can add one for %q to the prices", entry)
	}
	plan := &Plan{
		Caller: c, Target: target, Price: price, at: at, free: true,
		Request: &wire.Request{Endpoint: wire.Endpoint(endpoint), Model: entry, OutputLimit: -1, N: 1},
		terms:   pricing.Terms{At: at},
	}
	plan.sent = plan.Request
	plan.Max.Cost, err = price.Ceiling(pricing.Usage{Requests: units}, plan.terms)
	if err != nil {
		return nil, wire.BadRequest("", "not_priced", "This cannot be priced: %v", err)
	}
	plan.First = plan.Max
	plan.Limits = plan.applying(c.Org.LimitsFor(c.User, c.Key))
	plan.Caps = plan.capping(policy.Caps)
	return plan, nil
}

// Paid settles a call that was begun with a Fee, by the status of its provider's answer,
// 0 for none, and by the error that came with it, and tells what it cost in the header of
// its answer.
func (c *Call) Paid(h http.Header, status int, err error) {
	r := &c.Result
	r.Status = status
	switch {
	case status >= 200 && status < 300:
		r.Outcome, r.Cost = Completed, c.Max.Cost
		r.Usage.Requests = 1
	case idle(status):
		r.Outcome = refused(status)
		return
	case status == 0 && unsent(err):
		return
	default:
		c.chargeHold(Broken)
	}
	c.tell(h)
}

func gone() *wire.Error {
	return wire.NotFound("id", "provider_gone", "The provider that kept this is no longer configured")
}

// Read asks the provider about something it keeps for an org and returns the answer
// instead of relaying it. Status is 0 when there was none.
func (g *Guard) Read(ctx context.Context, o *Org, n ownership.Note,
	r providers.Request,
) (status int, body []byte, err error) {
	status, err = g.fetch(ctx, &unseen{}, o, n, r, func(_ int, answer []byte) error {
		body = bytes.Clone(answer)
		return errRead
	})
	if errors.Is(err, errRead) {
		err = nil
	}
	return status, body, err
}

var errRead = errors.New("the answer was read")

// unseen takes what is relayed to no one.
type unseen struct{ header http.Header }

func (u *unseen) Header() http.Header {
	if u.header == nil {
		u.header = http.Header{}
	}
	return u.header
}
func (u *unseen) Write(p []byte) (int, error) { return len(p), nil }
func (u *unseen) WriteHeader(int)             {}
