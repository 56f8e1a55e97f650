package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/ownership"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// Objects manages what providers, or we, store for the orgs.
type Objects struct {
	*resolver
	passthrough *Passthrough
	storage     *Storage
	log         *slog.Logger
}

// ObjectRequest is a request about objects.
type ObjectRequest struct {
	wire.Operation
	Caller Caller
	// Note is of the object that the path names. If it names none, Note has what is known in advance of the
	// object that is to be created.
	Note     ownership.Note
	Mentions wire.Mentions    // in the body
	Named    []ownership.Note // the objects that Mentions refer to
	Request  providers.Request
	Call     *Call  // pays for the request; nil if it is free
	ID       string // of the request

	addition addition // to a conversation
}

// Find finds an object of a kind that the caller may see. The error is ErrNotOwned or wraps
// budget.ErrUnavailable.
func (o *Objects) Find(ctx context.Context, c Caller, k wire.ObjectKind, id string) (ownership.Note, error) {
	found, err := o.notes(ctx, c, []string{id})
	if err != nil {
		return ownership.Note{}, err
	}
	n, ok := found[id]
	if !ok || n.Is() != k || k.Object().Private && !created(n, c) {
		return ownership.Note{}, ErrNotOwned
	}
	return n, nil
}

// created reports whether the caller's user created an object.
func created(n ownership.Note, c Caller) bool { return n.User == c.User && n.Born == c.UserBorn }

// Place finds what a request mentions, and the provider that stores all of it and what the request creates,
// if the org may have one more. The error is a *wire.Error or wraps budget.ErrUnavailable.
func (o *Objects) Place(ctx context.Context, q *ObjectRequest) (err error) {
	q.Named, err = o.named(ctx, q.Caller, q.Mentions.Refs)
	if err != nil {
		return err
	}
	for i, n := range q.Named {
		switch {
		case q.Note.Provider == "":
			q.Note.Provider = n.Provider
		case n.Provider != q.Note.Provider, n.Kind == wire.ObjectUploadPart && n.Of != q.Note.ID:
			ref := q.Mentions.Refs[i]
			return wire.NotFound(ref.Param, "not_found", "%.100q belongs to another provider or upload", ref.ID)
		}
	}
	if q.Note.Provider == "" {
		q.Note.Provider, err = o.keeper(q.Caller)
	}
	if err == nil && q.Makes != "" {
		err = o.mayKeep(ctx, q.Caller, q.Makes)
	}
	return err
}

// keeper returns the provider that stores what the caller creates without naming a model: the first of the
// org's whose API is OpenAI's own, or else the first that may store it. The error is a *wire.Error.
func (o *Objects) keeper(c Caller) (string, error) {
	all := slices.DeleteFunc(slices.Clone(o.policy.Load().Providers.All()), func(p *providers.Provider) bool {
		named := len(c.Org.Providers) == 0 || slices.Contains(c.Org.Providers, p.ID)
		return !named || p.Wire(wire.Responses) != wire.Responses || len(p.Pools) == 0
	})
	if len(all) == 0 {
		return "", wire.NotFound("", "not_served", "No provider of your organization stores files, conversations or other "+
			"objects")
	}
	return all[max(slices.IndexFunc(all, (*providers.Provider).KnowsBothLimits), 0)].ID, nil
}

