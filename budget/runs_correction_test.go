package budget

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/pricing"
)

// A correction of a call changes what the runs of the call have spent by as much as the bill, once, so that they
// add up to the ledger; never below zero, and never what open calls hold.
func TestCorrectionOfARun(t *testing.T) {
	both(t, func(t *testing.T, rdb *redis.Client) {
		ctx := t.Context()
		f := newFixture(t, rdb, Options{})
		root := f.newRun(t, "", "run_root", 1000)
		child := f.newRun(t, root.Path, "run_child", 700)
		other := f.newRun(t, root.Path, "run_other", 100)
		uses := func(what string, want ...RunUse) {
			t.Helper()
			got, err := f.Runs.Uses(ctx, f.org, []Run{root, child, other})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: got uses %v, error %v, want %v", what, got, err, want)
			}
		}
		h, err := f.Hold(ctx, f.in(600, root, child))
		if err != nil {
			t.Fatal(err)
		}
		f.settle(ctx, h, 600)
		if _, err := f.Hold(ctx, f.in(300, root, child)); err == nil {
			t.Fatal("a call over the budget was held")
		}
		adjust := func(id string, amount pricing.Nano, want ...string) {
			t.Helper()
			for i := range 2 {
				done, err := f.Adjust(ctx, ledger.Adjustment{ID: id, Call: h.Call, Amount: amount, By: "carla", Reason: "r"}, nil)
				if err != nil || done.Replayed != (i == 1) || !slices.Equal(done.Runs, want) {
					t.Fatalf("%s: got %+v, error %v, want the runs %v", id, done, err, want)
				}
			}
		}
		both := []string{"run_root", "run_child"}
		adjust("back", -250, both...)
		uses("after a credit", RunUse{350, 0, 650}, RunUse{350, 0, 350}, RunUse{0, 0, 100})
		spent := map[string]pricing.Nano{}
		entries, _, _ := f.books(ctx)
		for _, e := range entries {
			for _, id := range e.Run.IDs() {
				spent[id] += e.Cost
			}
		}
		if spent["run_root"] != 350 || spent["run_child"] != 350 {
			t.Errorf("got %v in the ledger, want 350 for both runs", spent)
		}
		adjust("more", 50, both...)
		uses("after a debit", RunUse{400, 0, 600}, RunUse{400, 0, 300}, RunUse{0, 0, 100})
		if _, err = f.Hold(ctx, f.in(300, root, child)); err != nil {
			t.Fatalf("after corrections: %v", err)
		}
		adjust("too-much", -900, both...)
		uses("while a call is open", RunUse{0, 300, 700}, RunUse{0, 300, 400}, RunUse{0, 0, 100})

		f.pass(time.Hour + RunKept + time.Minute)
		rdb.Del(ctx, runKey(f.org, "run_root"), runKey(f.org, "run_child")) // as their lifetime does
		adjust("late", -1)
	})
}
