package proxy

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/queue"
)

// TestGoodput: an org that is offered twice what its limit admits gets what the limit admits, and
// pays for calls whose callers are present when they start, although none returns for its place.
// Two callers come for every call that reaches the provider, and one of them leaves before its
// turn, so the load is the same on any machine.
func TestGoodput(t *testing.T) {
	t.Parallel()
	const open, callers = 3, 90
	r := newRig(t, queue.Pool{}, nil, budget.Limit{
		ID: "open", Subject: budget.Org, Metric: budget.Concurrency, Shape: budget.Shape{Kind: budget.Concurrent, Amount: open},
	})
	arrivals := make(chan struct{}, 10*callers)
	arrive := func(n int) {
		for range n {
			arrivals <- struct{}{}
		}
	}
	var present sync.Map // callers by the text of their calls
	var absent atomic.Int64
	r.fake.Script(func(q *fakeprovider.Request) fakeprovider.Behaviour {
		if _, there := present.Load(strings.TrimSpace(q.UserText)); !there {
			absent.Add(1)
		}
		arrive(2)
		return fakeprovider.Behaviour{Delay: 20 * time.Millisecond}
	})
	r.worker(nil)
	arrive(2 * open)
	var wg sync.WaitGroup
	var delivered atomic.Int64
	for i := range callers {
		select {
		case <-arrivals:
		case <-time.After(30 * time.Second):
			t.Fatal("calls wait, and none reaches the provider")
		}
		wg.Go(func() {
			text := fmt.Sprint("caller ", i)
			present.Store(text, true)
			defer present.Delete(text)
			leaves := i%2 == 1
			timeout := "60"
			if leaves {
				timeout = "0.1"
			}
			a := r.chat(prompt(text, `"max_tokens":5`), "X-Stainless-Timeout", timeout)
			switch {
			case a.status == 200:
				delivered.Add(1)
			case leaves && (a.status == 429 || a.status == 503): // before or after it had a place
			default:
				t.Errorf("got status %d, %s", a.status, a.body)
			}
		})
	}
	redistest.Wait(t, wg.Wait)
	sent, gone := len(r.fake.Log()), int(absent.Load())
	if got := int(delivered.Load()); gone*10 > sent || got*10 < callers/2*9 {
		t.Errorf("%d of %d callers were answered, with %d calls of the provider, %d of them for callers who had left; want half of the callers, and 9 of 10 calls for callers who are there", got, callers, sent, gone)
	}
}
