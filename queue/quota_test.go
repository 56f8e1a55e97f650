package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/quota"
)

// booked is one grant as the provider may see it.
type booked struct {
	at     time.Duration
	tokens int64
}

// checkWindows is the oracle: whatever delay up to quota.GrantLife each request has, no
// minute of the provider may exceed the quota. Two requests whose grants are 60.5 s apart
// can arrive within 60 s.
func checkWindows(t interface{ Fatalf(string, ...any) }, log []booked, p Pool) {
	slices.SortStableFunc(log, func(a, b booked) int { return int(a.at - b.at) })
	var requests, tokens int64
	from := 0
	for _, g := range log {
		requests, tokens = requests+1, tokens+g.tokens
		for g.at-log[from].at >= time.Minute+quota.GrantLife {
			requests, tokens = requests-1, tokens-log[from].tokens
			from++
		}
		if (p.RPM > 0 && requests > p.RPM) || (p.TPM > 0 && tokens > p.TPM) {
			t.Fatalf("at %s: %d requests, %d tokens within 60.5 s; quota %d, %d", g.at, requests, tokens, p.RPM, p.TPM)
		}
	}
}

const simStart = 1_700_000_000 * time.Second

// TestQuotaIsNeverExceeded runs random live calls, jobs, refunds, pauses, blocks and
// backward clock steps against the quota, in simulated time.
func TestQuotaIsNeverExceeded(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "a"})
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		cfg := Pool{
			ID: fmt.Sprintf("p%d", runs), MaxJobs: -1,
			RPM: rapid.SampledFrom([]int64{0, 3, 60, 500}).Draw(rt, "rpm"),
			TPM: rapid.SampledFrom([]int64{0, 100, 10_000, 1_000_000}).Draw(rt, "tpm"),
		}
		p, err := newPool(cfg, Options{Burst: rapid.SampledFrom([]int{0, 10, 100, 1000}).Draw(rt, "burst")}.withDefaults())
		if err != nil {
			rt.Fatal(err)
		}
		e.add(p)
		pc := newPacer(e.Queue, p, 1)
		most := max(p.TPM, 50)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		now := simStart + time.Duration(rng.Int64N(1e9))
		var log []booked
		for i := range 150 {
			now += step(rng)
			e.at(now)
			tokens := rng.Int64N(most/int64(1+rng.IntN(100))+1) + 1
			switch rng.IntN(8) {
			case 0, 1, 2, 3:
				g, err := e.Take(t.Context(), p.ID, fmt.Sprintf("c%d.%d", runs, i), Flow{"live", "u"}, tokens)
				var busy *quota.BusyError
				if err != nil {
					if !errors.As(err, &busy) {
						rt.Fatal(err)
					}
					continue
				}
				unused := rng.IntN(5) == 0
				if !unused {
					log = append(log, booked{micros(g.At), tokens})
				}
				if err := e.Give(t.Context(), g, unused); err != nil {
					rt.Fatal(err)
				}
			case 4, 5:
				j := e.job(p.ID, "o", fmt.Sprintf("u%d", rng.IntN(3)), Async, tokens)
				if err := e.Put(t.Context(), j, nil); err != nil {
					var full *FullError
					if !errors.As(err, &full) {
						rt.Fatal(err)
					}
				}
			case 6:
				got, err := pc.acquire(t.Context(), 5)
				if err != nil {
					rt.Fatal(err)
				}
				for _, c := range got.claims {
					log = append(log, booked{c.booked, c.tokens})
					if err := c.finish(t.Context(), Succeeded, Verdict{}, ""); err != nil {
						rt.Fatal(err)
					}
				}
			case 7:
				if rng.IntN(10) == 0 {
					if err := e.Block(t.Context(), p.ID, time.Second); err != nil {
						rt.Fatal(err)
					}
				}
			}
		}
		checkWindows(rt, log, cfg)
	})
}

// step returns a time between calls: mostly short, sometimes long, rarely negative.
func step(rng *rand.Rand) time.Duration {
	switch rng.IntN(20) {
	case 0:
		return time.Duration(rng.Int64N(int64(70 * time.Second)))
	case 1:
		return -time.Duration(rng.Int64N(int64(5 * time.Second)))
	case 2, 3, 4:
		return 0
	}
	return time.Duration(rng.Int64N(int64(600 * time.Millisecond)))
}

