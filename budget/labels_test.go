package budget

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/randtest"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// TestLabelRecord: a hold's record keeps the labels, and versions without labels can decode it.
func TestLabelRecord(t *testing.T) {
	h := &Hold{Call: ledger.Call{User: "carol", JobID: "job_1", Labels: "project=a,run=b"}, states: []state{{Key: "l:a", Kind: "w", Metric: Cost, P1: "1"}}}
	about := h.about()
	got, ok := decodeRecord("acme", "x/1", "1,2|3|"+about)
	if !ok || got.Call.Labels != h.Call.Labels || got.Call.JobID != "job_1" || len(got.states) != 1 {
		t.Errorf("got %+v, want %+v", got, h)
	}
	if n := strings.Count(about, fieldSep); n != 7+5 {
		t.Errorf("the record has %d separators, want 12 as without labels", n)
	}
}

// TestManySessions: limits of every shape count each session on its own; the sums by label are
// those of the ledger; and Redis deletes the states of many sessions within two minutes of their
// windows of a second, and those of open calls when the calls have ended.
func TestManySessions(t *testing.T) {
	sessions := randtest.Rounds(2_000, 100_000)
	server := redistest.Start(t)
	rdb := server.Client()
	s := New(redistest.DB(rdb), Options{SumLabels: []string{"project"}})
	by := func(id string, m Metric, shape Shape) Limit {
		return Limit{ID: id, Subject: "user+session", Metric: m, Shape: shape}
	}
	limits := []Limit{
		by("window", Cost, Shape{Kind: Window, Amount: 3, Window: time.Second}),
		by("exact", Requests, Shape{Kind: ExactWindow, Amount: 1, Window: time.Second}),
		by("fixed", Tokens, Shape{Kind: Fixed, Amount: 100, Window: time.Second}),
		by("bucket", Cost, Shape{Kind: Bucket, Amount: 3, Refill: 3, Per: time.Second}),
		by("open", Concurrency, Shape{Kind: Concurrent, Amount: 1}),
	}
	var spent pricing.Nano
	var endings []Settle
	for i := range sessions {
		labels := ledger.Labels(fmt.Sprintf("project=p%d,session=s%d", i%3, i))
		c := ledger.Call{ID: idAt(time.Now(), i), Org: "acme", User: "carol", Labels: labels}
		h, err := s.Hold(t.Context(), Terms{Limits: limits, Call: c, Max: Amounts{Cost: 3, Tokens: 5}})
		if err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
		cost := pricing.Nano(1 + i%3)
		spent += cost
		endings = append(endings, Settle{h, &Settlement{Actual: Amounts{Cost: cost, Tokens: 1}, Outcome: "completed"}})
		if len(endings) == 500 {
			for _, done := range s.SettleAll(t.Context(), endings) {
				if done.Err != nil {
					t.Fatal(done.Err)
				}
			}
			endings = nil
		}
	}
	list, err := s.Ledger.LabelRollups(t.Context(), "acme", "project", time.Now().Add(-24*time.Hour), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	sums, want := map[string]pricing.Nano{}, map[string]pricing.Nano{}
	for _, r := range list {
		sums[r.Value] += r.Cost
	}
	err = s.Ledger.Entries(t.Context(), "acme", time.Time{}, time.Time{}, func(e ledger.Entry) error {
		want[e.Labels.Get("project")] += e.Cost
		return nil
	})
	if err != nil || fmt.Sprint(sums) != fmt.Sprint(want) || sums["p0"]+sums["p1"]+sums["p2"] != spent {
		t.Errorf("sums by project are %v, those of the entries %v, together %d (%v)", sums, want, spent, err)
	}
	states, err := rdb.Keys(t.Context(), "lg:{acme}:l:*").Result()
	if err != nil || len(states) == 0 {
		t.Fatalf("%d states, %v", len(states), err)
	}
	for _, k := range states { // a minute is the grace for clocks (lua/shapes.lua)
		life, err := rdb.PTTL(t.Context(), k).Result()
		gone := life == -2
		if err != nil || !gone && (life < 0 || life > 2*time.Minute || strings.Contains(k, ":l:open:")) {
			t.Fatalf("%s lives %s (%v), want at most two minutes, and no state of open calls", k, life, err)
		}
	}
}

// TestLabelSumsExpireAndAdjust: expired holds, late settles and corrections are in the sums too.
func TestLabelSumsExpireAndAdjust(t *testing.T) {
	server := redistest.Start(t)
	s := New(server.DB(), Options{SumLabels: []string{"project", "run"}, Lease: 50 * time.Millisecond})
	call := func(n int) ledger.Call {
		return ledger.Call{ID: idAt(time.Now(), n), Org: "acme", User: "carol", Labels: "project=mobile"}
	}
	limits := []Limit{{ID: "day", Subject: "project", Metric: Cost, Shape: Shape{Kind: Window, Amount: 1000, Window: time.Hour}}}
	h, err := s.Hold(t.Context(), Terms{Limits: limits, Call: call(1), Max: Amounts{Cost: 70}})
	if err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "the hold expires", func() bool {
		n, err := s.Expiry.Sweep(t.Context(), "acme")
		return err == nil && n == 1
	})
	if _, err := s.Settle(t.Context(), h, Settlement{Actual: Amounts{Cost: 30}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Adjust(t.Context(), ledger.Adjustment{ID: "a", Call: call(1), Amount: -10, By: "ops", Reason: "a test"}, limits); err != nil {
		t.Fatal(err)
	}
	for label, value := range map[string]string{"project": "mobile", "run": ""} {
		list, err := s.Ledger.LabelRollups(t.Context(), "acme", label, time.Now().Add(-24*time.Hour), time.Now().Add(time.Hour))
		if err != nil || len(list) != 1 || list[0].Value != value || list[0].Cost != 20 || list[0].Calls != 1 {
			t.Errorf("sums by %s are %+v (%v), want 20 nano-USD and one call of %q", label, list, err, value)
		}
	}
	err = s.Ledger.Entries(t.Context(), "acme", time.Time{}, time.Time{}, func(e ledger.Entry) error {
		if e.Labels != "project=mobile" {
			t.Errorf("an entry of kind %s has labels %q", e.Kind, e.Labels)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCountLabel: the values of a label are counted up to the maximum, over all processes.
func TestCountLabel(t *testing.T) {
	server := redistest.Start(t)
	a, b := New(server.DB(), Options{}), New(server.DB(), Options{})
	for _, c := range []struct {
		s     *Store
		value string
		want  bool
	}{{a, "one", true}, {b, "two", true}, {a, "three", false}, {b, "one", true}, {a, "one", true}, {b, "three", false}} {
		if got, err := c.s.CountLabel(t.Context(), "acme", "run", c.value, 2); err != nil || got != c.want {
			t.Errorf("%s: %v %v, want %v", c.value, got, err, c.want)
		}
	}
	if got, err := a.CountLabel(t.Context(), "acme", "run", "three", 3); err != nil || !got {
		t.Errorf("three of a raised maximum: %v %v, want true", got, err)
	}
	server.Kill()
	for value, want := range map[string]bool{"one": true, "three": false} { // remembered for the day
		if got, err := a.CountLabel(t.Context(), "acme", "run", value, 2); err != nil || got != want {
			t.Errorf("%s without Redis: %v %v, want %v", value, got, err, want)
		}
	}
}
