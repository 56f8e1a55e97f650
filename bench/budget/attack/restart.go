package attack

import (
	"time"

	"github.com/llmguard/llmguard/bench/budget/mock"
)

// terminated restarts the gateway with SIGTERM while streams are in flight.
var terminated = Attack{
	Name: "restart-term", Title: "a restart (SIGTERM) with calls in flight",
	Setup: Setup{Budget: 10 * restartCall.Most()},
	Run: func(a *Arena) error {
		return a.restart(func() error {
			a.Outage(true, "the gateway gets SIGTERM")
			return a.Gateway.Terminate(a.Ctx, 0)
		})
	},
}

// killed restarts it with SIGKILL.
var killed = Attack{
	Name: "restart-kill", Title: "a crash (SIGKILL) with calls in flight",
	Setup: Setup{Budget: 10 * restartCall.Most()},
	Run:   func(a *Arena) error { return a.restart(func() error { return a.Kill(0) }) },
}

var restartCall = Call{Input: 50, Output: 400, Stream: true}

func (a *Arena) restart(end func() error) error {
	var err error
	a.Each(7, func(i int) {
		if i == 6 {
			a.Arrivals(6)
			a.Wait(300 * time.Millisecond)
			err = end()
			if err == nil {
				err = a.Gateway.Start(a.Ctx, 0)
			}
			a.Outage(false, "the gateway is back")
			return
		}
		c := restartCall
		c.Stream = i != 0
		c.Mock = func(int) mock.Behaviour { return mock.Behaviour{Pace: 4 * time.Millisecond} }
		a.Call(c)
	})
	if err != nil {
		return err
	}
	a.Burst(20, func(int) Call { return restartCall })
	return nil
}
