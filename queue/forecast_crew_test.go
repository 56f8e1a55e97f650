package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/redistest"
	tenants "github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
	"github.com/llmguard/llmguard/quota"
)

// crew runs the jobs of a pool as workers do, with the real scripts, at virtual instants. Nothing but
// what the test begins with happens.
type crew struct {
	*env
	store *budget.Store
	rooms guard.Rooms
	p     *pool
	pc    *pacer
	rng   *rand.Rand
	now   int64 // us
	took  time.Duration
	share int64 // per mille
	jobs  map[string]*Job
	open  []*opened // by their end
	runs  map[string]int
	began map[string]int64
	means runMeans
	cause string
}

// opened is a call that runs: a job's, or a live one.
type opened struct {
	ends  int64
	hold  *budget.Hold
	claim *Claim
	grant *quota.Grant
}

const longLease = 300 * 24 * time.Hour

func newCrew(t testing.TB, srv *redistest.Server, seed uint64, run int) *crew {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, uint64(run)))
	w := &crew{
		rng: rng, jobs: map[string]*Job{}, runs: map[string]int{}, began: map[string]int64{},
		now:  time.Date(2026, 11, 18, 23, 50, rng.IntN(60), rng.IntN(1e9), time.UTC).UnixMicro(),
		took: time.Duration(200+rng.Int64N(12_000)) * time.Millisecond, share: oneOf[int64](rng, 100, 300, 600, 1000),
	}
	id := fmt.Sprintf("p%d", run)
	cfg := Pool{
		ID: id, RPM: oneOf[int64](rng, 0, 0, 6, 30, 300), TPM: oneOf[int64](rng, 0, 0, 0, 600, 5000), Concurrency: oneOf(rng, 0, 0, 0, 1, 3),
		MaxAge: longLease, MaxJobs: -1, FixedQuota: true, ActualTokens: rng.IntN(2) == 0,
	}
	o := Options{Lease: longLease, Grace: longLease, Burst: oneOf(rng, 1, 100, 500), OrgShare: 100}
	w.env = envOn(t, srv, o, cfg)
	w.p = w.settings.pools()[id]
	w.forecasts.fresh = time.Hour
	w.pc = newPacer(w.Queue, w.p, 1)
	w.store = budget.New(redistest.DB(w.rdb), budget.Options{
		Lease: longLease, Now: func() time.Time { return time.UnixMicro(w.now) },
	})
	base, err := url.Parse("http://127.0.0.1:1/v1")
	if err != nil {
		t.Fatal(err)
	}
	set, err := providers.NewSet([]*providers.Provider{{ID: "openai", BaseURL: base, Pools: []providers.Pool{{ID: id}}}})
	if err != nil {
		t.Fatal(err)
	}
	policy := &guard.Policy{Orgs: map[string]*guard.Org{}, Providers: set}
	for i := range 1 + rng.IntN(3) {
		org := fmt.Sprintf("o%d-%d", run, i)
		policy.Orgs[org] = &guard.Org{Org: tenants.Org{ID: org}, Limits: w.limits(rng.IntN(3))}
	}
	if rng.IntN(5) == 0 {
		spend := budget.Cap{Limits: []budget.Limit{w.limit(fmt.Sprintf("cap%d", run), budget.Org, budget.Cost)}}
		policy.Caps = []budget.Cap{spend}
		w.cause += " cap"
	}
	w.rooms = guard.Rooms{Policy: policy, Store: w.store}
	w.set(w.now)
	return w
}

// oneOf returns one of a list.
func oneOf[T any](rng *rand.Rand, list ...T) T { return list[rng.IntN(len(list))] }

// limits returns limits of random shapes and subjects.
func (w *crew) limits(n int) []budget.Limit {
	var out []budget.Limit
	subjects := []budget.Subject{budget.Org, budget.User, budget.Key, budget.User, budget.Org, "team"}
	for i := range n {
		metric := []budget.Metric{budget.Cost, budget.Cost, budget.Cost, budget.Tokens, budget.Requests, budget.Concurrency}[w.rng.IntN(6)]
		out = append(out, w.limit(fmt.Sprintf("l%d", i), subjects[w.rng.IntN(len(subjects))], metric))
	}
	return out
}

func (w *crew) limit(id string, subject budget.Subject, metric budget.Metric) budget.Limit {
	amount := map[budget.Metric]int64{budget.Cost: 1_000_000, budget.Tokens: 2000, budget.Requests: 4, budget.Concurrency: 2}[metric]
	amount += w.rng.Int64N(amount)
	width := time.Duration(oneOf(w.rng, 10, 30, 60, 120)) * time.Second
	shape := budget.Shape{Kind: budget.Concurrent, Amount: amount}
	if metric != budget.Concurrency {
		shape = []budget.Shape{
			{Kind: budget.Window, Amount: amount, Window: width},
			{Kind: budget.ExactWindow, Amount: amount, Window: width},
			{Kind: budget.Bucket, Amount: amount, Refill: amount, Per: width},
			{Kind: budget.Fixed, Amount: amount, Window: width},
			{Kind: budget.Calendar, Amount: amount * 5, Calendar: "day"},
		}[w.rng.IntN(5)]
	}
	w.cause += fmt.Sprintf(" %s/%s/%s", shape.Kind, subject, metric)
	return budget.Limit{ID: id, Subject: subject, Metric: metric, Shape: shape}
}

