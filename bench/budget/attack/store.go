package attack

import (
	"time"

	"github.com/llmguard/llmguard/bench/budget/mock"
)

// storeGone cuts the store off for three seconds, while calls are made and with calls in flight.
var storeGone = Attack{
	Name: "store-gone", Title: "the store is unreachable for 3 s, then back",
	Setup: Setup{Budget: 20 * storeCall.Most(), Store: true},
	Run: func(a *Arena) error {
		stop := a.Background(3, 50*time.Millisecond, storeCalls)
		a.Wait(time.Second)
		a.Outage(true, "the store is gone")
		a.Gateway.Store.Cut()
		a.Wait(time.Second)
		a.Burst(30, storeCalls)
		a.Wait(2 * time.Second)
		stop()
		a.Gateway.Store.Restore()
		a.Wait(2 * time.Second)
		a.Outage(false, "the store is back")
		a.Burst(10, storeCalls)
		return nil
	},
}

// storeSlow makes the store 300 ms away, in each direction.
var storeSlow = Attack{
	Name: "store-slow", Title: "the store answers after 600 ms",
	Setup: Setup{Budget: 20 * storeCall.Most(), Store: true},
	Run: func(a *Arena) error {
		a.Burst(5, storeCalls)
		a.Outage(true, "the store is slow")
		a.Gateway.Store.Slow(300 * time.Millisecond)
		a.Burst(30, storeCalls)
		a.Wait(time.Second)
		a.Gateway.Store.Restore()
		a.Wait(2 * time.Second)
		a.Outage(false, "the store is as fast as before")
		a.Burst(30, storeCalls)
		return nil
	},
}

var storeCall = Call{Input: 40, Output: 300}

func storeCalls(i int) Call {
	c := storeCall
	c.Stream = i%2 == 0
	c.Mock = func(int) mock.Behaviour { return mock.Behaviour{Output: 100, Pace: 2 * time.Millisecond} }
	return c
}
