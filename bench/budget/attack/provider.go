package attack

import (
	"time"

	"github.com/llmguard/llmguard/bench/budget/mock"
	"github.com/llmguard/llmguard/bench/budget/price"
)

// providerErrors lets the provider fail calls in all the ways that cost nothing. A wrong key of the provider
// is not among them: a gateway may well stop after it.
var providerErrors = Attack{
	Name: "provider-errors", Title: "errors of the provider",
	Setup: Setup{Budget: 12 * providerCall.Most()},
	Run: func(a *Arena) error {
		for _, b := range []mock.Behaviour{
			{Status: 400},
			{Status: 404},
			{Status: 500},
			{Status: 502, Body: "<html>Bad Gateway</html>"},
			{Status: 200, Body: "<html>Bad Gateway</html>"},
			{Status: 200},
			{Status: 200, Body: `{"error": {"message": "overloaded", "code": 500}}`},
			{Status: 429},
			{Status: 503},
		} {
			for _, stream := range []bool{false, true} {
				c := providerCall
				c.Stream, c.Timeout = stream, 4*time.Second
				c.Mock = func(int) mock.Behaviour { return b }
				a.Call(c)
			}
		}
		a.Wait(5 * time.Second) // a gateway may pause after the last two
		return nil
	},
}

// brokenStreams breaks the provider's connection before an answer, and in streams.
var brokenStreams = Attack{
	Name: "broken-streams", Title: "the provider's connection breaks in the middle of answers",
	Setup: Setup{Budget: 14 * providerCall.Most()},
	Run: func(a *Arena) error {
		a.Each(10, func(i int) {
			c := providerCall
			c.Stream, c.Timeout = i > 1, 5*time.Second
			c.Mock = func(int) mock.Behaviour {
				return mock.Behaviour{Break: max(1, i*c.Output/10), Pace: time.Millisecond}
			}
			a.Call(c)
		})
		return nil
	},
}

// missingUsage lets the provider answer without usage.
var missingUsage = Attack{
	Name: "missing-usage", Title: "answers without usage",
	Setup: Setup{Budget: 10 * providerCall.Most()},
	Run: func(a *Arena) error {
		a.Burst(20, func(i int) Call { return misreported(i, mock.Behaviour{NoUsage: true, Output: 150}) })
		return nil
	},
}

// lyingUsage lets the provider report too little, then too much.
var lyingUsage = Attack{
	Name: "lying-usage", Title: "usage that is too low or too high",
	Setup: Setup{Budget: 14 * providerCall.Most()},
	Run: func(a *Arena) error {
		low := func(u *price.Usage) { u.Input, u.Output = 1, 1 }
		high := func(u *price.Usage) { u.Input, u.Output = 1_000_000, 1_000_000 }
		for i := range 12 {
			a.Call(misreported(i, mock.Behaviour{Lie: low, Output: 200}))
		}
		for i := range 2 {
			a.Call(misreported(i, mock.Behaviour{Lie: high, Output: 10}))
		}
		return nil
	},
}

var providerCall = Call{Input: 40, Output: 300}

func misreported(i int, b mock.Behaviour) Call {
	c := providerCall
	c.Stream = i%2 == 0
	c.Mock = func(int) mock.Behaviour { return b }
	return c
}