// set sets all clocks.
func (w *crew) set(now int64) {
	w.now = now
	w.at(time.Duration(now) * time.Microsecond)
}

// call returns a random job, whose hold is at most most of a limit.
func (w *crew) call() *Job {
	orgs := slices.Sorted(func(yield func(string) bool) {
		for id := range w.rooms.Policy.Orgs {
			if !yield(id) {
				return
			}
		}
	})
	org, user := orgs[w.rng.IntN(len(orgs))], fmt.Sprintf("u%d", w.rng.IntN(3))
	j := w.job(w.p.ID, org, user, Class(1+w.rng.IntN(3)), 10+w.rng.Int64N(300))
	j.Key, j.Cost, j.Held = fmt.Sprintf("k%d", w.rng.IntN(2)), pricing.Nano(50_000+w.rng.Int64N(500_000)), 20+w.rng.Int64N(500)
	j.Labels = ledger.Labels(oneOf(w.rng, "team=a", "team=b"))
	j.Priority = quota.Priority(oneOf(w.rng, 0, 0, 0, 1, -1))
	return j
}

// hold holds for a call.
func (w *crew) hold(ctx context.Context, j *Job, id string) (*budget.Hold, error) {
	c, err := w.rooms.Policy.Caller(j.Org, j.User, j.Key, "")
	if err != nil {
		return nil, err
	}
	most := j.waiter().Want
	call := ledger.Call{ID: id, Org: j.Org, User: j.User, Key: j.Key, Labels: j.Labels, Model: j.Model, Provider: "openai", Endpoint: string(j.Endpoint)}
	return w.store.Hold(ctx, budget.Terms{Limits: c.Org.LimitsFor(j.User, j.Key), Caps: w.rooms.Policy.Caps, Call: call, Max: most, Expected: most})
}

// begins keeps a call open for a while.
func (w *crew) begins(o *opened) {
	took := w.took*8/10 + time.Duration(w.rng.Int64N(int64(w.took*4/10)))
	o.ends = w.now + took.Microseconds()
	w.open = append(w.open, o)
	slices.SortStableFunc(w.open, func(a, b *opened) int { return cmp.Compare(a.ends, b.ends) })
	w.runs[o.hold.Call.Org]++
}

// ends ends the first open call.
func (w *crew) end(ctx context.Context) error {
	o := w.open[0]
	w.open = w.open[1:]
	w.runs[o.hold.Call.Org]--
	share := float64(w.share) / 1000 * (0.8 + 0.4*w.rng.Float64())
	cost := min(pricing.Nano(float64(o.hold.Max.Cost)*share), o.hold.Max.Cost)
	tokens := min(int64(float64(o.hold.Max.Tokens)*share), o.hold.Max.Tokens)
	w.means.add(w.took, o.hold.Max.Cost, cost)
	w.rdb.HSet(ctx, w.p.keys[6], "took", int64(w.means.took), "share", int64(w.means.share))
	if _, err := w.store.Settle(ctx, o.hold, budget.Settlement{Actual: budget.Amounts{Cost: cost, Tokens: tokens}}); err != nil {
		return err
	}
	if o.grant != nil {
		return w.Give(ctx, o.grant, false)
	}
	return o.claim.finish(ctx, Succeeded, Verdict{Counted: quota.Counted{Used: o.claim.Job.Tokens * w.share / 1000}}, "")
}

// live begins a live call, if limits and quota admit it.
func (w *crew) live(ctx context.Context) error {
	j := w.call()
	h, err := w.hold(ctx, j, j.CallID)
	if errors.As(err, new(*budget.ExceededError)) {
		return nil
	}
	if err != nil {
		return err
	}
	g, err := w.Quota().Take(ctx, quota.Request{Pool: w.p.ID, ID: j.CallID, Org: j.Org, User: j.User, Tokens: j.Tokens})
	if err != nil {
		return w.store.Void(ctx, h)
	}
	w.begins(&opened{hold: h, grant: g})
	return nil
}

