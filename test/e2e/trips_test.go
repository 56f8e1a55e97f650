package e2e

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// A backlog behind a quota costs at most 12 round trips to Redis a job, from the
// call that put it to its end, with all that asynq and the upkeep of two
// processes ask. A pipeline counts as one.
func TestRoundTrips(t *testing.T) {
	const jobs, most = 900, 12
	s := newStack(t, fakeprovider.Options{}, strings.Replace(simple("[{name: w, subject: user, amount: $100, window: 1h}, {name: o, subject: org, amount: $100, window: 1h}]"),
		`api_key: "${provider_key}"`, `api_key: "${provider_key}", pools: [{id: one, rpm: 6000}]`, 1))
	counter := redistest.NewCounter(t, s.redis.Addr)
	s.replace(s.redis.Addr, counter.Addr)
	p := s.proxy()
	s.worker()
	before := counter.Trips()
	var wg sync.WaitGroup
	for range 9 {
		wg.Go(func() {
			for range jobs / 9 {
				a := post(p.URL+"/chat/completions", s.keys["alice"], chat("gpt-4o", "hi", `"max_tokens":5`), "Prefer", "respond-async")
				if a.err != nil || a.status != http.StatusAccepted {
					t.Errorf("status %d: %v %s", a.status, a.err, a.body)
					return
				}
			}
		})
	}
	wg.Wait()
	own := redis.NewClient(&redis.Options{Addr: s.redis.Addr})
	defer own.Close()
	until(t, "have all jobs ended", func() bool {
		return errors.Is(own.HGet(t.Context(), "lg:{one}:size", "jobs").Err(), redis.Nil)
	})
	trips := float64(counter.Trips()-before) / jobs
	t.Logf("%.1f round trips a job", trips)
	if trips > most {
		t.Errorf("%.1f round trips a job, more than %d", trips, most)
	}
	if n := len(s.fake.Log()); n != jobs {
		t.Errorf("the provider saw %d calls, not %d", n, jobs)
	}
}
