package attack

import "github.com/llmguard/llmguard/bench/budget/mock"

// dearerAnswer lets the provider answer with a dearer model than requested, as routers do. Nobody can
// know before the call; but each answer says so, and the calls come one after another.
var dearerAnswer = Attack{
	Name: "dearer-answer", Title: "answers of a dearer model than requested",
	Setup: Setup{Budget: 100 * fallbackCall.Most()},
	Run: func(a *Arena) error {
		for range 20 {
			c := fallbackCall
			c.Mock = func(int) mock.Behaviour { return mock.Behaviour{Model: "gpt-4o"} }
			a.Call(c)
		}
		return nil
	},
}