// TestQuotaIsUsed drains a backlog for some simulated minutes after a burst and after a
// pause. At least 97 % of the binding quota must be used, without a long standstill.
func TestQuotaIsUsed(t *testing.T) {
	t.Parallel()
	const minutes = 3
	for _, tc := range []struct {
		name string
		pool Pool
		size int64
	}{
		{"tpm", Pool{TPM: 60_000}, 600},
		{"rpm", Pool{RPM: 120}, 10},
		{"both", Pool{RPM: 150, TPM: 60_000}, 500},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.pool.ID, tc.pool.MaxJobs = "p", -1
			e := newEnv(t, Options{}, tc.pool)
			now := simStart
			e.at(now)
			var jobs []*Job
			for i := range 500 {
				jobs = append(jobs, e.job("p", fmt.Sprintf("o%d", i%5), "u", Async, tc.size))
			}
			e.putAll(jobs)
			pc := newPacer(e.Queue, e.settings.pools()["p"], 1)
			var log []booked
			var longest time.Duration
			for end := now + minutes*time.Minute; now < end; {
				e.at(now)
				got, err := pc.acquire(t.Context(), 50)
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range got.claims {
					if len(log) > 0 {
						longest = max(longest, now-log[len(log)-1].at)
					}
					log = append(log, booked{now, c.tokens})
					if err := c.finish(t.Context(), Succeeded, Verdict{}, ""); err != nil {
						t.Fatal(err)
					}
				}
				now += min(max(got.wait, 0)+2*time.Millisecond, maxSleep)
			}
			checkWindows(t, log, tc.pool)
			used := float64(len(log)) / minutes
			full := float64(max(tc.pool.RPM, 1))
			if tc.pool.TPM > 0 {
				full = float64(tc.pool.TPM / tc.size)
			}
			t.Logf("used %.1f %% in all, longest standstill %s", 100*used/full, longest)
			if used/full < 0.97 {
				t.Errorf("used %.1f %% of the quota", 100*used/full)
			}
			if pace := time.Duration(float64(time.Minute) / full); longest > 2*pace+time.Second {
				t.Errorf("stood still for %s", longest)
			}
		})
	}
}

func TestTakeAndGiveAreIdempotent(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", RPM: 10, TPM: 1000, Concurrency: 2})
	ctx := t.Context()
	e.at(simStart)
	take := func(id string, tokens int64) (*quota.Grant, error) {
		return e.Take(ctx, "p", id, Flow{"acme", "ann"}, tokens)
	}
	refused := func(id string, tokens int64, reason string) {
		t.Helper()
		var busy *quota.BusyError
		if _, err := take(id, tokens); !errors.As(err, &busy) || busy.Reason != reason {
			t.Errorf("take %s: %v, want %s", id, err, reason)
		}
	}
	a, err := take("a", 50)
	if err != nil {
		t.Fatal(err)
	}
	again, err := take("a", 50)
	if err != nil || again.At != a.At {
		t.Errorf("replay: %+v, %v", again, err)
	}
	if d, _ := e.Depth(ctx, "p"); d.Rates[0].Used != 1 || d.Rates[1].Used != 50 {
		t.Errorf("booked twice: %+v", d)
	}
	refused("huge", 1001, "never")
	refused("b", 50, "rpm") // the burst of one request is used up
	for range 2 {
		if err := e.Give(ctx, a, true); err != nil {
			t.Fatal(err)
		}
	}
	if d, _ := e.Depth(ctx, "p"); d.Rates[0].Used != 0 || d.Rates[1].Used != 0 {
		t.Errorf("after the return of an unused grant: %+v", d)
	}
	for i, id := range []string{"c", "d"} {
		e.at(simStart + time.Duration(i+1)*10*time.Second)
		if _, err := take(id, 50); err != nil {
			t.Fatal(err)
		}
	}
	e.at(simStart + 25*time.Second)
	e.Quota().Step(ctx)
	e.at(simStart + 50*time.Second) // beyond the first lease
	refused("e", 50, "concurrency")
	e.at(simStart + 60*time.Second)
	if _, err := take("f", 50); err != nil {
		t.Errorf("after the leases ended: %v", err)
	}
	if err := e.Block(ctx, "p", time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := e.Block(ctx, "p", time.Second); err != nil {
		t.Fatal(err)
	}
	e.at(simStart + 100*time.Second)
	refused("g", 50, "blocked")
}

func TestSecondGiveReturnsNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{Burst: 1000}, Pool{ID: "p", RPM: 10})
	e.at(simStart)
	a, err := e.Take(t.Context(), "p", "a", Flow{"acme", "ann"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Take(t.Context(), "p", "b", Flow{"acme", "ann"}, 1); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Give(t.Context(), a, true); err != nil {
			t.Fatal(err)
		}
	}
	if d, _ := e.Depth(t.Context(), "p"); d.Rates[0].Used != 1 {
		t.Errorf("%d requests booked, want b's", d.Rates[0].Used)
	}
}

