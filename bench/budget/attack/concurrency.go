package attack

import (
	"time"

	"github.com/llmguard/llmguard/bench/budget/mock"
)

// concurrency hangs up more streams than may be in flight in parallel. Afterwards as many as the limit allows
// must pass again at the same time, and no more.
var concurrency = Attack{
	Name: "concurrency", Title: "a limit of 3 calls in parallel, after 12 hang-ups",
	Setup: Setup{Budget: 40 * hangUpCall.Most(), Parallel: 3},
	Run: func(a *Arena) error {
		for range 4 {
			a.Each(3, func(int) {
				c := hangUpCall
				c.HangUp = 20
				c.Mock = func(int) mock.Behaviour { return mock.Behaviour{Pace: 4 * time.Millisecond} }
				a.Call(c)
			})
			a.Idle()
			a.Wait(time.Duration(a.Gateway.Manifest.Settles))
		}
		a.Mock.Peak()
		a.Burst(12, func(int) Call { return hangUpCall })
		peak := a.Mock.Peak()
		a.AboveParallel(peak - a.Setup.Parallel)
		if missing := a.Setup.Parallel - peak; missing > 0 {
			a.Note("places that did not come back after the hang-ups")
			a.refuseFalsely(missing)
		}
		return nil
	},
}
