package budget

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/redistest"
)

var shareLimits = []Limit{
	costLimit("hour", User, hour(1000)),
	costLimit("purse", Org, Shape{Kind: Bucket, Amount: 5000, Refill: 1, Per: time.Hour}),
	costLimit("month", Org, Shape{Kind: Calendar, Amount: 1e6, Calendar: "month"}),
	{ID: "par", Subject: Org, Metric: Concurrency, Shape: Shape{Kind: Concurrent, Amount: 30}},
	{ID: "seen", Subject: Org, Metric: Requests, Mode: Shadow, Shape: hour(1)},
}

func shareCall(user string, n int) ledger.Call {
	return ledger.Call{ID: idAt(time.Now(), n), Org: "acme", User: user}
}

// TestShares: a process admits its share of every limit and no more; what a call did not use is
// returned, and Redis is charged what it cost.
func TestShares(t *testing.T) {
	server := redistest.Start(t)
	s := openJournaled(t, server, t.TempDir(), Options{})
	server.Kill()
	admit := func(user string, n int, most int64) (*Hold, error) {
		return s.Offline.AdmitShare(t.Context(), Terms{Limits: shareLimits, Call: shareCall(user, n), Max: cost(most)}, 10)
	}
	var holds []*Hold
	for i := range 2 { // of ann's 100
		h, err := admit("ann", i, 50)
		if err != nil || h.Statuses != nil {
			t.Fatalf("%+v, %v", h, err)
		}
		holds = append(holds, h)
	}
	refused := func(limit string, used, amount int64, user string, most int64) {
		t.Helper()
		var e *ExceededError
		_, err := admit(user, 99, most)
		if !errors.As(err, &e) || e.Binding.LimitID != limit || e.Binding.Used != used || e.Binding.Amount != amount ||
			e.Binding.Never || e.Binding.Wait <= 0 || e.Binding.Wait > 5*time.Second || e.Statuses != nil || e.Requested == 0 {
			t.Errorf("%v: %+v", err, e)
		}
	}
	refused("hour", 100, 100, "ann", 1)
	if h, err := admit("bob", 3, 100); err != nil { // the share of another user
		t.Fatal(err)
	} else {
		holds = append(holds, h)
	}
	refused("par", 3, 3, "carl", 1)
	// One is settled for less, one is voided: both amounts are free again.
	end := []Settle{{holds[0], &Settlement{Actual: cost(20)}}, {Hold: holds[1]}}
	for _, done := range s.SettleAll(t.Context(), end) {
		if !errors.Is(done.Err, ErrUnavailable) {
			t.Fatalf("%+v", done)
		}
	}
	if err := s.Later(t.Context(), end, nil); err != nil {
		t.Fatal(err)
	}
	refused("hour", 20, 100, "ann", 81)
	h, err := admit("ann", 4, 80)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 { // the org's purse has 500, of which 20 + 100 + 80 are used
		x, err := admit(fmt.Sprint("user", i), 10+i, 100)
		if i == 3 {
			if err == nil {
				t.Error("the purse has no bottom")
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Later(t.Context(), []Settle{{x, &Settlement{Actual: cost(100)}}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	server.Restart()
	if _, err := s.Settle(t.Context(), h, Settlement{Actual: cost(70)}); err != nil { // the store is back by now
		t.Fatal(err)
	}
	s.replay(t, 1) // bob's call is open
	if err := s.Void(t.Context(), holds[2]); err != nil {
		t.Fatal(err)
	}
	s.replay(t, 0)
	if n := s.Offline.shares.Open("acme l:par:org-concurrency-n:"); n != 0 {
		t.Errorf("%d places are taken", n)
	}
	list, err := s.Peek(t.Context(), shareLimits, shareCall("ann", 0))
	if err != nil || list[0].Used != 90 || list[1].Used != 390 || list[2].Used != 390 || list[3].Used != 0 || list[4].Used != 5 {
		t.Errorf("limits stand at %+v, %v", list, err)
	}
}

// TestAdmittedAndKilled: a call that was admitted without the store is charged in full, once, when
// its process dies, and the limits show the debt.
func TestAdmittedAndKilled(t *testing.T) {
	server := redistest.Start(t)
	dir := t.TempDir()
	a := openJournaled(t, server, dir, Options{})
	server.Kill()
	limits := []Limit{costLimit("hour", User, hour(10))}
	if _, err := a.Offline.AdmitShare(t.Context(), Terms{Limits: limits, Call: shareCall("ann", 1), Max: cost(100)}, 10); err == nil {
		t.Fatal("admitted over the share")
	}
	if _, err := a.Offline.AdmitAll(t.Context(), Terms{Limits: limits, Call: shareCall("ann", 1), Max: cost(100)}); err != nil {
		t.Fatal(err)
	}
	a.replay(t, 1)
	server.Restart()
	a.replay(t, 1) // it is open: its cost is not known yet
	a.dead(t)
	b := openJournaled(t, server, dir, Options{})
	b.replay(t, 0)
	b.replay(t, 0)
	list, err := b.Peek(t.Context(), limits, shareCall("ann", 1))
	if err != nil || list[0].Used != 100 || list[0].Remaining > 0 {
		t.Errorf("limits stand at %+v, %v", list, err)
	}
	n := 0
	if err := b.Ledger.Entries(t.Context(), "acme", time.Time{}, time.Time{}, func(e ledger.Entry) error {
		if n++; e.Cost != 100 || !e.Estimated {
			t.Errorf("entry %+v", e)
		}
		return nil
	}); err != nil || n != 1 {
		t.Errorf("%d entries, %v", n, err)
	}
}

// TestAdmitNeedsTheJournal: nothing is admitted that cannot be kept on disk.
func TestAdmitNeedsTheJournal(t *testing.T) {
	server := redistest.Start(t)
	memory := New(server.DB(), Options{})
	closed := openJournaled(t, server, t.TempDir(), Options{})
	closed.dead(t)
	for _, s := range []*Store{memory, closed.Store} {
		_, err := s.Offline.AdmitShare(t.Context(), Terms{Limits: shareLimits, Call: shareCall("ann", 1), Max: cost(10)}, 10)
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("admitted: %v", err)
		}
		if n := s.Offline.shares.Open("acme l:par:org-concurrency-n:"); n != 0 {
			t.Errorf("%d places are taken", n)
		}
		if n, _ := s.Deferred.Kept(); n != 0 {
			t.Errorf("%d are kept", n)
		}
	}
}

// TestShareAfterARestart: a process that starts while the store is unreachable continues with the
// share that earlier processes have used, and gets no new one.
func TestShareAfterARestart(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	dir := t.TempDir()
	limits := []Limit{costLimit("hour", User, hour(1000)), costLimit("purse", Org, Shape{Kind: Bucket, Amount: 5000, Refill: 1, Per: time.Hour})}
	caps := []Cap{{Limits: []Limit{costLimit("all", Org, hour(2000))}}}
	admit := func(s journaled, user string, n int, most int64) (*Hold, error) {
		return s.Offline.AdmitShare(t.Context(), Terms{Limits: limits, Caps: caps, Call: shareCall(user, n), Max: cost(most)}, 10)
	}
	a := openJournaled(t, server, dir, Options{})
	held, err := admit(a, "ann", 1, 60) // open when the process dies: counts in full
	if err != nil {
		t.Fatal(err)
	}
	ended, err := admit(a, "ann", 2, 40)
	if err != nil {
		t.Fatal(err)
	}
	given, err := admit(a, "bob", 3, 90)
	if err != nil {
		t.Fatal(err)
	}
	ends := []Settle{{ended, &Settlement{Actual: cost(15)}}, {Hold: given}}
	if err := a.Later(t.Context(), ends, nil); err != nil {
		t.Fatal(err)
	}
	a.dead(t)
	b := openJournaled(t, server, dir, Options{})
	if _, err := admit(b, "ann", 4, 26); err == nil {
		t.Errorf("75 of 100 are used, by %s and another, and 26 more let through", held.ID)
	}
	if _, err := admit(b, "ann", 5, 25); err != nil {
		t.Error(err)
	}
	if _, err := admit(b, "bob", 6, 100); err != nil { // what was voided is free
		t.Error(err)
	}
	if _, err := admit(b, "carl", 7, 1); err == nil {
		t.Error("the cap has let through 201 of 200")
	}
}
