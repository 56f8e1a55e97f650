package budget_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/goredis"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// Each id may do this 10 times in 10 seconds, counted over all processes.
func ExampleLimiter() {
	rdb, stop := redistest.ForExample() // in a program: redis.NewClient
	defer stop()
	limiter, err := budget.NewLimiter(goredis.New(rdb), "api", budget.Rate(10, 10*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer limiter.Close()

	for _, n := range []int64{1, 9, 1} {
		r, err := limiter.Allow(context.Background(), "alice", n)
		if err != nil {
			fmt.Println("Redis does not answer:", err)
			return
		}
		fmt.Println(r.Allowed, r.Limit, r.Remaining, r.Reset > 9*time.Second, r.RetryAfter > 0)
	}
	// Output:
	// true 10 9 true false
	// true 10 0 true false
	// false 10 0 true true
}

const dollar pricing.Nano = 1_000_000_000

// Each user may spend $1 a day. What a task costs is known only at its end, so its maximum is held
// first.
func ExampleStore() {
	rdb, stop := redistest.ForExample() // in a program: redis.NewClient
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store := budget.New(goredis.New(rdb), budget.Options{})
	go func() { _ = store.Run(ctx) }() // renews the holds of this process and expires those of dead ones
	limits := []budget.Limit{{
		ID: "daily", Subject: budget.User, Metric: budget.Cost,
		Shape: budget.Shape{Kind: budget.Window, Amount: int64(dollar), Window: 24 * time.Hour},
	}}
	hold := func(most pricing.Nano) (*budget.Hold, error) {
		return store.Hold(ctx, budget.Terms{
			Limits: limits, Max: budget.Amounts{Cost: most},
			Call: ledger.Call{ID: budget.NewCallID(), Org: "acme", User: "alice"},
		})
	}

	task, err := hold(dollar / 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = store.Extend(ctx, task, budget.Amounts{Cost: dollar / 4}) // it may cost more than expected
	fmt.Println("extended:", err == nil)

	_, err = hold(dollar / 2)
	var exceeded *budget.ExceededError
	if errors.As(err, &exceeded) {
		fmt.Println("another one:", pricing.Nano(exceeded.Binding.Remaining), "left")
	}

	receipt, err := store.Settle(ctx, task, budget.Settlement{Actual: budget.Amounts{Cost: dollar / 10}})
	fmt.Println("charged:", receipt.Charged, err)
	again, err := store.Settle(ctx, task, budget.Settlement{Actual: budget.Amounts{Cost: dollar / 10}})
	fmt.Println("once:", again.Replayed, err)

	other, err := hold(dollar / 2)
	if err == nil {
		err = store.Void(ctx, other) // it did nothing
	}
	statuses, _ := store.Peek(ctx, limits, ledger.Call{Org: "acme", User: "alice"})
	fmt.Println("left:", pricing.Nano(statuses[0].Remaining), err)
	// Output:
	// extended: true
	// another one: $0.250000000 left
	// charged: $0.100000000 <nil>
	// once: true <nil>
	// left: $0.900000000 <nil>
}
