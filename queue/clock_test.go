package queue

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/quota"
)

// grants requests n live calls at an instant and returns how many were granted.
func (e *env) grants(now time.Duration, n int) (granted int) {
	e.t.Helper()
	e.at(now)
	for range n {
		g, err := e.Take(e.t.Context(), "p", wire.NewCallID(), Flow{"acme", "ann"}, 1)
		var busy *quota.BusyError
		if errors.As(err, &busy) {
			return granted
		}
		if err == nil {
			err = e.Give(e.t.Context(), g, false)
		}
		if err != nil {
			e.t.Fatal(err)
		}
		granted++
	}
	return granted
}

// TestClockStepKeepsTheWindow checks that the quota window continues as it was when the
// clock of Redis steps: nothing stalls, and the quota is not granted twice. The first to
// use the pool is a call or a worker.
func TestClockStepKeepsTheWindow(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{
		"back 5 min": -5 * time.Minute, "back 3 s": -3 * time.Second, "back an hour": -time.Hour, "back a day": -24 * time.Hour,
		"ahead 3 min": 3 * time.Minute, "ahead a day": 24 * time.Hour,
	} {
		for _, first := range []string{"call", "worker", "block", "tokens"} {
			t.Run(name+", "+first, func(t *testing.T) {
				t.Parallel()
				pool := Pool{ID: "p", RPM: 10}
				if first == "tokens" {
					pool = Pool{ID: "p", TPM: 10}
				}
				e := newEnv(t, Options{Burst: 1000}, pool)
				now := simStart
				if n := e.grants(now, 20); n != 10 {
					t.Fatalf("%d of 10 granted", n)
				}
				now += step + time.Second
				e.at(now)
				switch first {
				case "worker":
					e.claim("p", 0)
				case "block":
					if err := e.Block(t.Context(), "p", 10*time.Second); err != nil {
						t.Fatal(err)
					}
				}
				for range 3 {
					if n := e.grants(now, 20); n > 0 {
						t.Fatalf("%d granted, %s after the quota was used up", n, now-simStart-step)
					}
					now += 15 * time.Second
				}
				n := 0
				for range 6 { // the rest of the minute, and the next
					now += 15 * time.Second
					n += e.grants(now, 20)
				}
				if n < 10 {
					t.Errorf("%d of 10 granted in the minute after", n)
				}
			})
		}
	}
}

// TestClockStepEndsPauses checks that a pause of a provider, and the smaller limit of another model, last no
// longer because the clock went back, although all calls are refused.
func TestClockStepEndsPauses(t *testing.T) {
	t.Parallel()
	for _, steps := range [][]time.Duration{
		{-5 * time.Minute}, {-time.Hour}, {time.Hour, -time.Hour}, {-3 * time.Minute, -24 * time.Hour},
	} {
		e := newEnv(t, Options{}, Pool{ID: "p"})
		now := simStart
		e.at(now)
		e.observes(answerOf("m", 503, http.Header{"Retry-After": {"90"}}, ""))
		e.at(now + time.Second)
		passed, why := time.Second, "blocked"
		for ; why == "blocked" && passed < 2*time.Minute; passed += time.Second {
			if i := int(passed / (20 * time.Second)); passed%(20*time.Second) == 0 && i <= len(steps) {
				now += steps[i-1]
			}
			e.at(now + passed)
			_, why = e.takes("m")
		}
		if early := steps[0] > 0; why != "" || passed > 95*time.Second || !early && passed < 85*time.Second {
			t.Errorf("clock by %s: %q after %s, want a grant after 90 s", steps, why, passed)
		}

		limit := func(model, rpm string) string {
			e.observes(answerOf(model, 200, http.Header{"X-Ratelimit-Limit-Requests": {rpm}}, ""))
			return e.rdb.HGet(t.Context(), "lg:{p}:quota", "rn").Val()
		}
		limit("small", "60")
		for _, by := range steps {
			now += by
		}
		e.at(now + passed + 16*time.Minute)
		if n := limit("large", "600"); n != "600" {
			t.Errorf("clock by %s: the limit is %s after 16 minutes, want 600", steps, n)
		}
	}
}

// TestClockStepKeepsClaims checks that after a clock step running jobs keep their claims
// and slots, and that parked jobs do not rest for the length of the step.
func TestClockStepKeepsClaims(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]time.Duration{"back": -5 * time.Minute, "ahead": 5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t, Options{}, Pool{ID: "p", Concurrency: 2})
			ctx := t.Context()
			e.at(simStart)
			runs := e.claimOne("p", e.put(e.job("p", "acme", "ann", Async, 10)))
			if err := runs.Start(ctx); err != nil {
				t.Fatal(err)
			}
			rests := e.claimOne("p", e.put(e.job("p", "acme", "bob", Async, 10)))
			if err := rests.release(ctx, Verdict{Kind: Park, Wait: 10 * time.Second, Unused: true}, "0"); err != nil {
				t.Fatal(err)
			}
			now := simStart + step + time.Second
			e.at(now)
			next := e.claim("p", 5)
			if len(next) != 1 || next[0].id != rests.id {
				t.Fatalf("%d claims, want that of the job that rested", len(next))
			}
			if err := next[0].finish(ctx, Succeeded, Verdict{}, ""); err != nil {
				t.Fatal(err)
			}
			if err := runs.finish(ctx, Succeeded, Verdict{}, ""); err != nil {
				t.Errorf("the job that ran: %v", err)
			}
		})
	}
	t.Run("a dead worker", func(t *testing.T) {
		t.Parallel()
		e := newEnv(t, Options{Lease: 30 * time.Second}, Pool{ID: "p", Concurrency: 2})
		e.at(simStart)
		dead := e.put(e.job("p", "acme", "ann", Async, 10))
		e.claimOne("p", dead)
		e.at(simStart - 5*time.Minute)
		if n := len(e.claim("p", 5)); n != 0 {
			t.Fatalf("%d claims while the lease runs", n)
		}
		for s := range 6 { // workers keep polling, which judging a lease requires
			e.at(simStart - 5*time.Minute + time.Duration(s)*5*time.Second)
			e.claim("p", 5)
		}
		e.at(simStart - 5*time.Minute + 31*time.Second)
		e.claimOne("p", dead)
	})
}
