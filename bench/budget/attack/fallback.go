package attack

import (
	"net/http"

	"github.com/llmguard/llmguard/bench/budget/mock"
)

// fallback lets the provider fail a cheap model, so that a gateway with a fallback from gpt-4o-mini to
// gpt-4o sends the call again to a model that costs 17 times as much. The budget is enough for 40 calls to
// the cheap model, and for two to the other.
var fallback = Attack{
	Name: "fallback", Title: "20 parallel calls that fall back to a dearer model",
	Setup: Setup{Budget: 40 * fallbackCall.Most()},
	Run: func(a *Arena) error {
		a.Burst(20, func(int) Call {
			c := fallbackCall
			c.Mock = func(attempt int) mock.Behaviour {
				if attempt == 0 {
					return mock.Behaviour{Status: http.StatusServiceUnavailable}
				}
				return mock.Behaviour{}
			}
			return c
		})
		return nil
	},
}

var fallbackCall = Call{Model: "gpt-4o-mini", Input: 40, Output: 400}
