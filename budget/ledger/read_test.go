package ledger_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

func TestLedgerPages(t *testing.T) {
	rdb := shared(t)
	f := newStill(t, rdb, budget.Options{})
	pipe := rdb.Pipeline()
	for range 2345 {
		pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: ledger.Key(f.org, "ledger"), Values: []string{"e", `{"cost_nano":2,"at_us":5}`}})
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	var sum pricing.Nano
	if err := f.Ledger.Entries(t.Context(), f.org, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), func(e ledger.Entry) error {
		sum += e.Cost
		return nil
	}); err != nil || sum != 4690 {
		t.Fatalf("sum %d, %v", sum, err)
	}
}