// mayKeep returns nil if the caller's org may have one more object of a kind.
func (o *Objects) mayKeep(ctx context.Context, c Caller, k wire.ObjectKind) error {
	if o.ownership == nil {
		return wire.NotFound("", "not_served", "This proxy does not record objects stored at providers, so it cannot "+
			"serve them")
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	err := o.ownership.Room(ctx, c.Org.ID, c.User, k)
	switch {
	case errors.Is(err, ownership.ErrTooMany):
		return wire.BadRequest("", "too_many_objects",
			"Your organization has reached the maximum of %d such objects. Delete some first", ownership.MostKept)
	case errors.Is(err, ownership.ErrNoRoom):
		return wire.RateLimited("Your organization has used up its share of the store's memory (queue.memory_org_share). "+
			"Delete some of its stored objects", roomPause)
	}
	return stored(err)
}

// roomPause is when to retry after Redis had no memory: it frees memory as its contents
// expire.
const roomPause = 10 * time.Second

// changeTimeout bounds a request that creates or deletes something, even if its caller leaves.
const changeTimeout = 10 * time.Minute

// Send sends a request that was placed, relays the answer to w, and records what it changes. What it creates
// is recorded before w has the answer. Status and error are those of [Passthrough.Relay].
func (o *Objects) Send(ctx context.Context, w http.ResponseWriter, q *ObjectRequest) (status int, err error) {
	if q.Makes != "" || q.Ends() { // a caller that leaves does not undo what the provider does
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
		defer cancel()
	}
	if q.Ends() && q.Object.Storage != "" {
		err = stored(o.storage.End(ctx, q.Caller, q.Note, time.Now()))
	} else if q.Of() && q.Object.Kind == wire.ObjectConversation {
		err = o.addItems(ctx, q, q.Note.ID)
	}
	if err != nil {
		return 0, err
	}
	status, err = o.passthrough.Relay(ctx, w, Fetch{
		Org: q.Caller.Org, Note: q.Note, Request: q.Request,
		Seen: func(status int, answer []byte) error { return o.seen(ctx, w.Header(), q, status, answer) },
	})
	if q.Call != nil && (err != nil || status >= 300) {
		q.Call.Paid(http.Header{}, status, err)
	}
	q.itemsAdded(ctx, status, err)
	o.changed(ctx, q, status)
	return status, err
}

// madeObject describes what an answer created.
type madeObject struct {
	ID      string      `json:"id"`
	Bytes   int64       `json:"bytes"`
	Purpose string      `json:"purpose"`
	Name    string      `json:"filename"`
	Created int64       `json:"created_at"` // Unix seconds, as is Expires
	Expires int64       `json:"expires_at"`
	Status  string      `json:"status"`
	File    *madeObject `json:"file"` // of a completed upload
}

// seen charges what an answer costs, in the headers h, and records what it created.
func (o *Objects) seen(ctx context.Context, h http.Header, q *ObjectRequest, status int, answer []byte) error {
	var made madeObject
	if q.Makes != "" || q.Call != nil {
		_ = json.Unmarshal(answer, &made) // the fields that are needed are checked
	}
	if q.Makes == wire.ObjectFile && made.File != nil {
		made = *made.File
	}
	if q.Call != nil {
		if made.Status == "expired" && (q.Whole() || q.Makes != "") { // there is no session any more
			status = http.StatusNotFound
		}
		q.Call.Paid(h, status, nil)
	}
	if q.Makes == "" {
		return nil
	}
	if !wire.PlainID(made.ID) {
		return wire.BadGateway("The provider's response has no usable id", nil)
	}
	n := ownership.Note{
		ID: made.ID, Until: made.Expires, Created: made.Created, Kind: q.Makes, Provider: q.Note.Provider, Of: q.Note.ID,
		Bytes: max(made.Bytes, 0), Purpose: made.Purpose, Name: made.Name,
	}
	if !q.Of() {
		n.Paid, n.Unit = q.Note.Paid, q.Note.Unit
	}
	if n.Kind.Object().Storage != "" {
		n.Paid, n.Bytes = time.Now().Unix(), 0
	}
	err := o.keep(ctx, q.Caller, n)
	if err == nil && q.Makes == wire.ObjectConversation { // nothing else can be in progress in it yet
		err = o.addItems(ctx, q, n.ID)
	}
	return err
}

func (o *Objects) changed(ctx context.Context, q *ObjectRequest, status int) {
	var err error
	gone := q.Ends() && status >= 200 && status < 300
	missing := status == http.StatusNotFound && q.Whole() && q.Request.Query == "" && q.Method != http.MethodPost
	if gone || missing {
		err = o.Forget(ctx, q.Caller, q.Note)
	} else if q.Of() && q.Object.Session != nil && q.Call != nil && q.Call.Result.Outcome == Completed {
		q.Note.Paid = time.Now().Add(q.Object.Session.Lasts).Unix()
		err = o.Change(ctx, q.Caller, q.Note)
	}
	if err != nil {
		o.log.Warn("record of an object at a provider not updated", "id", q.ID, "err", err)
	}
}

// keep records something that a provider has created for the caller. If it cannot be recorded, keep deletes
// it at the provider, because no caller could use or delete it.
func (o *Objects) keep(ctx context.Context, c Caller, n ownership.Note) error {
	n.User, n.Born, n.Made = c.User, c.UserBorn, time.Now().UnixMicro()
	once, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	var err error
	for range 3 {
		err = o.ownership.Keep(once, c.Org.ID, n)
		if err == nil {
			return nil
		}
	}
	discard := n.Kind.Object().Discard(n.ID)
	if discard == nil { // deleted with what it is part of
		return stored(err)
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer cancel()
	log := o.log.With("org", c.Org.ID, "provider", n.Provider, "kind", string(n.Kind), "thing", n.ID, "err", err)
	r := providers.Request{Method: discard.Method, Path: discard.Path}
	status, _, failed := o.passthrough.Read(ctx, Fetch{Org: c.Org, Note: n, Request: r})
	if failed != nil || status >= 300 && status != http.StatusNotFound {
		log.Error("object created at the provider but not recorded, no org can use or delete it", "status", status,
			"delete_err", failed)
	} else {
		log.Warn("object that could not be recorded was deleted at the provider")
	}
	return stored(err)
}

// Change records a new state of an object.
func (o *Objects) Change(ctx context.Context, c Caller, n ownership.Note) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	return stored(o.ownership.Change(ctx, c.Org.ID, n))
}

// Forget removes the record of an object that is no longer stored, and a response that is stored here.
func (o *Objects) Forget(ctx context.Context, c Caller, n ownership.Note) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if o.turns != nil && n.Is() == wire.ObjectResponse { // the text first: without its note it could not be found
		err = o.turns.Drop(ctx, c.Org.ID, n.ID)
	}
	if o.ownership != nil {
		err = errors.Join(err, o.ownership.Forget(ctx, c.Org.ID, n))
	}
	return stored(err)
}

