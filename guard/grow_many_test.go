package guard

import (
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/wire"
)

// TestManyGrow: fifty endless streams of one user grow under one limit until
// each is cut. At no instant are charges and holds above it, by the provider's
// own count no stream used more than was held for it, and none is billed less
// than its caller got.
//
// The provider goes on until it notices that it was cut off. Half a step, here
// 1.2 s of its words, is there for that; on a machine on which other things took
// a third of it, what the provider put out beyond is not held against the guard.
func TestManyGrow(t *testing.T) {
	const streams, step, input = 50, 40, 8
	const amount = streams*(input+step) + 100
	limit := tokens("t", amount)
	limit.Subject = "user"
	r := growing(t, step, limit)
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		return fakeprovider.Behaviour{Endless: true, Gap: 60 * time.Millisecond}
	})
	var wg sync.WaitGroup
	var mu sync.Mutex
	held := map[string]int64{} // tokens of output, by the provider's id
	for range streams {
		c := r.begin(r.plan(prompt("gpt-4o", "hi", streamed)))
		wg.Go(func() {
			defer c.End(t.Context())
			w := httptest.NewRecorder()
			err := c.Forward(t.Context(), w, Forwarding{})
			got := int64(strings.Count(w.Body.String(), `"content":" `)) // words; the first has no space
			res := c.Result
			if e := inStream(t, w.Body.String()); err != nil || res.Outcome != Cut || e.Code == "" || res.Usage.Output < got || got == 0 {
				t.Errorf("%v: %d tokens passed on, %+v, told %+v", err, got, res, e)
			}
			mu.Lock()
			held[res.UpstreamID] = c.held
			mu.Unlock()
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	var slowest time.Duration
	for open := true; open; {
		began := time.Now()
		select {
		case <-done:
			open = false
		case <-time.After(10 * time.Millisecond):
		}
		if list, err := r.guard.Status(t.Context(), r.caller()); err != nil || list[0].Used > amount {
			t.Errorf("%d of %d are used, %v", list[0].Used, amount, err)
		}
		slowest = max(slowest, time.Since(began))
	}
	judged := slowest < 400*time.Millisecond
	r.settle()
	if err := r.fake.Quiet(t.Context()); err != nil {
		t.Fatal(err)
	}
	var produced, charged int64
	for _, rec := range r.fake.Log() {
		produced += rec.Usage.Total()
		if most := held[rec.RequestID]; rec.Outcome != fakeprovider.ClientGone || judged && rec.Usage.Completion > most {
			t.Errorf("the provider put out %d tokens and %d were held: %+v", rec.Usage.Completion, most, rec)
		}
	}
	entries := r.entries()
	for _, e := range entries {
		if charged += e.Usage.Input + e.Usage.Output; e.Overrun != 0 || !e.Estimated || e.Outcome != string(Cut) {
			t.Errorf("ledger %+v", e)
		}
	}
	if len(entries) != streams || charged > amount || r.used()["t"] != charged {
		t.Errorf("%d are charged in %d entries and %d counted, of %d", charged, len(entries), r.used()["t"], amount)
	}
	t.Logf("a look at the limit took %v at most; what the provider put out was judged: %v", slowest, judged)
	t.Logf("the provider used %d of %d, %d are charged", produced, amount, charged)
	// What the cut streams did not use is there for the next.
	if left := amount - charged; left > input+step {
		if c, err := r.guard.Begin(t.Context(), r.plan(prompt("gpt-4o", "hi", streamed)), wire.NewCallID(), 1, ""); err != nil {
			t.Errorf("%d tokens are left and do not let another call in: %v", left, err)
		} else {
			c.End(t.Context())
		}
	}
}