// try runs a claimed job, or puts it back.
func (w *crew) try(ctx context.Context, c *Claim) error {
	c.ctx = ctx
	h, err := w.hold(ctx, c.Job, c.Job.CallID+fmt.Sprint(w.now))
	refused := (*budget.ExceededError)(nil)
	switch {
	case errors.As(err, &refused):
		v := Verdict{Kind: Park, Unused: true, Cause: (&guard.Refusal{ExceededError: refused}).Cause()}
		v.Scope, v.Wait = RestOf(w.rooms.Policy.Orgs[c.Job.Org].Limits, refused)
		if refused.Soon && w.runs[c.Job.Org] == 0 {
			v.Wait = min(v.Wait, alonePark)
		}
		if refused.Binding.Never && !refused.Soon {
			return c.finish(ctx, Failed, Verdict{Unused: true}, "failed")
		}
		return c.release(ctx, v, "0")
	case err != nil:
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	w.began[c.id] = w.now
	w.begins(&opened{hold: h, claim: c})
	return nil
}

// work runs jobs until none may run, and returns when to look again; 0: when a call ends.
func (w *crew) work(ctx context.Context) (int64, error) {
	for n := 1; ; n = min(2*n, defaultConcurrency) { // as pacer.spread
		got, err := w.pc.acquire(ctx, n)
		if err != nil {
			return 0, err
		}
		w.contents.fetch(ctx, w.p, got.claims)
		for _, c := range got.claims {
			if err := w.try(ctx, c); err != nil {
				return 0, err
			}
		}
		switch {
		case got.why == "more" || len(got.claims) > 0: // there may be more
		case got.wait < 0, got.why == "concurrency":
			return 0, nil
		case got.why == "empty":
			return w.now + got.wait.Microseconds(), nil
		default:
			return w.now + min(got.wait, maxSleep).Microseconds(), nil
		}
	}
}

// until runs everything until an instant, or until no job waits.
func (w *crew) until(ctx context.Context, till int64) error {
	for {
		next, err := w.work(ctx)
		if err != nil {
			return err
		}
		if len(w.open) > 0 && (next == 0 || w.open[0].ends < next) {
			next = w.open[0].ends
		}
		if next == 0 || next > till || len(w.began) == len(w.jobs) {
			return nil
		}
		w.set(max(next, w.now+1000))
		for len(w.open) > 0 && w.open[0].ends <= w.now {
			if err := w.end(ctx); err != nil {
				return err
			}
		}
	}
}

// told is an ETA that a waiting job was told.
type told struct {
	j     *Job
	at    int64
	place Place
}

// foretold asks for the place of all waiting jobs.
func (w *crew) foretold(ctx context.Context) (all []told, err error) {
	w.forecasts.pools = map[string]*poolForecast{}
	for id, j := range w.jobs {
		if _, ran := w.began[id]; ran {
			continue
		}
		at, err := w.Expect(ctx, w.rooms, j)
		if err != nil {
			return nil, err
		}
		all = append(all, told{j, w.now, at})
	}
	return all, nil
}

// errorsOf runs a random story and returns how far its ETAs were off, in waits: those beyond the
// bounds, and all.
func (w *crew) errorsOf(ctx context.Context) (off []string, n int, err error) {
	w.means.add(w.took, 1000, pricing.Nano(w.share))
	w.rdb.HSet(ctx, w.p.keys[6], "took", int64(w.means.took), "share", int64(w.means.share))
	for range w.rng.IntN(6) {
		if err := w.live(ctx); err != nil {
			return nil, 0, err
		}
		w.set(w.now + w.rng.Int64N(2_000_000))
	}
	if w.rng.IntN(6) == 0 {
		w.cause += " block"
		if err := w.Block(ctx, w.p.ID, time.Duration(1+w.rng.IntN(60))*time.Second); err != nil {
			return nil, 0, err
		}
	}
	for range 3 + w.rng.IntN(20) {
		j := w.call()
		if err := w.Put(ctx, j, []byte("{}")); err != nil {
			return nil, 0, err
		}
		w.jobs[j.ID] = j
	}
	all, err := w.foretold(ctx)
	if err != nil {
		return nil, 0, err
	}
	if err := w.until(ctx, w.now+w.rng.Int64N(60_000_000)); err != nil {
		return nil, 0, err
	}
	later, err := w.foretold(ctx)
	if err != nil {
		return nil, 0, err
	}
	end := w.now + (20 * time.Minute).Microseconds()
	if err := w.until(ctx, end); err != nil {
		return nil, 0, err
	}
	for _, one := range append(all, later...) {
		began, ran := w.began[one.j.ID]
		if !ran {
			continue // not within the story
		}
		n++
		wait := time.Duration(began-one.at) * time.Microsecond
		wrong := math.Abs((one.place.ETA - wait).Seconds())
		if one.place.ETA < 0 || wrong > max(5, 0.2*wait.Seconds()) {
			off = append(off, fmt.Sprintf("told %s for %s, waited %s", one.place.ETA, one.place.Cause, wait))
		}
	}
	return off, n, nil
}
