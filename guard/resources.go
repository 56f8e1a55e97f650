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

// Objects is what providers keep for the orgs.
type Objects struct {
	policy      *atomic.Pointer[Policy]
	resolver    *resolver
	ownership   *ownership.Store
	turns       *conversation.Store
	passthrough *Passthrough
	deadline    time.Duration
	log         *slog.Logger
}

// Keeper is the provider that keeps what the caller makes without naming a model: the
// first of the org's whose API is OpenAI's own, else the first that may have it. The
// error is a *wire.Error.
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
	return "", wire.NotFound("", "not_served", "No provider of your organization keeps files, conversations or the like")
}

// Find finds something of a kind that a provider keeps for the caller's org. The error
// is ErrNotOwned or wraps budget.ErrUnavailable.
func (o *Objects) Find(ctx context.Context, c Caller, k ownership.Kind, id string) (ownership.Note, error) {
	n, err := o.Owned(ctx, c, id)
	if err == nil && (n.Kind != k || private(n, c)) {
		return ownership.Note{}, ErrNotOwned
	}
	return n, err
}

// Mentioned finds what a request about such a thing mentions. The error is a *wire.Error
// or wraps budget.ErrUnavailable.
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

// MayKeep reports whether the caller's org may have one more thing of a kind; else the error
// is a *wire.Error or wraps budget.ErrUnavailable.
func (o *Objects) MayKeep(ctx context.Context, c Caller, k ownership.Kind) error {
	if o.ownership == nil {
		return wire.NotFound("", "not_served", "This proxy notes nothing of what providers keep")
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	err := o.ownership.Room(ctx, c.Org.ID, c.User, k)
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

// Keep notes something that a provider has made for the caller. What cannot be noted
// is deleted at the provider.
func (o *Objects) Keep(ctx context.Context, c Caller, n ownership.Note) error {
	n.User = c.User
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

// discard deletes at the provider what could not be noted because of an error: no caller
// could use or delete it.
func (o *Objects) discard(ctx context.Context, c Caller, n ownership.Note, cause error) {
	r := providers.Request{Method: http.MethodDelete, Path: thingPaths[n.Kind] + n.ID}
	switch n.Kind {
	case ownership.UploadPart: // goes with its upload
		return
	case ownership.Upload:
		r.Method, r.Path = http.MethodPost, r.Path+"/cancel"
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	log := o.log.With("org", c.Org.ID, "provider", n.Provider, "kind", string(n.Kind), "thing", n.ID, "err", cause)
	status, _, err := o.passthrough.Read(ctx, Fetch{Org: c.Org, Note: n, Request: r})
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

// Change notes another state of something.
func (o *Objects) Change(ctx context.Context, c Caller, n ownership.Note) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return stored(o.ownership.Change(ctx, c.Org.ID, n))
}

// Forget drops what the provider keeps no more.
func (o *Objects) Forget(ctx context.Context, c Caller, n ownership.Note) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return stored(o.ownership.Forget(ctx, c.Org.ID, n))
}

// List lists what the caller's org has of a kind; of what is private, the caller's own.
// The error is owned.ErrNoSuch or wraps budget.ErrUnavailable.
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
	return list, more, stored(err)
}

func stored(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", budget.ErrUnavailable, err)
}

// Paid settles a call that was begun with a Fee, by the status of its provider's answer,
// 0 for none, and by the error that came with it, and tells what it cost in the header of
// its answer.
func (c *Call) Paid(h http.Header, status int, err error) {
	r := &c.Result
	r.Status = status
	switch {
	case status >= 200 && status < 300:
		r.Outcome, r.Cost = Completed, c.Plan.Max.Cost
		r.Usage.Requests = 1
	case idle(status):
		r.Outcome = refused(status)
		return
	case status == 0 && unsent(err):
		return
	default:
		c.bill.chargeHold(Broken)
	}
	c.tell(h)
}

func gone() *wire.Error {
	return wire.NotFound("id", "provider_gone", "The provider that kept this is no longer configured")
}

// DropResponse forgets a response that the provider keeps no more, or that is kept
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
