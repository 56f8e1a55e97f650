package tenants

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

// run runs a Store while f runs.
func run(t *testing.T, s *Store, f func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	f()
	cancel()
	if err := redistest.Came(t, ended); err != nil {
		t.Errorf("Run: got %v, want nil", err)
	}
}

// Last uses are written in batches, at the latest when the process exits; the latest of several
// counts.
func TestLastUses(t *testing.T) {
	s := open(t, empty(t))
	used := func() string {
		got, err := s.LastUsed(t.Context(), "acme", "k1", "k2", "k3")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(got)
	}
	at := time.Unix(1_800_000_000, 0).UTC()
	s.Used("acme", "k1", at.Add(-time.Hour))
	s.Used("acme", "k1", at)
	s.Used("acme", "k2", at.Add(-time.Minute))
	s.Used("globex", "k3", at)
	got := used()
	if got != "map[]" {
		t.Errorf("before a write: got %s, want nothing", got)
	}
	run(t, s, func() {})
	want := fmt.Sprint(map[string]time.Time{"k1": at, "k2": at.Add(-time.Minute)})
	got = used()
	if got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	none, err := s.LastUsed(t.Context(), "acme")
	if len(none) > 0 || err != nil {
		t.Errorf("of no keys: got %v, %v, want none", none, err)
	}
}

// A use that Redis did not accept is written by a later attempt.
func TestLastUsesSurviveAFailedWrite(t *testing.T) {
	rdb := empty(t)
	s := open(t, rdb)
	err := rdb.Set(t.Context(), "lg:{identity:}:used", "of another type", 0).Err()
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_800_000_000, 0).UTC()
	s.Used("acme", "k1", at)
	run(t, s, func() {})
	err = rdb.Del(t.Context(), "lg:{identity:}:used").Err()
	if err != nil {
		t.Fatal(err)
	}
	run(t, s, func() {})
	got, err := s.LastUsed(t.Context(), "acme", "k1")
	if err != nil || !got["k1"].Equal(at) {
		t.Errorf("got %v, %v, want %v", got, err, at)
	}
}

// Only the org's own uses are deleted, not those of an org with a common id prefix.
func TestForgetUsed(t *testing.T) {
	rdb := empty(t)
	s := open(t, rdb)
	for i := range 3000 { // more than one step reads
		s.Used("acme", fmt.Sprintf("k%d", i), time.Unix(1e9, 0))
	}
	s.Used("acme2", "k1", time.Unix(1e9, 0))
	s.Used("ac", "k1", time.Unix(1e9, 0))
	run(t, s, func() {})
	err := s.ForgetUsed(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	left, err := rdb.HKeys(t.Context(), "lg:{identity:}:used").Result()
	if err != nil || len(left) != 2 {
		t.Errorf("got %v, %v, want those of acme2 and ac", left, err)
	}
}

// A change by another process arrives automatically, and Changed receives once for several.
func TestChangedReceives(t *testing.T) {
	rdb := empty(t)
	writer, reader := open(t, rdb), open(t, rdb)
	for i := range 3 {
		set(t, writer, ref(KindUser, "acme", fmt.Sprintf("u%d", i)), named("x"))
		err := reader.Refresh(t.Context())
		if err != nil {
			t.Fatal(err)
		}
	}
	receipts := 0
	for waiting := true; waiting; {
		select {
		case <-reader.Changed():
			receipts++
		default:
			waiting = false
		}
	}
	if receipts != 1 {
		t.Errorf("got %d receipts of three changes, want one", receipts)
	}
	run(t, reader, func() {
		listens(t, rdb)
		set(t, writer, ref(KindUser, "acme", "late"), named("x"))
		redistest.Came(t, reader.Changed())
		if reader.Snapshot().Tenants["acme"].Users["late"] == nil {
			t.Error("the change is announced and not there")
		}
	})
}

// listens waits until a process receives changes.
func listens(t *testing.T, rdb *redis.Client) {
	t.Helper()
	const channel = "lg:{identity:}:changed"
	for range 3000 {
		if rdb.PubSubNumSub(t.Context(), channel).Val()[channel] > 0 {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("got no process that listens for changes")
}
