package tenants

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestFollow: another process reads every change, even if there were more than the stream
// keeps.
func TestFollow(t *testing.T) {
	rdb := empty(t)
	a, b := open(t, rdb), open(t, rdb)
	refresh := func() {
		t.Helper()
		if err := b.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	setOrg(t, a, "acme", "one")
	refresh()
	if nameOf(b, "acme") != "one" {
		t.Fatalf("b knows %q", nameOf(b, "acme"))
	}
	kept := b.Snapshot().Tenants["acme"]
	setOrg(t, a, "globex", "g")
	if refresh(); nameOf(b, "globex") != "g" || b.Snapshot().Tenants["acme"] != kept {
		t.Error("a change of one org made another new, or was missed")
	}
	same := b.Snapshot()
	if refresh(); b.Snapshot() != same {
		t.Error("a refresh without changes made a new snapshot")
	}
	// The stream no longer reaches back to b's last change.
	for i := range 5 {
		setOrg(t, a, fmt.Sprintf("org%d", i), "x")
	}
	if err := rdb.XTrimMaxLen(t.Context(), changesKey, 1).Err(); err != nil {
		t.Fatal(err)
	}
	if refresh(); nameOf(b, "org0") != "x" || nameOf(b, "acme") != "one" || len(b.Snapshot().Tenants) != 7 {
		t.Errorf("after a gap b knows %d orgs", len(b.Snapshot().Tenants))
	}
}

// TestRun: changes arrive automatically, the snapshot survives an outage, and last uses are
// written.
func TestRun(t *testing.T) {
	server := redistest.Start(t, redistest.WithAOF())
	a, b := New(server.DB(), Options{}), New(server.DB(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = b.Run(ctx) })
	setOrg(t, a, "acme", "one")
	await(t, "the change", func() bool { return nameOf(b, "acme") == "one" })
	server.Kill()
	if nameOf(b, "acme") != "one" {
		t.Error("an outage makes it forget")
	}
	server.Restart()
	await(t, "Redis", func() bool { return a.Refresh(t.Context()) == nil })
	setOrg(t, a, "acme", "two")
	await(t, "the change after the outage", func() bool { return nameOf(b, "acme") == "two" })
	at := time.Unix(1_800_000_000, 0).UTC()
	b.Used("acme", "k1", at)
	cancel()
	redistest.Wait(t, running.Wait)
	used, err := a.LastUsed(t.Context(), "acme", "k1", "k2")
	if err != nil || len(used) != 1 || !used["k1"].Equal(at) {
		t.Errorf("last used %v, %v", used, err)
	}
}

// TestMissed: many misses share few lookups, and all see what is new. A caller that is gone does not wait.
func TestMissed(t *testing.T) {
	rdb := empty(t)
	a, b := open(t, rdb), open(t, rdb)
	if b.Missed(t.Context()) {
		t.Error("something new in an empty store")
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if b.Missed(gone) {
		t.Error("something new for a caller that is gone")
	}
	setOrg(t, a, "acme", "one")
	before, err := rdb.Info(t.Context(), "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	var found sync.Map
	for i := range 200 {
		asking.Go(func() {
			b.Missed(t.Context())
			found.Store(i, nameOf(b, "acme"))
		})
	}
	redistest.Wait(t, asking.Wait)
	found.Range(func(i, n any) bool {
		if n != "one" {
			t.Errorf("caller %v does not know it", i)
		}
		return true
	})
	after, err := rdb.Info(t.Context(), "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if n := commands(t, after) - commands(t, before); n > 100 {
		t.Errorf("200 misses asked Redis %d times", n)
	}
}

func commands(t *testing.T, info string) (n int) {
	t.Helper()
	for line := range strings.Lines(info) {
		if _, err := fmt.Sscanf(line, "total_commands_processed:%d", &n); err == nil {
			return n
		}
	}
	t.Fatal("Redis does not count commands")
	return 0
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 3000 {
		if is() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("waited in vain for %s", what)
}