// TestGiveTogether checks that while Run runs, used grants of large pools are returned in
// batches, and a scarce slot is free again immediately.
func TestGiveTogether(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "narrow", Concurrency: 1}, Pool{ID: "broad", Concurrency: 1000}, Pool{ID: "wide"})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	for _, pool := range []string{"narrow", "broad", "wide"} {
		for i := range 20 {
			id := pool + strconv.Itoa(i)
			g, err := e.Take(ctx, pool, id, Flow{"acme", "alice"}, 1)
			if err != nil {
				t.Fatalf("take %d of %s: %v", i, pool, err)
			}
			if err := e.Give(ctx, g, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, pool := range []string{"narrow", "broad", "wide"} {
		e.until("the grants of "+pool+" are given back", func() bool {
			n, err := e.rdb.ZCard(ctx, e.settings.pools()[pool].keys[1]).Result()
			return err == nil && n == 0
		})
	}
	stop()
	if err := redistest.Came(t, done); err != nil {
		t.Fatal(err)
	}
}

// TestOldBookingIsNotFresh checks that a take under an id whose give failed books again,
// and that a lost reply is replayed with the grant's true age.
func TestOldBookingIsNotFresh(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{Burst: 1000}, Pool{ID: "p", RPM: 10, Concurrency: 1})
	e.at(simStart)
	take := func() *quota.Grant {
		t.Helper()
		g, err := e.Take(t.Context(), "p", "c1", Flow{"acme", "ann"}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	first := take()
	e.at(simStart + 200*time.Millisecond)
	if again := take(); again.At != first.At || again.Age() < 200*time.Millisecond {
		t.Errorf("replayed as booked at %s, %s old; it was at %s, 200 ms before", again.At, again.Age(), first.At)
	}
	now := simStart + 10*time.Second
	e.at(now)
	if late := take(); micros(late.At) != now {
		t.Errorf("taken at %s, booked at %s", now, micros(late.At))
	}
	if d, _ := e.Depth(t.Context(), "p"); d.Rates[0].Used != 2 {
		t.Errorf("%d requests booked, want one for each try", d.Rates[0].Used)
	}
	if open := e.rdb.ZCard(t.Context(), e.settings.pools()["p"].keys[1]).Val(); open != 1 {
		t.Errorf("%d open calls", open)
	}
}

// TestFormGoesPastWhatRests checks that a call that cannot be queued is refused if a
// waiting job of its user may run or waits for the same limit, but not if that job is held
// back by another model's limit.
func TestFormGoesPastWhatRests(t *testing.T) {
	t.Parallel()
	e := newEnv(t, Options{}, Pool{ID: "p", RPM: 1000})
	ctx := t.Context()
	e.at(simStart)
	job := func(model string) *Job {
		j := e.job("p", "acme", "ann", Interactive, 10)
		j.Model = model
		return e.put(j)
	}
	n := 0
	take := func(lane string) error {
		n++
		_, err := e.Quota().Take(ctx, quota.Request{Pool: "p", ID: fmt.Sprint("c", n), Org: "acme", User: "ann", Lane: lane, Tokens: 1})
		return err
	}
	image := Lane("", "image")
	rests := job("chat")
	if take(image) == nil {
		t.Error("overtook a job of its flow that may run")
	}
	c := e.claimOne("p", rests)
	if err := c.release(ctx, Verdict{Kind: Park, Wait: time.Minute, Scope: ParkFlowModel, Unused: true}, "0"); err != nil {
		t.Fatal(err)
	}
	if err := take(image); err != nil {
		t.Errorf("behind a job that another model's limit keeps out: %v", err)
	}
	if take(Lane("", "chat")) == nil {
		t.Error("overtook a job that waits for the same")
	}
	if take("") == nil {
		t.Error("a call that can wait overtook its flow")
	}
	job("other")
	if take(image) == nil {
		t.Error("overtook the second job of its flow, which may run")
	}
}
