package guard

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/cache"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/idempotency"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// maxCachePuts bounds the answers being stored at a time. Others are not stored.
const maxCachePuts = 32

// reuse is what one attempt has to do with the response cache of its org. It is not safe for
// concurrent use.
type reuse struct {
	guard *Guard
	plan  *Plan // of the request, before anything is answered from the cache
	org   *Org

	id    string        // of the answer; empty if the cache is not used
	state cache.Outcome // of the request; empty if the cache is not used
	found *cache.Answer // of a hit
	room  int64         // spool memory taken for found
	kept  *spool.Copy   // the answer to be stored; nil if it is not stored

	waited time.Duration // for Redis
}

// reuse looks for an answer to the request in the cache of its org, as org and request allow.
// Whatever fails counts as a miss. The result must be closed.
func (g *Guard) reuse(ctx context.Context, p *Plan, a *Attempt) *reuse {
	u := &reuse{guard: g, plan: p, org: p.Caller.Org}
	wish, err := ParseCacheWish(a.Header, u.org)
	if g.cache == nil || err != nil || !wish.uses(u.org.Cache) {
		return u
	}
	if a.Send != nil || !p.reusable() {
		u.note(cache.Skipped)
		return u
	}
	u.id = p.cacheID(a)
	most := wish.oldest(u.org.Cache)
	if most > 0 {
		u.look(ctx, most)
	}
	if u.found != nil {
		u.note(cache.Hit)
		return u
	}
	u.note(cache.Miss)
	u.kept = g.spool.Memory.Copy(u.org.ID, cache.MaxBody)
	return u
}

func (u *reuse) note(o cache.Outcome) {
	u.state = o
	u.guard.cache.Note(o)
}

// close returns the memory.
func (u *reuse) close() {
	if u.kept != nil {
		u.kept.Close()
	}
	if u.room > 0 {
		u.guard.spool.Memory.Give(u.org.ID, u.room)
	}
}

// look reads the answer unless the store is known to be unavailable.
func (u *reuse) look(ctx context.Context, most time.Duration) {
	g := u.guard
	if g.Outage.circuit.Open(u.org.ID) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, g.deadline)
	defer cancel()
	began := time.Now()
	found, err := g.cache.Get(ctx, u.org.ID, u.id)
	u.waited = time.Since(began)
	switch {
	case err != nil:
		g.cache.Note(cache.Failed)
		g.log.Debug("response cache not read", "org", u.org.ID, "err", err)
	case found == nil || found.Age > most:
	case g.spool.Memory.Try(u.org.ID, int64(len(found.Body))):
		u.found, u.room = found, int64(len(found.Body))
	}
}

// reusable reports whether an answer to the plan's request may answer another one: it depends on
// nothing but the request, and nothing else refers to it.
func (p *Plan) reusable() bool {
	r := p.Request
	switch {
	case !r.Endpoint.Traits().Reusable, r.Form != nil, r.Creation != nil, p.instead != "", p.Caller.Batched:
		return false
	case r.Store, r.Background, len(r.Refs) > 0: // stored things change, and belong to one caller
		return false
	case len(r.BuiltinTools) > 0, r.WebSearch: // the world changes
		return false
	case !r.Audio.IsZero(): // the answer has an id for the next request
		return false
	}
	return !r.Remote()
}

// cacheID identifies the request within its org: everything that determines the answer, as the
// caller and as the provider see it.
func (p *Plan) cacheID(a *Attempt) string {
	parts := [][]byte{
		[]byte(p.Request.Endpoint), []byte(a.Query), []byte(p.Target.Provider.ID), []byte(p.Target.Model),
		p.Request.Body,
	}
	for _, name := range [...]string{"Openai-Beta", "Anthropic-Beta", "Anthropic-Version"} {
		for _, value := range a.Header.Values(name) {
			parts = append(parts, []byte(value))
		}
	}
	for _, e := range p.edits {
		parts = append(parts, []byte(e.Name), e.JSON)
	}
	return string(idempotency.FingerprintOf(parts...))
}

// hit returns the plan of a request that is answered from the cache: it costs the org's share of
// what the original call cost, and takes no quota.
func (u *reuse) hit() *Plan {
	p := *u.plan
	p.cached = true
	p.Max = budget.Amounts{Cost: cachedCost(u.org.Cache.Cost, u.found.Cost)}
	p.First = p.Max
	p.Quota, p.start, p.step = 0, 0, 0
	return &p
}

