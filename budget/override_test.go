package budget

import (
	"errors"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/pricing"
)

// TestRaise: a raise admits what it adds, for its subject only, and ends to the microsecond; what
// was used under it stays used.
func TestRaise(t *testing.T) {
	s := New(redistest.Start(t).DB(), Options{})
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).UnixMicro()
	s.clock.fake = func() int64 { return now }
	end := time.UnixMicro(now).Add(time.Hour)
	limit := Limit{
		ID: "daily", Subject: User, Metric: Cost, Shape: Shape{Kind: Window, Amount: 100, Window: 24 * time.Hour},
		Raises: []Raise{{Only: "alice", Add: 200, Until: end}, {Only: "bob", Amount: 5, Until: end}},
	}
	n := 0
	spend := func(user string, cost int64) error {
		t.Helper()
		n++
		c := ledger.Call{ID: idAt(time.UnixMicro(now), n), Org: "acme", User: user}
		h, err := s.Hold(t.Context(), Terms{Limits: []Limit{limit}, Call: c, Max: Amounts{Cost: pricing.Nano(cost)}})
		if err == nil {
			_, err = s.Settle(t.Context(), h, Settlement{Actual: Amounts{Cost: pricing.Nano(cost)}})
		}
		return err
	}
	refused := func(err error) bool {
		var e *ExceededError
		return errors.As(err, &e)
	}
	if err := spend("alice", 250); err != nil {
		t.Fatalf("alice within her raise: %v", err)
	}
	if err := spend("alice", 51); !refused(err) {
		t.Errorf("alice beyond her raise: %v", err)
	}
	if err := spend("bob", 6); !refused(err) {
		t.Errorf("bob beyond his lower amount: %v", err)
	}
	if err := spend("carol", 101); !refused(err) {
		t.Errorf("carol has no raise: %v", err)
	}
	peek := func(user string) Status {
		t.Helper()
		list, err := s.Peek(t.Context(), []Limit{limit}, ledger.Call{Org: "acme", User: user})
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return list[0]
	}
	if st := peek("alice"); st.Amount != 300 || st.Used != 250 || st.Remaining != 50 || st.Raised != 200 || !st.RaisedUntil.Equal(end) {
		t.Errorf("alice stands at %+v", st)
	}
	now = end.UnixMicro() - 1
	if err := spend("alice", 50); err != nil {
		t.Errorf("a microsecond before the end: %v", err)
	}
	now = end.UnixMicro()
	if err := spend("alice", 1); !refused(err) {
		t.Errorf("at the end: %v", err)
	}
	if st := peek("alice"); st.Amount != 100 || st.Used != 300 || st.Remaining != 0 || st.Raised != 0 || !st.RaisedUntil.IsZero() {
		t.Errorf("after the end alice stands at %+v", st)
	}
	if err := spend("bob", 100); err != nil {
		t.Errorf("bob after his lower amount: %v", err)
	}
}

// TestRaiseExtends: growing a hold uses the limit's amount at that moment.
func TestRaiseExtends(t *testing.T) {
	s := New(redistest.Start(t).DB(), Options{Lease: 3 * time.Hour})
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC).UnixMicro()
	s.clock.fake = func() int64 { return now }
	end := time.UnixMicro(now).Add(time.Hour)
	limit := Limit{
		ID: "daily", Subject: Org, Metric: Cost, Shape: Shape{Kind: Window, Amount: 100, Window: 24 * time.Hour}, Raises: []Raise{{Add: 100, Until: end}},
	}
	most := Amounts{Cost: 90}
	h, err := s.Hold(t.Context(), Terms{Limits: []Limit{limit}, Call: ledger.Call{ID: idAt(time.UnixMicro(now), 1), Org: "acme"}, Max: most, Expected: most})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Extend(t.Context(), h, Amounts{Cost: 50}); err != nil {
		t.Errorf("during the raise: %v", err)
	}
	now = end.UnixMicro()
	var e *ExceededError
	if _, err := s.Extend(t.Context(), h, Amounts{Cost: 10}); !errors.As(err, &e) {
		t.Errorf("after the raise: %v", err)
	}
}
