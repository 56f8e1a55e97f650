package budget

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestLedgersAreBoundedInSum: an org with very many calls gets no more of Redis's memory than is
// allotted to ledgers. It loses its oldest entries but no total, and no other org loses an entry.
func TestLedgersAreBoundedInSum(t *testing.T) {
	const used, share = 32 << 20, 25
	s := redistest.Start(t, redistest.WithArgs("--maxmemory", fmt.Sprint(used)))
	rdb, ctx := s.Client(), t.Context()
	f := newFixture(t, rdb, Options{})
	f.charge(3)
	_, before, _ := f.books(ctx)
	fill := func(org string, entries int) {
		t.Helper()
		pipe := rdb.Pipeline()
		for range entries {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: key(org, "ledger"), Values: []string{"e", strings.Repeat("x", 700)}})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			t.Fatal(err)
		}
	}
	fill(f.org, 30_000)
	fill("honest", 100)
	trim := NewTrimmer(f.Ledger, func() []string { return []string{"idle", f.org, "honest"} }, share)
	for range 2 { // the second finds nothing to do
		if err := trim.Trim(ctx); err != nil {
			t.Fatal(err)
		}
	}
	bytes, entries, err := trim.sizes(ctx, rdb, trim.orgs())
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
	now := time.UnixMicro(f.now.Load())
	days, err := f.Ledger.Rollups(ctx, f.org, now.Add(-24*time.Hour), now.Add(time.Second))
	var after Sums
	for _, day := range days {
		after.Add(day.Sums)
	}
	if err != nil || before.Cost == 0 || after != before {
		t.Errorf("the org's totals are %+v, want %+v: %v", after, before, err)
	}
}

func TestLevelOf(t *testing.T) {
	for _, test := range []struct {
		sizes []int64
		most  int64
		want  int64
	}{
		{[]int64{50, 10, 5}, 30, 15},
		{[]int64{50, 50}, 30, 15},
		{[]int64{1, 100}, 30, 29},
	} {
		if got := levelOf(test.sizes, test.most); got != test.want {
			t.Errorf("level of %v in %d is %d, want %d", test.sizes, test.most, got, test.want)
		}
	}
	if got := levelOf([]int64{1, 2}, 3); got < 3 {
		t.Errorf("what is within the bound is cut to %d", got)
	}
}
