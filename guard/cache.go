package guard

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/cache"
	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/idempotency"
	"github.com/llmguard/llmguard/internal/spool"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// maxCachePuts bounds the answers being stored at a time. Others are not stored.
const maxCachePuts = 32

// cacheUse is how one attempt uses the response cache of its org. It is not safe for concurrent use.
type cacheUse struct {
	guard *Guard
	plan  *Plan // of the request, as if the provider answered it
	org   *Org

	id    string        // of the answer; empty if the cache is not used
	state cache.Outcome // of the request; empty if the cache is not used
	found *cache.Answer // of a hit
	room  int64         // spool memory taken for found
	copy  *spool.Copy   // of the provider's answer, to be stored; nil if it is not stored

	waited time.Duration // for Redis, since the request was read
}

// useCache looks for an answer to the request in the cache of its org, as org and request allow.
// Whatever fails counts as a miss. The result must be closed.
func (g *Guard) useCache(ctx context.Context, p *Plan, a *Attempt) *cacheUse {
	u := &cacheUse{guard: g, plan: p, org: p.Caller.Org, waited: p.kept.waited}
	wish, err := ParseCacheWish(a.Header, u.org)
	if g.cache == nil || err != nil || !wish.uses(u.org.Cache) {
		return u
	}
	if a.Send != nil || !p.reusable() {
		u.count(cache.Skipped)
		return u
	}
	u.id = p.cacheID(a)
	most := wish.oldest(u.org.Cache)
	if most > 0 {
		u.find(ctx, most)
	}
	if u.found != nil {
		u.count(cache.Hit)
		return u
	}
	u.count(cache.Miss)
	u.copy = g.spool.Memory.Copy(u.org.ID, cache.MaxBody)
	return u
}

func (u *cacheUse) count(o cache.Outcome) {
	u.state = o
	u.guard.cache.Note(o)
}

func (u *cacheUse) close() {
	if u.copy != nil {
		u.copy.Close()
	}
	if u.room > 0 {
		u.guard.spool.Memory.Give(u.org.ID, u.room)
	}
}

// find reads the answer unless the store is known to be unavailable.
func (u *cacheUse) find(ctx context.Context, most time.Duration) {
	g := u.guard
	if g.Outage.circuit.Open(u.org.ID) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, g.deadline)
	defer cancel()
	began := time.Now()
	found, err := g.cache.Get(ctx, u.org.ID, u.id)
	u.waited += time.Since(began)
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

// answer makes a call with the answer that was found, for the org's share of the original's cost.
func (u *cacheUse) answer(ctx context.Context, a *Attempt, w http.ResponseWriter) (*Call, error) {
	return u.guard.answerHere(ctx, u.hit(), a, func(c *Call) error {
		c.watch.Redis += u.waited
		c.Result = Result{Outcome: Cached, Status: u.found.Status, Cost: c.Plan.Max.Cost, Ended: true}
		err := c.replay(u.found, &timedWriter{ResponseWriter: w, watch: &c.watch})
		u.guard.cache.Saved(u.found.Cost - c.Result.Cost)
		return err
	})
}

// answerHere makes a call that write answers in place of a provider, without quota. A job's attempt starts as usual,
// because its claim may be lost.
func (g *Guard) answerHere(ctx context.Context, p *Plan, a *Attempt, write func(*Call) error) (*Call, error) {
	began := time.Now()
	c, err := g.admission.beginHit(ctx, p, a)
	if err != nil {
		return nil, err
	}
	c.watch.redis(began)
	defer c.finish(ctx)
	if a.Quota != nil {
		if err := c.take(ctx, a.Quota); err != nil {
			return c, err
		}
		defer c.give(ctx, a.Quota)
	}
	if err := g.Stopped(p.Caller.Org.ID); err != nil {
		return c, err
	}
	if a.Sent != nil {
		a.Sent()
	}
	began = time.Now()
	err = write(c)
	c.Result.Took = time.Since(began)
	g.metrics.ended(c)
	return c, err
}

// hit returns the plan of a request that is answered from the cache.
func (u *cacheUse) hit() *Plan {
	p := *u.plan
	p.cached = true
	p.Max = budget.Amounts{Cost: cachedCost(u.org.Cache.Cost, u.found.Cost)}
	p.First = p.Max
	p.Quota, p.start, p.step = 0, 0, 0
	return &p
}

// beginHit begins a call that no provider answers. A live one waits for a slot.
func (ad *admission) beginHit(ctx context.Context, p *Plan, a *Attempt) (*Call, error) {
	if a.Quota == nil {
		if err := Turn(ctx, ad.holds, a.Patience); err != nil {
			return nil, err
		}
		defer func() { <-ad.holds }()
	}
	return ad.begin(ctx, p, a)
}

// cachedCost returns a share of the original cost, rounded up to a nano-dollar.
func cachedCost(share settings.Percent, original pricing.Nano) pricing.Nano {
	whole, rest, part := original/100, original%100, pricing.Nano(share)
	return whole*part + (rest*part+99)/100
}

