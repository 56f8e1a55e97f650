package ledger_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestLedgersAreBoundedInSum: an org with very many calls gets no more of Redis's memory than is
// allotted to ledgers. It loses its oldest entries but no total, and no other org loses an entry.
func TestLedgersAreBoundedInSum(t *testing.T) {
	const used, share = 32 << 20, 25
	s := redistest.Start(t, redistest.WithArgs("--maxmemory", fmt.Sprint(used)))
	rdb, ctx := s.Client(), t.Context()
	f := newStill(t, rdb, budget.Options{})
	f.charge(3)
	before := f.total()
	fill := func(org string, entries int) {
		t.Helper()
		pipe := rdb.Pipeline()
		for range entries {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: ledger.Key(org, "ledger"), Values: []string{"e", strings.Repeat("x", 700)}})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
	fill(f.org, 30_000)
	fill("honest", 100)
	trim := ledger.NewTrimmer(f.Ledger, func() []string { return []string{"idle", f.org, "honest"} }, share)
	for range 2 { // the second finds nothing to do
		if err := trim.Trim(ctx); err != nil {
			t.Fatal(err)
		}
	}
	bytes, entries, err := trim.Sizes(ctx, redistest.DB(rdb))
	if err != nil {
		t.Fatal(err)
	}
	const most = used / 100 * share
	if sum := bytes[0] + bytes[1] + bytes[2]; sum > most*11/10 || sum < most/2 {
		t.Errorf("the ledgers have %d bytes, want about %d", sum, most)
	}
	if entries[2] != 100 {
		t.Errorf("the other org has %d entries left of 100", entries[2])
	}
	if after := f.total(); before.Cost == 0 || after != before {
		t.Errorf("the org's totals are %+v, want %+v", after, before)
	}
}
