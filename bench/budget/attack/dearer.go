package attack

import "github.com/llmguard/llmguard/bench/budget/mock"

// dearerAnswer lets the provider answer with a dearer model than requested, as routers do. No gateway can
// know it before the call, but each answer says so. The calls come one after another, and six of them cost
// exactly the budget.
var dearerAnswer = Attack{
	Name: "dearer-answer", Title: "answers of a dearer model than requested",
	Setup: Setup{Budget: 6 * dearerCall.Most()},
	Run: func(a *Arena) error {
		for range 20 {
			c := dearerCall
			c.Model = "gpt-4o-mini"
			c.Mock = func(int) mock.Behaviour { return mock.Behaviour{Model: "gpt-4o"} }
			a.Call(c)
		}
		return nil
	},
}

var dearerCall = Call{Model: "gpt-4o", Input: 40, Output: 400}