func (c *Call) replay(found *cache.Answer, w http.ResponseWriter) error {
	h := w.Header()
	maps.Copy(h, found.Header)
	c.tell(h)
	h.Set("Age", strconv.FormatInt(int64(found.Age/time.Second), 10))
	if !c.Plan.Request.Stream {
		h.Set("Content-Length", strconv.Itoa(len(found.Body)))
	}
	w.WriteHeader(found.Status)
	err := written(w.Write(found.Body))
	if c.Plan.Request.Stream && err == nil {
		c.trail(h)
		err = written(0, http.NewResponseController(w).Flush())
	}
	return err
}

// tape is a ResponseWriter that copies an answer on its way to the caller.
type tape struct {
	http.ResponseWriter
	copy   *spool.Copy
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
	t.copy.Add(p)
	return t.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController flush the answer.
func (t *tape) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// record returns the writer for the answer of a call that was begun; nil if the answer will not be
// stored.
func (u *cacheUse) record(c *Call, w http.ResponseWriter) *tape {
	if u.copy == nil || c.Plan != u.plan { // a cheaper model answers
		return nil
	}
	return &tape{ResponseWriter: w, copy: u.copy}
}

// complete reports whether the answer was complete, without an error, and billed exactly.
func (r *Result) complete() bool {
	return r.Ended && r.Outcome == Completed && !r.Failed && !r.Estimated && r.Fault == "" &&
		r.Ending == nil && r.Refusal == nil
}

// store stores the recorded answer, soon, if it was written whole. Many clients leave at the last event
// of a stream.
func (u *cacheUse) store(ctx context.Context, c *Call, t *tape) {
	if t == nil || !c.Result.Relayed || t.status != http.StatusOK || !c.Result.complete() {
		return
	}
	g := u.guard
	body, whole := t.copy.Bytes()
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
	u.copy = nil // closed once it is stored
	a := cache.Answer{Status: t.status, Header: t.header, Cost: c.Result.Cost, Body: body}
	g.settler.settling.Go(func() {
		defer func() { <-g.cachePuts; t.copy.Close() }()
		g.putCached(ctx, u.org, u.id, a)
	})
}

func (g *Guard) putCached(ctx context.Context, o *Org, id string, a cache.Answer) {
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

// HeaderCache is, in a request, what its caller accepts of the response cache: max-age=SECONDS,
// no-cache or no-store. In an answer it is hit, miss or skipped.
const HeaderCache = "Llmguard-Cache"

// CacheWish is what a request says about the response cache.
type CacheWish struct {
	asks, fresh, never bool
	age                time.Duration // of max-age
}

// maxWishAge bounds max-age, so that it does not overflow.
const maxWishAge = 1 << 31

// ParseCacheWish parses HeaderCache for a request of an org. The error is a *wire.Error.
func ParseCacheWish(h http.Header, o *Org) (CacheWish, error) {
	var w CacheWish
	for _, field := range h[HeaderCache] {
		for item := range strings.SplitSeq(field, ",") {
			if err := w.add(strings.ToLower(strings.TrimSpace(item)), o.Cache); err != nil {
				return CacheWish{}, err
			}
		}
	}
	return w, nil
}

func (w *CacheWish) add(item string, rule settings.Cache) error {
	name, value, _ := strings.Cut(item, "=")
	seconds, err := strconv.ParseInt(value, 10, 64)
	switch {
	case item == "no-store":
		w.never = true
	case item == "no-cache":
		w.fresh = true
	case name == "max-age" && err == nil && seconds >= 0 && rule.MaxAge <= 0:
		return wire.BadRequest(HeaderCache, "cache_not_allowed",
			"The response cache is off for this organization, so %s: max-age is not allowed. Remove the header, or ask an "+
				"operator to set `cache` for the organization", HeaderCache)
	case name == "max-age" && err == nil && seconds >= 0:
		w.asks, w.age = true, time.Duration(min(seconds, maxWishAge))*time.Second
	default:
		return wire.BadRequest(HeaderCache, "invalid_cache", "%s does not allow %.40q. It allows %s, no-cache and no-store",
			HeaderCache, item, cacheAllows(rule))
	}
	return nil
}

// cacheAllows words what a request may ask for.
func cacheAllows(r settings.Cache) string {
	if r.MaxAge <= 0 {
		return "(for this organization only)"
	}
	return "max-age=SECONDS (at most " + strconv.FormatInt(int64(r.MaxAge/time.Second), 10) + " for this organization)"
}

func (w CacheWish) uses(r settings.Cache) bool {
	return r.MaxAge > 0 && !w.never && (r.Always || w.asks || w.fresh)
}

// oldest returns the greatest age of an answer that the request accepts; 0 accepts none.
func (w CacheWish) oldest(r settings.Cache) time.Duration {
	switch {
	case w.fresh:
		return 0
	case w.asks:
		return min(w.age, r.MaxAge)
	}
	return r.MaxAge
}