// List lists the objects of a kind that the caller may see. The error is ownership.ErrNoSuch or wraps
// budget.ErrUnavailable.
func (o *Objects) List(ctx context.Context, c Caller, k wire.ObjectKind,
	p ownership.Page,
) (list []ownership.Note, more bool, err error) {
	switch {
	case o.ownership == nil && p.After == "" && p.Before == "":
		return nil, false, nil
	case o.ownership == nil:
		return nil, false, ownership.ErrNoSuch
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	list, more, err = o.ownership.List(ctx, c.Org.ID, c.User, k, p)
	if errors.Is(err, ownership.ErrNoSuch) {
		return nil, false, err
	}
	if k.Object().Private { // an earlier user may have had the caller's id
		list = slices.DeleteFunc(list, func(n ownership.Note) bool { return !created(n, c) })
	}
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
	case NotSent(err):
		return
	default:
		c.bill.chargeHold(Broken)
	}
	c.tell(h)
}

func gone() *wire.Error {
	return wire.NotFound("id", "provider_gone", "The provider that stores this object is no longer configured")
}

// ObjectFee plans what a request that was placed costs; nil if it is free. later means that the plan only
// checks whether the limits have capacity for storage, each day of which is charged when it ends.
func (pl *Planner) ObjectFee(q *ObjectRequest) (plan *Plan, later bool, err error) {
	o, entry, units := q.Object, "", int64(1)
	switch {
	case q.Fee != "":
		entry = pricing.Service + q.Fee
	case q.Adds:
		var size int64
		for _, n := range q.Named {
			size += n.Bytes
		}
		entry, units, later = pricing.Service+o.Storage, megabytes(size), true
	case q.Makes == o.Kind:
		size, err := o.Session.Size(q.Mentions.MemoryLimit)
		if err != nil {
			return nil, false, err
		}
		q.Note = withSession(q.Note, o.Session, size)
		entry = q.Note.Unit
	case time.Now().Unix() >= q.Note.Paid: // the last session has ended
		entry = q.Note.Unit
	default:
		return nil, false, nil
	}
	if units == 0 {
		return nil, false, nil
	}
	plan, err = pl.Fee(q.Caller, q.Note.Provider, o.Name(), entry, units)
	return plan, later, err
}

// withSession returns the note of an object that has begun a session of a size.
func withSession(n ownership.Note, s *wire.Session, size string) ownership.Note {
	n.Unit, n.Paid = pricing.Service+s.Entry+size, time.Now().Add(s.Lasts).Unix()
	return n
}
