package budget

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/pricing"
)

// ordinary is a call under two limits, as most are, and a Store that no server stands
// behind.
func ordinary(tb testing.TB) (s *Store, limits []Limit, call func(n int) Call) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	tb.Cleanup(func() { _ = rdb.Close() })
	limits = []Limit{
		{ID: "month", Subject: Org, Metric: Cost, Shape: Shape{Kind: Window, Amount: 1e12, Window: 30 * 24 * time.Hour}},
		{ID: "minute", Subject: User, Metric: Requests, Shape: Shape{Kind: Bucket, Amount: 1000, Refill: 1000, Per: time.Minute}},
	}
	return New(rdb, Options{Tail: -1}), limits, func(n int) Call {
		return Call{
			ID: fmt.Sprintf("01kakn3mv8%016d", n), Org: "acme", User: "alice", Key: "k1", IP: "10.0.0.1", Model: "gpt-4o-mini",
			Provider: "openai", Endpoint: "chat.completions", PriceVersion: "2026-01-01",
		}
	}
}

// asCommand is what redisconn sends.
func asCommand(tb testing.TB, sc script, keys []string, args []any) redis.Cmder {
	all := []any{"evalsha", sc.Hash(), len(keys)}
	for i := range keys {
		all = append(all, &keys[i])
	}
	return redis.NewCmd(tb.Context(), append(all, args...)...)
}

func holdArgsOf(tb testing.TB, s *Store, limits []Limit, c Call) (*Hold, []string, []any) {
	h, err := s.prepare(limits, c, Amounts{Cost: 1000, Tokens: 500}, Amounts{Cost: 500, Tokens: 100})
	if err != nil {
		tb.Fatal(err)
	}
	keys, args, err := s.holdArgs(h, 0, time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	return h, keys, args
}

func settleArgsOf(tb testing.TB, s *Store, h *Hold) ([]string, []any) {
	keys, args, err := s.endingArgs(settling(h, &Settlement{
		Actual: Amounts{Cost: 900, Tokens: 90}, Usage: pricing.Usage{Input: 50, Output: 40, Requests: 1}, Outcome: "completed", Status: 200,
	}), time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	return keys, args
}

// TestAllocations bounds the pieces of memory that every call takes before its script
// is sent, and what it takes to join sixteen holds or settles.
func TestAllocations(t *testing.T) {
	s, limits, call := ordinary(t)
	one := call(0)
	held, _, _ := holdArgsOf(t, s, limits, one)
	var holds, settles []redis.Cmder
	for i := range 16 {
		h, keys, args := holdArgsOf(t, s, limits, call(i))
		holds = append(holds, asCommand(t, s.scripts.hold.of(h.states), keys, args))
		keys, args = settleArgsOf(t, s, h)
		settles = append(settles, asCommand(t, s.scripts.settle.of(h.states), keys, args))
	}
	join := func(cmds []redis.Cmder) func() {
		return func() {
			f := &joined{}
			f.sort(cmds)
			f.pack()
			if len(f.sent) != 1 || len(f.alone) != 0 {
				t.Fatalf("%d runs, %d alone", len(f.sent), len(f.alone))
			}
		}
	}
	for _, c := range []struct {
		name string
		most float64
		run  func()
	}{
		{"hold", 17, func() { holdArgsOf(t, s, limits, one) }},
		{"settle", 13, func() { settleArgsOf(t, s, held) }},
		{"join 16 holds", 40, join(holds)},
		{"join 16 settles", 40, join(settles)},
	} {
		if n := testing.AllocsPerRun(500, c.run); n > c.most {
			t.Errorf("%s: %v allocations, at most %v", c.name, n, c.most)
		}
	}
}
