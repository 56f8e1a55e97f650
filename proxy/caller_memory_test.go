package proxy

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestCrowd: while hundreds wait, garbage is collected, as their number grows and then at
// intervals; a few callers that come and go cause no collection.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := newCrowd()
		var collected, takes atomic.Int64
		go c.tend(ctx, func() { collected.Add(1); time.Sleep(time.Duration(takes.Load())) })
		step := func(what string, change int, passes time.Duration, want int64) {
			t.Helper()
			for range change {
				c.join()
			}
			for range -change {
				c.leave()
			}
			time.Sleep(passes)
			synctest.Wait()
			if n := collected.Load(); n != want {
				t.Fatalf("%s: collected %d times, want %d", what, n, want)
			}
		}
		step("a few", crowdStep-1, time.Hour, 0)
		step("many", 1, time.Second, 1)
		step("one less", -1, 0, 1)
		step("one more again", 1, 0, 1)
		step("twice as many", crowdStep, time.Second, 2)
		step("they stay", 0, 3*crowdEvery, 5)
		takes.Store(int64(time.Second))
		step("it takes long", 0, 10*time.Minute, 17) // immediately, then every 51 s
		takes.Store(0)
		step("they leave", -2*crowdStep, time.Hour, 17)
		step("many come back", crowdStep, time.Second, 18)
	})
}
