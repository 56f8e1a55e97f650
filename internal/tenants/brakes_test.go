package tenants

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

func firing(run string, now time.Time, life time.Duration) Brake {
	return Brake{
		Stamp: Stamp{Created: now, Updated: now}, Brake: "loop", Subject: "run", Value: run, Action: "stop",
		Until: now.Add(life),
	}
}

// Of several processes in which a brake fires, one records it. It is not recorded again while it counts,
// nor while it is released, and it is removed when it has ended.
func TestFireBrake(t *testing.T) {
	rdb, now := empty(t), time.Now().UTC()
	stores := []*Store{open(t, rdb), open(t, rdb), open(t, rdb)}
	var mine atomic.Int64
	var all sync.WaitGroup
	for i := range 9 {
		all.Go(func() {
			done, err := stores[i%3].FireBrake(t.Context(), "acme", firing("abc", now, time.Hour), "6 calls")
			if err != nil {
				t.Error(err)
			}
			if done {
				mine.Add(1)
			}
		})
	}
	redistest.Wait(t, all.Wait)
	if n := mine.Load(); n != 1 {
		t.Errorf("%d of 9 recorded the firing, want 1", n)
	}
	s := stores[0]
	fire := func(run string, at time.Time) bool {
		t.Helper()
		done, err := s.FireBrake(t.Context(), "acme", firing(run, at, time.Hour), "6 calls")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		return done
	}
	released := firing("abc", now, time.Hour)
	released.Action = ""
	ref := BrakeRef("acme", "loop", "abc")
	var before Brake
	old, err := s.Get(t.Context(), ref, &before)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(t.Context(), AuditEntry{At: now, Actor: "ops", Action: "brake.release"},
		Change{Ref: ref, Old: old, New: released}); err != nil {
		t.Fatal(err)
	}
	if fire("abc", now.Add(time.Minute)) {
		t.Error("a released brake fired")
	}
	if !fire("def", now) || !fire("abc", now.Add(time.Hour)) {
		t.Error("a brake did not fire for another run, or after the end of the release")
	}
	if err := s.ExpireBrakes(t.Context(), now.Add(90*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := s.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := s.Snapshot().Brakes["acme"]; len(left) != 1 || left[BrakeID("loop", "abc")] == nil {
		t.Errorf("after the end of def: got %v, want abc", left)
	}
	want := []string{
		"brake.fire brake", "brake.release ops", "brake.fire brake", "brake.fire brake", "brake.expire brake",
	}
	if got := actionsOf(t, s); !slices.Equal(got, want) {
		t.Errorf("the audit has %v, want %v", got, want)
	}
}
