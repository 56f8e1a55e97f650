package queue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/llmguard/llmguard/quota"
)

// traffic is a pool of 10,000 tokens a minute in simulated time, on Redis and as a Virtual,
// which must agree. A live call of 20 tokens comes every 200 ms and a small job of another
// org every 4 s.
type traffic struct {
	*env
	pc      *pacer
	v       *Virtual
	jobs    map[string]*VirtualJob
	log     []booked
	refused []time.Duration          // when live calls were refused
	small   map[string]time.Duration // small waiting jobs by id: when they were put
	waited  time.Duration            // longest wait of a small job
	ran     map[string]time.Duration // when the other jobs ran, by id
}

func newTraffic(t *testing.T) *traffic {
	pool, opts := Pool{ID: "p", TPM: 10_000}, Options{OrgShare: 100, Shares: Shares{Interactive: 20, Async: 40, Batch: 5}}
	v, err := NewVirtual(pool, opts)
	if err != nil {
		t.Fatal(err)
	}
	e := newEnv(t, opts, pool)
	return &traffic{
		env: e, pc: newPacer(e.Queue, e.settings.pools()["p"], 1), v: v, jobs: map[string]*VirtualJob{},
		small: map[string]time.Duration{}, ran: map[string]time.Duration{},
	}
}

// add puts a job.
func (f *traffic) add(now time.Duration, org string, tokens int64) string {
	f.t.Helper()
	j := f.put(f.job("p", org, "u", Async, tokens))
	twin := &VirtualJob{Class: Async, Flow: Flow{org, "u"}, Tokens: tokens, Deadline: 1 << 60, Of: j.ID}
	if err := f.v.Put(now.Microseconds(), twin, Lane(j.Key, j.Model)); err != nil {
		f.t.Fatal(err)
	}
	f.jobs[j.ID] = twin
	return j.ID
}

// pass advances time from one instant to another, with traffic.
func (f *traffic) pass(from, to time.Duration) {
	f.t.Helper()
	for now := from; now < to; now += 50 * time.Millisecond {
		f.at(now)
		step := int((now - simStart) / (50 * time.Millisecond))
		if step%4 == 0 {
			f.call(now, fmt.Sprintf("c%d", step))
		}
		if step%80 == 0 {
			f.small[f.add(now, "victim", 10)] = now
		}
		if step%5 == 0 { // as often as a pacer polls
			f.acquire(now)
		}
	}
}

// drain advances time without new traffic.
func (f *traffic) drain(from, to time.Duration) {
	f.t.Helper()
	for now := from; now < to; now += 250 * time.Millisecond {
		f.at(now)
		f.acquire(now)
	}
}

func (f *traffic) call(now time.Duration, id string) {
	f.t.Helper()
	flow := Flow{"live", "lou"}
	g, err := f.Take(f.t.Context(), "p", id, flow, 20)
	twin, virtual := f.v.Take(now.Microseconds(), flow, 20, quota.Normal)
	var busy *quota.BusyError
	switch {
	case fmt.Sprint(err) != fmt.Sprint(virtual):
		f.t.Fatalf("take: %v, virtually %v", err, virtual)
	case errors.As(err, &busy):
		f.refused = append(f.refused, now)
		return
	case err != nil:
		f.t.Fatal(err)
	}
	f.log = append(f.log, booked{now, 20})
	f.v.Give(now.Microseconds(), twin, false, -1)
	if err := f.Give(f.t.Context(), g, false); err != nil {
		f.t.Fatal(err)
	}
}

func (f *traffic) acquire(now time.Duration) {
	f.t.Helper()
	got, err := f.pc.acquire(f.t.Context(), 10)
	if err != nil {
		f.t.Fatal(err)
	}
	var real, virtual []string
	jobs, wait, why := f.v.Acquire(now.Microseconds(), 10)
	for _, j := range jobs {
		virtual = append(virtual, j.Of.(string))
		f.v.Finish(now.Microseconds(), j, false, -1)
	}
	for _, c := range got.claims {
		real = append(real, c.id)
		f.log = append(f.log, booked{now, c.tokens})
		if at, small := f.small[c.id]; small {
			f.waited = max(f.waited, now-at)
			delete(f.small, c.id)
		} else {
			f.ran[c.id] = now
		}
		if err := c.finish(f.t.Context(), Succeeded, Verdict{}, ""); err != nil {
			f.t.Fatal(err)
		}
	}
	if got.why != why || max(got.wait, -1) != max(wait, -1) || !slices.Equal(real, virtual) {
		f.t.Fatalf("acquire: %v %s %v, virtually %v %s %v", got.wait, got.why, real, wait, why, virtual)
	}
}

