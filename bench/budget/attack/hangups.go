package attack

import (
	"time"

	"github.com/llmguard/llmguard/bench/budget/mock"
)

// hangUps hangs up streams at each tenth of their output, and before the first token.
var hangUps = Attack{
	Name: "hang-ups", Title: "streams hung up at each tenth",
	Setup: Setup{Budget: 12 * hangUpCall.Most()},
	Run: func(a *Arena) error {
		a.Each(10, func(i int) {
			c := hangUpCall
			c.HangUp = c.Output * i / 10
			if i == 0 {
				c.Timeout = 100 * time.Millisecond
			}
			c.Mock = func(int) mock.Behaviour {
				b := mock.Behaviour{Pace: 4 * time.Millisecond}
				if i == 0 {
					b.First = time.Second
				}
				return b
			}
			a.Call(c)
		})
		return nil
	},
}

var hangUpCall = Call{Input: 50, Output: 300, Stream: true}
