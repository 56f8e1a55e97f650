package outage

import (
	"testing"
	"time"
)

// TestRecent: the ring keeps the newest endings in order and drops old ones.
func TestRecent(t *testing.T) {
	ring := NewRecent[int](time.Minute)
	wants := func(from, to int) {
		t.Helper()
		list := ring.List()
		if len(list) != to-from {
			t.Fatalf("%d are remembered, want %d to %d", len(list), from, to)
		}
		for i, r := range list {
			if r.Ending != from+i {
				t.Fatalf("at %d: %d", i, r.Ending)
			}
		}
	}
	for i := range 1000 {
		ring.Answered(i, time.Now())
	}
	wants(0, 1000)
	middle := time.Now()
	for i := 1000; i < 1500; i++ {
		ring.Answered(i, time.Now())
	}
	ring.Forget(middle)
	wants(1000, 1500)
	for i := 1500; i < 1000+recentMost+300; i++ {
		ring.Answered(i, time.Now())
	}
	wants(1300, 1300+recentMost)
	ring.Forget(time.Now().Add(time.Second))
	wants(0, 0)
	if ring.ring != nil {
		t.Error("an empty ring keeps its memory")
	}
	off := NewRecent[int](-1)
	if off.Answered(1, time.Now()); off.n != 0 {
		t.Error("remembered although it is off")
	}
}