// TestLargeJobStopsNobody checks that a job of most of a minute's quota, together with live
// calls, runs after the time its share of the quota needs for its size plus a minute. Until
// then small jobs of others run, and live calls are refused only in the minute before it
// runs, whose quota it needs, and in the minute after.
func TestLargeJobStopsNobody(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{7000, 9000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			f := newTraffic(t)
			began := simStart + time.Minute
			f.pass(simStart, began)
			large := f.add(began, "eve", size)
			share := time.Duration(size) * time.Minute / 4000 // 40 % of the quota
			f.pass(began, began+share+90*time.Second)
			at, ran := f.ran[large]
			if !ran || at > began+share+time.Minute {
				t.Fatalf("the large job ran: %v, after %s", ran, at-began)
			}
			if len(f.small) > 1 || f.waited > 2*time.Second {
				t.Errorf("%d small jobs still wait, one waited %s", len(f.small), f.waited)
			}
			for _, when := range f.refused {
				if when < at-62*time.Second || when > at+62*time.Second {
					t.Errorf("a live call was refused %s after the large job ran", when-at)
				}
			}
			checkWindows(t, f.log, Pool{TPM: 10_000})
		})
	}
}

// TestLargeJobIsNotOvertakenForEver checks that, with only jobs in the pool, those behind a
// large job may take as much as its size, and then it is next.
func TestLargeJobIsNotOvertakenForEver(t *testing.T) {
	t.Parallel()
	f := newTraffic(t)
	f.at(simStart)
	for range 300 { // a backlog of three minutes
		f.add(simStart, "victim", 100)
	}
	put := simStart + 30*time.Second
	f.drain(simStart, put)
	large := f.add(put, "eve", 8000)
	f.drain(put, put+150*time.Second)
	if at, ran := f.ran[large]; !ran || at > put+2*time.Minute {
		t.Errorf("the large job ran: %v, after %s", ran, at-put)
	}
	checkWindows(t, f.log, Pool{TPM: 10_000})
}

// TestReservationIsForgotten checks that quota reserved for a job that is gone is free two
// seconds later.
func TestReservationIsForgotten(t *testing.T) {
	t.Parallel()
	f := newTraffic(t)
	began := simStart + time.Minute
	f.pass(simStart, began)
	large := f.add(began, "eve", 8000)
	closing := began + 100*time.Second
	f.pass(began, closing)
	if len(f.refused) == 0 {
		t.Fatal("nothing was reserved for the large job")
	}
	f.v.Expire(closing.Microseconds(), f.jobs[large])
	if _, err := f.Cancel(t.Context(), "eve", large); err != nil {
		t.Fatal(err)
	}
	f.refused = nil
	f.pass(closing, closing+10*time.Second)
	for _, when := range f.refused {
		if when > closing+3*time.Second {
			t.Errorf("a live call was refused %s after the large job was cancelled", when-closing)
		}
	}
}

// TestNeverUnderTheLearnedQuota checks that a live or queued call larger than its
// provider's minute is refused immediately, also if that quota was learned and not
// configured. A job that is already waiting ends without using quota. What the provider
// reports for one model makes no call of another model too large.
func TestNeverUnderTheLearnedQuota(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{OrgShare: 100}, Pool{ID: "p", TPM: 50_000})
	ctx := t.Context()
	e.at(simStart)
	job := func(model string) *Job {
		j := e.job("p", "acme", "ann", Async, 15_000)
		j.Model = model
		return j
	}
	before := e.put(job("m"))
	header := http.Header{}
	header.Set("X-Ratelimit-Limit-Tokens", "10000")
	header.Set("X-Ratelimit-Remaining-Tokens", "10000")
	if _, err := e.Observe(ctx, "p", quota.Head{Model: "m", Status: http.StatusOK, Header: header, Sent: time.Now()}); err != nil {
		t.Fatal(err)
	}
	call := quota.Request{Pool: "p", ID: "c1", Org: "acme", User: "ann", Model: "m", Tokens: 15_000}
	var busy *quota.BusyError
	if _, err := e.Quota().Take(ctx, call); !errors.As(err, &busy) || !busy.Never || busy.Limit != 10_000 {
		t.Errorf("a live call: %v", err)
	}
	var full *FullError
	if err := e.Put(ctx, job("m"), nil); !errors.As(err, &full) || full.Scope != "tokens" || full.Limit != 10_000 || full.RetryAfter != 0 {
		t.Errorf("a job: %v", err)
	}
	c := e.claimOne("p", before)
	if d, err := e.Depth(ctx, "p"); err != nil || c.never != 10_000 || d.Rates[1].Used != 0 {
		t.Errorf("the job that waited: never %d, %d tokens booked, %v", c.never, d.Rates[1].Used, err)
	}
	w := NewWorker(e.Queue, func(context.Context, *Claim) Verdict { t.Error("it ran"); return Verdict{} }, WorkerOptions{})
	w.run(ctx, c)
	if j, err := e.Job(ctx, "acme", before.ID); err != nil || j.State != Failed || j.Code != "insufficient_quota" {
		t.Errorf("the job that waited: %+v, %v", j, err)
	}
	call.ID, call.Model = "c2", "other"
	if _, err := e.Quota().Take(ctx, call); err != nil {
		t.Errorf("a call of another model: %v", err)
	}
	e.put(job("other"))
}
