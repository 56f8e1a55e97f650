package budget

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// ordinary returns a typical call under two limits and a Store without a server.
func ordinary(tb testing.TB) (s *Store, limits []Limit, call func(n int) ledger.Call) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	tb.Cleanup(func() { _ = rdb.Close() })
	limits = []Limit{
		{ID: "month", Subject: Org, Metric: Cost, Shape: Shape{Kind: Window, Amount: 1e12, Window: 30 * 24 * time.Hour}},
		{ID: "minute", Subject: User, Metric: Requests, Shape: Shape{Kind: Bucket, Amount: 1000, Refill: 1000, Per: time.Minute}},
	}
	return New(redistest.DB(rdb), Options{Tail: -1}), limits, func(n int) ledger.Call {
		return ledger.Call{
			ID: fmt.Sprintf("01kakn3mv8%016d", n), Org: "acme", User: "alice", Key: "k1", IP: "10.0.0.1", Model: "gpt-4o-mini",
			Provider: "openai", Endpoint: "chat.completions", PriceVersion: "2026-01-01",
		}
	}
}

func holdRequestOf(tb testing.TB, s *Store, limits []Limit, c ledger.Call) (*Hold, *request) {
	h, err := s.binder.prepare(&Terms{
		Limits: limits, Call: c, Max: Amounts{Cost: 1000, Tokens: 500}, Expected: Amounts{Cost: 500, Tokens: 100},
	})
	if err != nil {
		tb.Fatal(err)
	}
	r, err := s.holdRequest(tb.Context(), h, 0, time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	return h, r
}

func settleRequestOf(tb testing.TB, s *Store, h *Hold) *request {
	r, err := s.settler.request(tb.Context(), s.runner.scripts.settle, settling(h, &Settlement{
		Actual: Amounts{Cost: 900, Tokens: 90}, Usage: pricing.Usage{Input: 50, Output: 40, Requests: 1}, Outcome: "completed", Status: 200,
	}), time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// TestAllocations bounds the allocations of every call before its script is sent, and those of
// joining sixteen holds or settles.
func TestAllocations(t *testing.T) {
	s, limits, call := ordinary(t)
	one := call(0)
	held, hold := holdRequestOf(t, s, limits, one)
	settle := settleRequestOf(t, s, held)
	var holds, settles []redisconn.Reply
	for i := range 16 {
		h, r := holdRequestOf(t, s, limits, call(i))
		holds, settles = append(holds, r), append(settles, settleRequestOf(t, s, h))
	}
	join := func(cmds []redisconn.Reply) func() {
		return func() {
			f := &joined{}
			f.sort(cmds)
			f.pack()
			if len(f.sent) != 1 || len(f.sent[0].args(false)) < 100 {
				t.Fatalf("%d runs", len(f.sent))
			}
		}
	}
	for _, c := range []struct {
		name string
		most float64
		run  func()
	}{
		{"hold", 20, func() { holdRequestOf(t, s, limits, one) }},
		{"send a hold", 16, func() { hold.Args() }},
		{"settle", 20, func() { settleRequestOf(t, s, held) }},
		{"send a settle", 16, func() { settle.Args() }},
		{"join 16 holds", 40, join(holds)},
		{"join 16 settles", 40, join(settles)},
	} {
		if n := testing.AllocsPerRun(500, c.run); n > c.most {
			t.Errorf("%s: %v allocations, at most %v", c.name, n, c.most)
		}
	}
}
