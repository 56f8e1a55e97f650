package budget

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/wire"
)

// TestResetCounters checks that all counters with usage are found and set to what open holds hold,
// and that no others change.
func TestResetCounters(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	s := New(redistest.DB(rdb), Options{Lease: time.Hour})
	limits := []Limit{
		{ID: "month", Subject: Org, Metric: Requests, Shape: Shape{Kind: Calendar, Amount: 1e6, Calendar: "month", Location: time.UTC}},
		{ID: "day", Subject: User, Metric: Requests, Shape: Shape{Kind: Window, Amount: 1000, Window: 24 * time.Hour}},
		{ID: "address", Subject: IP, Metric: Requests, Shape: Shape{Kind: ExactWindow, Amount: 1000, Window: time.Hour}},
		{ID: "refill", Subject: Key, Metric: Requests, Shape: Shape{Kind: Bucket, Amount: 1000, Refill: 1, Per: time.Hour}},
	}
	const users = 60 // more than one script reads
	call := func(org string, i int) ledger.Call {
		return ledger.Call{
			ID: wire.NewCallID(), Org: org, User: fmt.Sprint("u", i), Key: fmt.Sprint("k", i),
			IP: fmt.Sprintf("2001:db8::%x", i), Model: "m", Provider: "p", Endpoint: "chat",
		}
	}
	hold := func(c ledger.Call) *Hold {
		t.Helper()
		h, err := s.Hold(t.Context(), Terms{Limits: limits, Call: c, Max: Amounts{Tokens: 1}})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	spend := func(org string, i int) {
		t.Helper()
		h := hold(call(org, i))
		if done := s.SettleAll(t.Context(), []Settle{{Hold: h, Settlement: &Settlement{Actual: Amounts{Tokens: 1}}}}); done[0].Err != nil {
			t.Fatal(done[0].Err)
		}
	}
	for i := range users {
		spend("acme", i)
	}
	spend("acm", 0)
	open := call("acme", 0)
	open.ID = wire.NewCallID()
	hold(open)

	everything := func(Subject, string) bool { return true }
	found, err := s.Counters(t.Context(), "acme", limits, everything)
	if err != nil || len(found) != 1+3*users {
		t.Fatalf("got %d counters, %v, want %d", len(found), err, 1+3*users)
	}
	one, err := s.Counters(t.Context(), "acme", limits, func(by Subject, id string) bool { return by == IP && id == "2001:db8::3" })
	if err != nil || len(one) != 1 || one[0].Used != 1 || one[0].Held != 0 {
		t.Errorf("one address: got %+v, %v", one, err)
	}
	if err := s.ResetCounters(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	if found, err = s.Counters(t.Context(), "acme", limits, everything); err != nil || len(found) != 0 {
		t.Errorf("after the reset: got %d counters, %v, want none", len(found), err)
	}
	peek := func(c ledger.Call) int64 {
		t.Helper()
		list, err := s.Peek(context.Background(), limits[1:2], c)
		if err != nil {
			t.Fatal(err)
		}
		return list[0].Used
	}
	if used := peek(call("acme", 0)); used != 1 {
		t.Errorf("with an open hold: got %d used, want 1", used)
	}
	if used := peek(call("acm", 0)); used != 1 {
		t.Errorf("another org: got %d used, want 1", used)
	}
}
