package attack

import (
	"net/http"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/bench/budget/mock"
)

// retries repeats each call as SDKs do: the provider fails the first attempt, the second takes longer
// than the SDK waits, the third is answered.
var retries = Attack{
	Name: "retries", Title: "retries of an SDK after a 500 and a timeout",
	Setup: Setup{Budget: 30 * retriedCall.Most()},
	Run: func(a *Arena) error {
		a.Each(6, func(i int) {
			for attempt := range 3 {
				c := retriedCall
				c.Headers = map[string]string{
					"X-Stainless-Retry-Count": strconv.Itoa(attempt), "X-Stainless-Lang": "js", "X-Stainless-Timeout": "1",
				}
				c.Mock = func(int) mock.Behaviour {
					switch attempt {
					case 0:
						return mock.Behaviour{Status: http.StatusInternalServerError}
					case 1:
						return mock.Behaviour{First: 1500 * time.Millisecond}
					}
					return mock.Behaviour{}
				}
				if attempt == 1 {
					c.Timeout = time.Second
				}
				if a.Call(c).Verdict == Served {
					return
				}
				a.Wait(100 * time.Millisecond)
			}
		})
		return nil
	},
}

var retriedCall = Call{Input: 40, Output: 200}
