package e2e

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestRoundTrips: a job from a backlog behind a quota costs at most 10 Redis round trips, from
// its submission to its end. The periodic upkeep of the two processes is not counted. A
// pipeline counts as one.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	const callers, aJob, aSecond = 9, 10, 150
	jobs := callers * either(40, 100)
	s := newStack(t, fakeprovider.Options{}, strings.Replace(simple("[{name: w, subject: user, amount: $100, window: 1h}, {name: o, subject: org, amount: $100, window: 1h}]"),
		`api_key: "${provider_key}"`, `api_key: "${provider_key}", pools: [{id: one, rpm: 6000}]`, 1))
	counter := redistest.NewCounter(t, s.redis.Addr)
	s.replace(s.redis.Addr, counter.Addr)
	p := s.proxy()
	before, began := counter.Trips(), time.Now()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range jobs / callers {
				a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hi", `"max_tokens":5`), "Prefer", "respond-async")
				if a.err != nil || a.status != http.StatusAccepted {
					t.Errorf("status %d: %v %s", a.status, a.err, a.body)
					return
				}
			}
		})
	}
	redistest.Wait(t, wg.Wait)
	s.worker() // now, so that there is a backlog on any machine
	own := redis.NewClient(&redis.Options{Addr: s.redis.Addr})
	defer own.Close()
	until(t, "all jobs have ended", func() bool {
		return errors.Is(own.HGet(t.Context(), "lg:{one}:size", "jobs").Err(), redis.Nil)
	})
	trips, took := counter.Trips()-before, time.Since(began).Seconds()
	t.Logf("%.1f round trips a job", float64(trips)/float64(jobs))
	if most := aJob*float64(jobs) + aSecond*took; float64(trips) > most {
		t.Errorf("%d round trips for %d jobs in %.1f s, want at most %.0f", trips, jobs, took, most)
	}
	if n := len(s.fake.Log()); n != jobs {
		t.Errorf("the provider saw %d calls, not %d", n, jobs)
	}
}
