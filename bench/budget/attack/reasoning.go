package attack

import (
	"time"

	"github.com/llmguard/llmguard/bench/budget/mock"
)

// reasoning makes calls that think more than they show, all in parallel, and then hangs up some that have
// shown nothing yet.
var reasoning = Attack{
	Name: "reasoning", Title: "reasoning tokens, also of streams that are hung up",
	Setup: Setup{Budget: 10 * reasoningCall.Most()},
	Run: func(a *Arena) error {
		thinks := func(int) mock.Behaviour { return mock.Behaviour{Reasoning: 450} }
		a.Burst(20, func(i int) Call {
			c := reasoningCall
			c.Stream, c.Mock, c.Output = i%2 == 0, thinks, c.Output/2
			return c
		})
		a.Idle()
		a.Wait(500 * time.Millisecond)
		a.Each(3, func(int) {
			c := reasoningCall
			c.Stream, c.Timeout, c.Output = true, 300*time.Millisecond, c.Output/8
			c.Mock = func(int) mock.Behaviour { return mock.Behaviour{Reasoning: 60, Pace: 10 * time.Millisecond} }
			a.Call(c)
		})
		return nil
	},
}

var reasoningCall = Call{Model: "o4-mini", Input: 40, Output: 1000}