// cachedCost returns a share of the original cost, rounded up to a nano-dollar.
func cachedCost(share settings.Percent, original pricing.Nano) pricing.Nano {
	whole, rest, part := original/100, original%100, pricing.Nano(share)
	return whole*part + (rest*part+99)/100
}

// replay answers a call from the cache. It is the Send of its Attempt; sent is that of the
// attempt.
func (u *reuse) replay(sent func()) func(context.Context, *Call, http.ResponseWriter, func() bool) error {
	return func(_ context.Context, c *Call, w http.ResponseWriter, fresh func() bool) error {
		if !fresh() {
			return providers.ErrStale
		}
		began := time.Now()
		c.Result = Result{Outcome: Cached, Status: u.found.Status, Cost: c.Plan.Max.Cost, Ended: true}
		if sent != nil {
			sent()
		}
		h := w.Header()
		for name, values := range u.found.Header {
			h[name] = values
		}
		c.tell(h)
		h.Set("Age", strconv.FormatInt(int64(u.found.Age/time.Second), 10))
		if !c.Plan.Request.Stream {
			h.Set("Content-Length", strconv.Itoa(len(u.found.Body)))
		}
		w.WriteHeader(u.found.Status)
		err := written(w.Write(u.found.Body))
		if c.Plan.Request.Stream && err == nil {
			c.trail(h)
			err = written(0, http.NewResponseController(w).Flush())
		}
		c.Result.Took = time.Since(began)
		c.guard.metrics.ended(c)
		c.guard.cache.Saved(u.found.Cost - c.Result.Cost)
		return err
	}
}

// tape is a ResponseWriter that copies an answer on its way to the caller.
type tape struct {
	http.ResponseWriter
	kept   *spool.Copy
	status int
	header http.Header
}

// keptHeaders are the headers of an answer that are stored with it.
var keptHeaders = []string{"Content-Type", "Openai-Model", "Openai-Version", "X-Accel-Buffering"}

func (t *tape) WriteHeader(status int) {
	if t.status == 0 {
		t.status, t.header = status, http.Header{}
		for _, name := range keptHeaders {
			if v := t.Header().Values(name); len(v) > 0 {
				t.header[name] = v
			}
		}
	}
	t.ResponseWriter.WriteHeader(status)
}

func (t *tape) Write(p []byte) (int, error) {
	t.kept.Add(p)
	return t.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController flush the answer.
func (t *tape) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// record returns the writer for the answer of a call that was begun, and the function that stores
// the answer if it was written whole. Many clients leave at the last event of a stream.
func (u *reuse) record(c *Call, w http.ResponseWriter) (http.ResponseWriter, func(context.Context)) {
	if u.kept == nil || c.Plan != u.plan { // a cheaper model answers
		return w, func(context.Context) {}
	}
	t := &tape{ResponseWriter: w, kept: u.kept}
	return t, func(ctx context.Context) {
		if c.Result.Relayed && t.status == http.StatusOK && c.Result.complete() {
			u.keep(ctx, t, c.Result.Cost)
		}
	}
}

// complete reports whether the answer was complete, without an error, and billed exactly.
func (r *Result) complete() bool {
	return r.Ended && r.Outcome == Completed && !r.Failed && !r.Estimated && r.Fault == "" &&
		r.Ending == nil && r.Refusal == nil
}

// keep stores the recorded answer, soon.
func (u *reuse) keep(ctx context.Context, t *tape, cost pricing.Nano) {
	g := u.guard
	body, whole := t.kept.Bytes()
	if !whole {
		g.cache.Note(cache.Full)
		return
	}
	select {
	case g.cachePuts <- struct{}{}:
	default:
		g.cache.Note(cache.Full)
		return
	}
	made := u.kept
	u.kept = nil // closed once it is stored
	a := cache.Answer{Status: t.status, Header: t.header, Cost: cost, Body: body}
	g.settler.settling.Go(func() {
		defer func() { <-g.cachePuts; made.Close() }()
		g.store(ctx, u.org, u.id, a)
	})
}

// store writes an answer to the cache of an org.
func (g *Guard) store(ctx context.Context, o *Org, id string, a cache.Answer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	err := g.cache.Put(ctx, o.ID, id, a, cache.Bound{Life: o.Cache.MaxAge, MaxBytes: int64(o.Cache.MaxBytes)})
	switch {
	case err == nil:
		g.cache.Note(cache.Stored)
	case errors.Is(err, cache.ErrTooLarge), capacity.IsFull(err):
		g.cache.Note(cache.Full)
	default:
		g.cache.Note(cache.Failed)
		g.log.Debug("answer not stored in the response cache", "org", o.ID, "err", err)
	}
}
