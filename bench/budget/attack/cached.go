package attack

import "github.com/llmguard/llmguard/bench/budget/mock"

// cachedInput makes calls whose input comes from the provider's prompt cache, at half the price. A gateway
// that does not know the price charges too much.
var cachedInput = Attack{
	Name: "cached-input", Title: "prompt-cache prices",
	Setup: Setup{Budget: 12 * cachedCall.Most()},
	Run: func(a *Arena) error {
		for i := range 10 {
			c := cachedCall
			c.Stream = i%2 == 0
			c.Mock = func(int) mock.Behaviour { return mock.Behaviour{Cached: c.Input * i / 10} }
			a.Call(c)
		}
		return nil
	},
}

var cachedCall = Call{Input: 2000, Output: 20}
