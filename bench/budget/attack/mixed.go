package attack

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/llmguard/llmguard/bench/budget/mock"
)

// mixed makes ten minutes of all kinds of calls for three users, some of which are hung up or fail. A
// window later every budget must be free again.
var mixed = Attack{
	Name: "mixed", Title: "ten minutes of mixed traffic, then every budget must be free",
	Setup: Setup{Users: 3, Budget: 25 * providerCall.Most(), Window: time.Minute},
	Run: func(a *Arena) error {
		rng := rand.New(rand.NewPCG(1, 2))
		kinds := make([]int, 10000)
		for i := range kinds {
			kinds[i] = rng.IntN(10)
		}
		stop := a.Background(6, 150*time.Millisecond, func(i int) Call { return mixedCall(i, kinds[i%len(kinds)]) })
		a.Wait(time.Duration(a.Either(10, 600)) * time.Second)
		stop()
		a.Note("the traffic has ended; a window later all is free again")
		a.Wait(a.Setup.Window + a.Setup.Window/30)
		return nil
	},
}

func mixedCall(i, kind int) Call {
	c := Call{User: i % 3, Input: 40, Output: 300, Stream: kind%2 == 0, Timeout: 10 * time.Second}
	b := mock.Behaviour{Output: 20 + i%100, Pace: time.Millisecond}
	switch kind {
	case 1:
		b.Status = http.StatusInternalServerError
	case 2:
		c.HangUp = 5
	case 3:
		c.Model = "gpt-4o-mini"
	case 4:
		b.Break = 10
	case 5:
		c = Call{User: c.User, Endpoint: "embeddings", Model: "text-embedding-3-small", Input: 100}
	case 6:
		b.NoUsage = true
	case 7:
		c.Timeout, b.First = 30*time.Millisecond, 100*time.Millisecond
	}
	c.Mock = func(int) mock.Behaviour { return b }
	return c
}
