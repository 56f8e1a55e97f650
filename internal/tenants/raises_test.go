package tenants

import (
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// wish is alice's request for $5 more of a limit, made and ending at times relative to now.
func wish(id, limit string, made, ends time.Duration) RaiseRequest {
	now := time.Now().UTC()
	return RaiseRequest{
		ID: id, Org: "acme", User: "alice", Key: "k1", Limit: limit, Subject: "user", Only: "alice", Amount: 5e9,
		Created: now.Add(made), Until: now.Add(ends), Reason: "demo", State: RaisePending,
	}
}

func request(t *testing.T, s *Store, r RaiseRequest) (RaiseRequest, error) {
	t.Helper()
	e, err := RaiseEntry("limit_request.create", nil, &r)
	if err != nil {
		t.Fatal(err)
	}
	return s.RequestRaise(t.Context(), r, e)
}

func actionsOf(t *testing.T, s *Store) (out []string) {
	t.Helper()
	list, _, err := s.Audit(t.Context(), AuditFilter{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(list) - 1; i >= 0; i-- {
		out = append(out, list[i].Action+" "+list[i].Actor)
	}
	return out
}

// Of several ends at the same time, by several processes, one is made, with its other changes.
func TestOneEndOfARaise(t *testing.T) {
	rdb := empty(t)
	stores := []*Store{open(t, rdb), open(t, rdb), open(t, rdb)}
	r, err := request(t, stores[0], wish("a", "day", 0, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	var mine atomic.Int64
	var ending sync.WaitGroup
	for i := range 9 {
		ending.Go(func() {
			over := Change{
				Ref: ref(KindOverride, "acme", "a"), New: Override{Limit: "day", Add: int64(i + 1)},
			}
			end := func(r RaiseRequest) (RaiseRequest, AuditEntry, []Change, error) {
				next := r.End(RaiseApproved, RaiseDecision{By: "ops", Amount: int64(i + 1)})
				e, err := RaiseEntry("limit_request.approve", &r, &next)
				return next, e, []Change{over}, err
			}
			got, ended, err := stores[i%3].EndRaise(t.Context(), r.ID, end)
			if err != nil || got == nil || got.State != RaiseApproved {
				t.Errorf("end: got %+v, %v; want it approved", got, err)
			}
			if ended {
				mine.Add(1)
			}
		})
	}
	redistest.Wait(t, ending.Wait)
	if err := stores[0].Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap := stores[0].Snapshot()
	granted := snap.RaiseRequest("a").Decision.Amount
	if over := snap.Tenants["acme"].Overrides["a"]; mine.Load() != 1 || over == nil || over.Add != granted {
		t.Errorf("got %d ends, the override %+v for %d; want one, and its override", mine.Load(), over, granted)
	}
	if got := actionsOf(t, stores[0]); len(got) != 2 || got[1] != "limit_request.approve ops" {
		t.Errorf("audit: got %v, want the request and one approval", got)
	}
}

func TestRaisesAreBounded(t *testing.T) {
	s := open(t, empty(t))
	first, err := request(t, s, wish("a", "day", 0, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := request(t, s, wish("b", "day", 0, time.Hour)); err != nil || again.ID != first.ID {
		t.Errorf("a repetition: got %s, %v; want %s", again.ID, err, first.ID)
	}
	other := wish("c", "day", 0, time.Hour)
	other.Amount++
	if open, err := request(t, s, other); !errors.Is(err, ErrRaiseOpen) || open.ID != first.ID {
		t.Errorf("another request: got %s, %v; want ErrRaiseOpen and %s", open.ID, err, first.ID)
	}
	for _, limit := range []string{"b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		if _, err := request(t, s, wish(limit, limit, 0, time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	var bound *RaiseBoundError
	if _, err := request(t, s, wish("k", "k", 0, time.Hour)); !errors.As(err, &bound) || bound.Wait < 23*time.Hour {
		t.Errorf("the 11th of a day: got %v, want a bound for a day", err)
	}
}

// A request that nobody answered expires once, is audited, and is forgotten later.
func TestExpireRaises(t *testing.T) {
	rdb := empty(t)
	s, other := open(t, rdb), open(t, rdb)
	if _, err := request(t, s, wish("a", "day", -time.Hour, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := other.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(2 * time.Minute)
	if r := s.Snapshot().RaiseRequest("a"); r.Status(later) != RaiseExpired || r.Status(time.Now()) != RaisePending {
		t.Errorf("status: got %s, then %s; want pending, then expired", r.Status(time.Now()), r.Status(later))
	}
	total := 0
	for _, store := range []*Store{s, other, s} {
		got, err := store.ExpireRaises(t.Context(), later)
		if err != nil {
			t.Fatal(err)
		}
		total += len(got)
	}
	if got := actionsOf(t, s); total != 1 || len(got) != 2 || got[1] != "limit_request.expire expiry" {
		t.Errorf("got %d expired, audit %v; want one", total, got)
	}
	next := wish("b", "day", 8*24*time.Hour, 9*24*time.Hour)
	next.User = "bob"
	if _, err := request(t, s, next); err != nil {
		t.Fatal(err)
	}
	if left := s.Snapshot().RaiseRefs("acme"); len(left) != 1 || left[0].ID != "bob" {
		t.Errorf("records a week later: got %v, want bob's", left)
	}
	if text, _ := json.Marshal(s.Snapshot().RaiseRequests("other")); string(text) != "null" {
		t.Errorf("another org: got %s, want none", text)
	}
}
