package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

func orgRef(id string) Ref { return Ref{Kind: KindOrg, Org: id, ID: id} }

// add commits an org, or a new name of one.
func add(t *testing.T, s *Store, id, name string, old Text) {
	t.Helper()
	o := Org{Fields: settings.Fields[settings.Org]{"name": json.RawMessage(strconv.Quote(name))}}
	if err := s.Commit(t.Context(), AuditEntry{Action: "org.create", Org: id, Actor: "test"}, Change{Ref: orgRef(id), Old: old, New: o}); err != nil {
		t.Fatal(err)
	}
}

func name(s *Store, id string) string {
	t := s.Snapshot().Tenants[id]
	if t == nil || t.Org == nil {
		return ""
	}
	return t.Org.Fields.Text("name")
}

// TestCommit: of two writers of the same record one gets ErrConflict, and a conflicting change
// has no effect.
func TestCommit(t *testing.T) {
	s := New(redistest.Start(t).Client(), Options{})
	add(t, s, "acme", "one", "")
	var o Org
	old, err := s.Get(t.Context(), orgRef("acme"), &o)
	if err != nil || old == "" {
		t.Fatal(old, err)
	}
	add(t, s, "acme", "two", old)
	err = s.Commit(t.Context(), AuditEntry{Action: "late"}, Change{Ref: orgRef("other"), New: Org{}}, Change{Ref: orgRef("acme"), Old: old})
	if !errors.Is(err, ErrConflict) || name(s, "acme") != "two" || s.Snapshot().Tenants["other"] != nil {
		t.Errorf("a late change: %v, %q", err, name(s, "acme"))
	}
	list, more, err := s.Audit(t.Context(), AuditFilter{}, 10)
	if err != nil || more || len(list) != 2 || list[0].Org != "acme" || list[0].ID == "" {
		t.Errorf("the audit has %+v, %v, %v", list, more, err)
	}
	if list, more, err = s.Audit(t.Context(), AuditFilter{After: list[0].ID}, 1); err != nil || more || len(list) != 1 {
		t.Errorf("its second page %+v, %v, %v", list, more, err)
	}
	if list, _, err = s.Audit(t.Context(), AuditFilter{From: time.Now().Add(time.Hour)}, 1); err != nil || len(list) != 0 {
		t.Errorf("of the future %+v, %v", list, err)
	}
	old, _ = s.Get(t.Context(), orgRef("acme"), &o)
	if err := s.Commit(t.Context(), AuditEntry{}, Change{Ref: orgRef("acme"), Old: old}); err != nil || len(s.Snapshot().Tenants) != 0 {
		t.Errorf("after its removal: %v, %v", err, s.Snapshot().Tenants)
	}
}

// TestFollow: another process reads every change, even if there were more than the stream
// keeps.
func TestFollow(t *testing.T) {
	server := redistest.Start(t)
	a, b := New(server.Client(), Options{}), New(server.Client(), Options{})
	refresh := func() {
		t.Helper()
		if err := b.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	add(t, a, "acme", "one", "")
	refresh()
	if name(b, "acme") != "one" {
		t.Fatalf("b knows %q", name(b, "acme"))
	}
	kept := b.Snapshot().Tenants["acme"]
	add(t, a, "globex", "g", "")
	if refresh(); name(b, "globex") != "g" || b.Snapshot().Tenants["acme"] != kept {
		t.Error("a change of one org made another new, or was missed")
	}
	same := b.Snapshot()
	if refresh(); b.Snapshot() != same {
		t.Error("a refresh without changes made a new snapshot")
	}
	// The stream no longer reaches back to b's last change.
	for i := range 5 {
		add(t, a, fmt.Sprintf("org%d", i), "x", "")
	}
	if err := server.Client().XTrimMaxLen(t.Context(), changesKey, 1).Err(); err != nil {
		t.Fatal(err)
	}
	if refresh(); name(b, "org0") != "x" || name(b, "acme") != "one" || len(b.Snapshot().Tenants) != 7 {
		t.Errorf("after a gap b knows %d orgs", len(b.Snapshot().Tenants))
	}
}

// TestRun: changes arrive automatically, the snapshot survives an outage, and last uses are
// written.
func TestRun(t *testing.T) {
	server := redistest.Start(t, redistest.WithAOF())
	a, b := New(server.Client(), Options{}), New(server.Client(), Options{})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = b.Run(ctx) })
	add(t, a, "acme", "one", "")
	await(t, "the change", func() bool { return name(b, "acme") == "one" })
	server.Kill()
	if name(b, "acme") != "one" {
		t.Error("an outage makes it forget")
	}
	server.Restart()
	await(t, "Redis", func() bool { return a.Refresh(t.Context()) == nil })
	var o Org
	old, err := a.Get(t.Context(), orgRef("acme"), &o)
	if err != nil {
		t.Fatal(err)
	}
	add(t, a, "acme", "two", old)
	await(t, "the change after the outage", func() bool { return name(b, "acme") == "two" })
	at := time.Unix(1_800_000_000, 0).UTC()
	b.Used("acme", "k1", at)
	cancel()
	redistest.Wait(t, running.Wait)
	used, err := a.LastUsed(t.Context(), "acme", "k1", "k2")
	if err != nil || len(used) != 1 || !used["k1"].Equal(at) {
		t.Errorf("last used %v, %v", used, err)
	}
}

// TestMissed: many misses share few lookups, and all see what is new.
func TestMissed(t *testing.T) {
	server := redistest.Start(t)
	a, b := New(server.Client(), Options{}), New(server.Client(), Options{})
	if b.Missed(t.Context()) {
		t.Error("something new in an empty store")
	}
	add(t, a, "acme", "one", "")
	before, err := server.Client().Info(t.Context(), "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	var asking sync.WaitGroup
	var found sync.Map
	for i := range 200 {
		asking.Go(func() {
			b.Missed(t.Context())
			found.Store(i, name(b, "acme"))
		})
	}
	redistest.Wait(t, asking.Wait)
	found.Range(func(i, n any) bool {
		if n != "one" {
			t.Errorf("caller %v does not know it", i)
		}
		return true
	})
	after, err := server.Client().Info(t.Context(), "stats").Result()
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
