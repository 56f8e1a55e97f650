package wire

import (
	"strings"
	"testing"
	"time"
)

func TestCallID(t *testing.T) {
	seen := make(map[string]bool)
	for range 1000 {
		before := time.Now().Truncate(time.Millisecond)
		id := NewCallID()
		at, ok := CallTime(id)
		if !ok || at.Before(before) || at.After(time.Now()) {
			t.Fatalf("%s: %v, %v", id, at, ok)
		}
		if len(id) != 26 || strings.Trim(id, crockford) != "" || seen[id] {
			t.Fatalf("%s", id)
		}
		seen[id] = true
	}
}

func TestCallIDLayout(t *testing.T) {
	for ms, want := range map[int64]string{
		0: "0000000000", 1: "0000000001", 1469918176385: "01aryz6s41", 1<<48 - 1: "7zzzzzzzzz",
	} {
		id := newCallID(time.UnixMilli(ms))
		if id[:10] != want {
			t.Errorf("%d: %s, want %s...", ms, id, want)
		}
		if at, ok := CallTime(id); !ok || at.UnixMilli() != ms {
			t.Errorf("%s: %v, %v", id, at, ok)
		}
	}
	if a, b := newCallID(time.UnixMilli(1)), newCallID(time.UnixMilli(2)); a >= b {
		t.Errorf("%s does not sort before %s", a, b)
	}
}

func TestCallTimeRefuses(t *testing.T) {
	id := NewCallID()
	for _, bad := range []string{
		"", id[:25], id + "0", "8" + id[1:], strings.ToUpper(id[:25]) + "Z", id[:25] + "u", id[:25] + "i", id[:25] + "\xff", id[:20] + " " + id[21:],
	} {
		if at, ok := CallTime(bad); ok {
			t.Errorf("%q: %v", bad, at)
		}
	}
}
