package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/responses/conversation"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

// Objects manages what providers store for the orgs.
type Objects struct {
	policy      *atomic.Pointer[Policy]
	resolver    *resolver
	ownership   *ownership.Store
	turns       *conversation.Store
	passthrough *Passthrough
	deadline    time.Duration
	log         *slog.Logger
}

// Keeper returns the provider that stores what the caller creates without naming a model:
// the first of the org's whose API is OpenAI's own, or else the first that may store it.
// The error is a *wire.Error.
func (o *Objects) Keeper(c Caller) (string, error) {
	all := slices.DeleteFunc(slices.Clone(o.policy.Load().Providers.All()), func(p *providers.Provider) bool {
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
	return "", wire.NotFound("", "not_served", "No provider of your organization stores files, conversations or other "+
		"objects")
}

// Find finds a thing of a kind that a provider stores for the caller's org. The error is
// ErrNotOwned or wraps budget.ErrUnavailable.
func (o *Objects) Find(ctx context.Context, c Caller, k ownership.Kind, id string) (ownership.Note, error) {
	n, err := o.Owned(ctx, c, id)
	if err == nil && (n.Kind != k || private(n, c)) {
		return ownership.Note{}, ErrNotOwned
	}
	return n, err
}

// Mentioned finds the things that a request mentions. The error is a *wire.Error or wraps
// budget.ErrUnavailable.
func (o *Objects) Mentioned(ctx context.Context, c Caller, refs []wire.Ref) ([]ownership.Note, error) {
	found, err := o.resolver.named(ctx, c, refs)
	if err != nil {
		return nil, err
	}
	notes := make([]ownership.Note, len(refs))
	for i, ref := range refs {
		notes[i] = found[ref.ID]
	}
	return notes, nil
}

// MayKeep returns nil if the caller's org may have one more thing of a kind. Otherwise the
// error is a *wire.Error or wraps budget.ErrUnavailable.
func (o *Objects) MayKeep(ctx context.Context, c Caller, k ownership.Kind) error {
	if o.ownership == nil {
		return wire.NotFound("", "not_served", "This proxy does not record objects stored at providers, so it cannot "+
			"serve them")
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	err := o.ownership.Room(ctx, c.Org.ID, c.User, k)
	if errors.Is(err, ownership.ErrTooMany) {
		return wire.BadRequest("", "too_many_objects",
			"Your organization has reached the maximum of %d such objects. Delete some first", ownership.MostKept)
	}
	if errors.Is(err, ownership.ErrNoRoom) {
		return wire.RateLimited("Your organization has used up its share of the store's memory (queue.memory_org_share). "+
			"Delete some of its stored objects", roomPause)
	}
	return stored(err)
}

// roomPause is when to retry after Redis had no memory: it frees memory as its contents
// expire.
const roomPause = 10 * time.Second

// Keep records something that a provider has created for the caller. If it cannot be
// recorded, Keep deletes it at the provider.
func (o *Objects) Keep(ctx context.Context, c Caller, n ownership.Note) error {
	n.User, n.Born = c.User, c.UserBorn
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	if n.Made == 0 {
		n.Made = now().UnixMicro()
	}
	var err error
	for range 3 {
		err = o.ownership.Keep(ctx, c.Org.ID, n)
		if err == nil {
			return nil
		}
	}
	o.discard(ctx, c, n, err)
	return stored(err)
}

// discard deletes at the provider what could not be recorded, because no caller could use
// or delete it.
func (o *Objects) discard(ctx context.Context, c Caller, n ownership.Note, cause error) {
	r := providers.Request{Method: http.MethodDelete, Path: thingPaths[n.Kind] + n.ID}
	switch n.Kind {
	case ownership.UploadPart: // deleted with its upload
		return
	case ownership.Upload:
		r.Method, r.Path = http.MethodPost, r.Path+"/cancel"
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	log := o.log.With("org", c.Org.ID, "provider", n.Provider, "kind", string(n.Kind), "thing", n.ID, "err", cause)
	status, _, err := o.passthrough.Read(ctx, Fetch{Org: c.Org, Note: n, Request: r})
	if err != nil || status >= 300 && status != http.StatusNotFound {
		log.Error("object created at the provider but not recorded, no org can use or delete it", "status", status,
			"delete_err", err)
		return
	}
	log.Warn("object that could not be recorded was deleted at the provider")
}

// thingPaths are the providers' paths of the things they store.
var thingPaths = map[ownership.Kind]string{
	ownership.Conversation: "/conversations/", ownership.File: "/files/", ownership.Upload: "/uploads/",
	ownership.VectorStore: "/vector_stores/",
	ownership.Container:   "/containers/", ownership.Completion: "/chat/completions/",
}

// Change records a new state of a thing.
func (o *Objects) Change(ctx context.Context, c Caller, n ownership.Note) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return stored(o.ownership.Change(ctx, c.Org.ID, n))
}

// Forget removes the record of what the provider no longer stores.
func (o *Objects) Forget(ctx context.Context, c Caller, n ownership.Note) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return stored(o.ownership.Forget(ctx, c.Org.ID, n))
}

// List lists the things of a kind that the caller's org has; of private kinds only the
// caller's own. The error is ownership.ErrNoSuch or wraps budget.ErrUnavailable.
func (o *Objects) List(ctx context.Context, c Caller, k ownership.Kind,
	p ownership.Page,
) ([]ownership.Note, bool, error) {
	if o.ownership == nil && p.After == "" && p.Before == "" {
		return nil, false, nil
	}
	if o.ownership == nil {
		return nil, false, ownership.ErrNoSuch
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	list, more, err := o.ownership.List(ctx, c.Org.ID, c.User, k, p)
	if errors.Is(err, ownership.ErrNoSuch) {
		return nil, false, err
	}
	list = slices.DeleteFunc(list, func(n ownership.Note) bool { return private(n, c) })
	return list, more, stored(err)
}

func stored(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", budget.ErrUnavailable, err)
}

// Paid settles a call that was begun with a Fee, by the status of its provider's answer (0
// for none) and the error that came with it, and reports its cost in the headers of its
// answer.
func (c *Call) Paid(h http.Header, status int, err error) {
	r := &c.Result
	r.Status = status
	switch {
	case status >= 200 && status < 300:
		r.Outcome, r.Cost = Completed, c.Plan.Max.Cost
		r.Usage.Requests = 1
	case busy(status):
		r.Outcome = Busy
		return
	case status >= http.StatusInternalServerError: // a complete answer, so nothing was made
		r.Outcome = UpstreamError
		return
	case status > 0:
		r.Outcome = Rejected
		return
	case unsent(err):
		return
	default:
		c.bill.chargeHold(Broken)
	}
	c.tell(h)
}

func gone() *wire.Error {
	return wire.NotFound("id", "provider_gone", "The provider that stores this object is no longer configured")
}

// DropResponse forgets a response that the provider no longer stores, or that is stored
// here.
func (o *Objects) DropResponse(ctx context.Context, c Caller, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	var err error
	if o.turns != nil { // the text first: without its note it could not be found
		err = o.turns.Drop(ctx, c.Org.ID, id)
	}
	if o.ownership == nil {
		return err
	}
	return errors.Join(err, o.ownership.Drop(ctx, c.Org.ID, id))
}
