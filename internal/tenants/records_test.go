package tenants

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

func TestValidID(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "acme": true, "acme-inc_2": true, "0": true, "-": true, strings.Repeat("a", 64): true,
		"": false, strings.Repeat("a", 65): false, "Acme": false, "a b": false, "a.b": false, "a:b": false, "a/b": false,
		"a{b}": false, "ä": false, "a\n": false, "*": false,
	} {
		got := ValidID(id)
		if got != want {
			t.Errorf("ValidID(%q): got %v, want %v", id, got, want)
		}
	}
}

func TestLimitIDs(t *testing.T) {
	for id, want := range map[string][2]string{"daily": {"", "daily"}, "alice daily": {"alice", "daily"}} {
		user, name := SplitLimitID(id)
		if user != want[0] || name != want[1] || LimitID(user, name) != id {
			t.Errorf("%q: got user %q, name %q, want %v", id, user, name, want)
		}
	}
}

func TestGetOfNothing(t *testing.T) {
	s := open(t, empty(t))
	var o Org
	got, err := s.Get(t.Context(), ref(KindOrg, "acme", "acme"), &o)
	if got != "" || err != nil || o.Fields["name"] != nil {
		t.Errorf("got %q, %v, %+v, want nothing", got, err, o)
	}
}

// When Commit returns, the change is in Redis and known to this process.
func TestCommitIsKnownAtOnce(t *testing.T) {
	rdb := empty(t)
	s := open(t, rdb)
	set(t, s, ref(KindUser, "acme", "alice"), named("Alice"))
	for what, store := range map[string]*Store{"this process": s, "another": open(t, rdb)} {
		u := store.Snapshot().Tenants["acme"].Users["alice"]
		if u == nil || u.Fields.Text("name") != "Alice" {
			t.Errorf("%s: got %v, want Alice", what, u)
		}
	}
}

func TestCommitConflicts(t *testing.T) {
	rdb := empty(t)
	s := open(t, rdb)
	alice, bob := ref(KindUser, "acme", "alice"), ref(KindUser, "acme", "bob")
	set(t, s, alice, named("Alice"))
	is := text(t, s, alice)
	for name, changes := range map[string][]Change{
		"made twice":              {{Ref: alice, New: named("other")}},
		"changed meanwhile":       {{Ref: alice, Old: is + " ", New: named("other")}},
		"removed meanwhile":       {{Ref: bob, Old: is, New: named("other")}},
		"one of several":          {{Ref: bob, New: named("Bob")}, {Ref: alice, New: named("other")}},
		"removal of another text": {{Ref: alice, Old: "{}"}},
		"the last one of several": {
			{Ref: bob, New: named("Bob")},
			{Ref: alice, Old: is, New: named("x")},
			{Ref: ref(KindUser, "acme", "carol"), Old: "{}"},
		},
	} {
		err := s.Commit(t.Context(), AuditEntry{Action: "late"}, changes...)
		if !errors.Is(err, ErrConflict) {
			t.Errorf("%s: got %v, want ErrConflict", name, err)
		}
	}
	users := s.Snapshot().Tenants["acme"].Users
	if len(users) != 1 || users["alice"].Fields.Text("name") != "Alice" || text(t, s, alice) != is {
		t.Errorf("got %v, want Alice as she was", users)
	}
	list, _, err := s.Audit(t.Context(), AuditFilter{Action: "late"}, 10)
	if err != nil || len(list) > 0 {
		t.Errorf("got the audit %v, %v, want nothing of refused changes", list, err)
	}
}

// An audit entry may be committed without a change.
func TestCommitOfAnEntryAlone(t *testing.T) {
	s := open(t, empty(t))
	set(t, s, ref(KindUser, "acme", "alice"), named("Alice"))
	err := s.Commit(t.Context(), AuditEntry{Action: "limit.reset", Org: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := s.Audit(t.Context(), AuditFilter{}, 10)
	if err != nil || len(list) != 2 || list[0].Action != "limit.reset" {
		t.Errorf("got the audit %v, %v, want the entry", list, err)
	}
	if len(s.Snapshot().Tenants["acme"].Users) != 1 {
		t.Errorf("got %v, want the records as they were", s.Snapshot().Tenants)
	}
}

func TestCommitOfWhatIsNoJSON(t *testing.T) {
	s := open(t, empty(t))
	r := ref(KindUser, "acme", "alice")
	err := s.Commit(t.Context(), AuditEntry{}, Change{Ref: r, New: math.NaN()})
	if err == nil {
		t.Error("a record that cannot be encoded: got no error")
	}
	_, err = s.Snapshot().With(Change{Ref: r, New: math.NaN()})
	if err == nil {
		t.Error("With: got no error")
	}
	if got := text(t, s, r); got != "" {
		t.Errorf("got the record %q, want none", got)
	}
}

// With many writers of one record, no change is lost.
func TestWritersOfOneRecord(t *testing.T) {
	rdb := empty(t)
	r := ref(KindOrg, "acme", "acme")
	set(t, open(t, rdb), r, Org{Fields: settings.Fields[settings.Org]{"weight": json.RawMessage("0")}})
	weight := func(o *Org) int {
		n, err := strconv.Atoi(o.Fields.Text("weight"))
		if err != nil {
			t.Error(err)
		}
		return n
	}
	const writers, each = 6, 10
	var all sync.WaitGroup
	for range writers {
		s := open(t, rdb)
		all.Go(func() {
			for done := 0; done < each; {
				var o Org
				old, err := s.Get(t.Context(), r, &o)
				if err != nil {
					t.Error(err)
					return
				}
				o.Fields["weight"] = json.RawMessage(strconv.Itoa(weight(&o) + 1))
				switch err := s.Commit(t.Context(), AuditEntry{}, Change{Ref: r, Old: old, New: o}); {
				case err == nil:
					done++
				case !errors.Is(err, ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	redistest.Wait(t, all.Wait)
	got := weight(open(t, rdb).Snapshot().Tenants["acme"].Org)
	if got != writers*each {
		t.Errorf("got %d, want %d", got, writers*each)
	}
}

// everything creates a record of each kind in an org.
func everything(t *testing.T, s *Store, org string) {
	t.Helper()
	set(t, s, ref(KindOrg, org, org), Org{})
	set(t, s, ref(KindUser, org, "alice"), named("Alice"))
	set(t, s, ref(KindKey, org, "k1"), Key{User: "alice", Hash: "sha256:00"})
	set(t, s, ref(KindLimit, org, "alice daily"), Limit{})
	set(t, s, ref(KindOverride, org, "o1"), Override{Limit: "daily"})
	set(t, s, ref(KindCredential, org, "openai"), Credential{Last4: "1234"})
}

func TestRefs(t *testing.T) {
	s := open(t, empty(t))
	everything(t, s, "acme")
	set(t, s, ref(KindUser, "globex", "gus"), named("Gus"))
	var got []string
	for _, r := range s.Snapshot().Tenants["acme"].Refs("acme") {
		got = append(got, r.String())
	}
	slices.Sort(got)
	want := "credential acme openai, key acme k1, limit acme alice daily, org acme acme, override acme o1, user acme alice"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, ", "), want)
	}
	refs := s.Snapshot().Tenants["nobody"].Refs("nobody")
	if len(refs) > 0 {
		t.Errorf("of an org without records: got %v", refs)
	}
}

// A tenant disappears with its last record.
func TestRemoveEverything(t *testing.T) {
	rdb := empty(t)
	s := open(t, rdb)
	everything(t, s, "acme")
	var changes []Change
	for _, r := range s.Snapshot().Tenants["acme"].Refs("acme") {
		changes = append(changes, Change{Ref: r, Old: text(t, s, r)})
	}
	next, err := s.Snapshot().With(changes...)
	if err != nil || len(next.Tenants) != 0 || len(s.Snapshot().Tenants) != 1 {
		t.Errorf("With: got %v, %v, and %v, want none, and what there is unchanged", next, err, s.Snapshot().Tenants)
	}
	err = s.Commit(t.Context(), AuditEntry{}, changes...)
	if err != nil {
		t.Fatal(err)
	}
	for what, store := range map[string]*Store{"this process": s, "another": open(t, rdb)} {
		got := store.Snapshot().Tenants
		if len(got) > 0 {
			t.Errorf("%s: got %v, want none", what, got)
		}
	}
	n := rdb.HLen(t.Context(), "lg:{identity:}:records").Val()
	if n > 0 {
		t.Errorf("got %d records in Redis, want none", n)
	}
}

// A snapshot never changes, and a change of one org does not affect the others.
func TestSnapshotsAreImmutable(t *testing.T) {
	s := open(t, empty(t))
	everything(t, s, "acme")
	everything(t, s, "globex")
	before := s.Snapshot()
	users, globex := maps.Clone(before.Tenants["acme"].Users), before.Tenants["globex"]
	set(t, s, ref(KindUser, "acme", "bob"), named("Bob"))
	set(t, s, ref(KindAdmin, "", "ops"), Admin{Hash: "h"})
	if !maps.Equal(before.Tenants["acme"].Users, users) || len(before.Admins) > 0 {
		t.Errorf("got the old snapshot %v, %v, want it unchanged", before.Tenants["acme"].Users, before.Admins)
	}
	now := s.Snapshot()
	if len(now.Tenants["acme"].Users) != 2 || now.Tenants["globex"] != globex || now.Admins["ops"] == nil {
		t.Errorf("got %v, want bob and ops, and globex as it was", now)
	}
}

// With returns the result of a change without making it.
func TestWith(t *testing.T) {
	s := open(t, empty(t))
	everything(t, s, "acme")
	next, err := s.Snapshot().With(
		Change{Ref: ref(KindUser, "acme", "bob"), New: named("Bob")},
		Change{Ref: ref(KindOrg, "acme", "acme")},
		Change{Ref: ref(KindAdmin, "", "ops"), New: Admin{Hash: "h"}},
	)
	if err != nil || len(next.Tenants["acme"].Users) != 2 || next.Tenants["acme"].Org != nil || next.Admins["ops"] == nil {
		t.Errorf("got %v, %v, want the changes", next, err)
	}
	is := s.Snapshot()
	if len(is.Tenants["acme"].Users) != 1 || is.Tenants["acme"].Org == nil || len(is.Admins) > 0 {
		t.Errorf("got %v, want what there is unchanged", is)
	}
}

// An invalid record is left out, however a process learns of it.
func TestRecordsThatAreNotUnderstood(t *testing.T) {
	rdb := empty(t)
	writer, follower := open(t, rdb), open(t, rdb)
	set(t, writer, ref(KindUser, "acme", "alice"), named("Alice"))
	set(t, writer, ref(KindUser, "acme", "odd"), "no object")
	set(t, writer, ref("robot", "acme", "r2"), map[string]string{"of": "a newer version"})
	err := rdb.HSet(t.Context(), "lg:{identity:}:records", "nonsense", "{}").Err()
	if err != nil {
		t.Fatal(err)
	}
	err = follower.Refresh(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]*Store{"one that follows": follower, "one that begins": open(t, rdb)} {
		users := s.Snapshot().Tenants["acme"].Users
		if len(users) != 1 || users["alice"] == nil {
			t.Errorf("%s: got %v, want alice alone", what, users)
		}
	}
	var u User
	_, err = writer.Get(t.Context(), ref(KindUser, "acme", "odd"), &u)
	if err == nil || !strings.Contains(err.Error(), "odd") {
		t.Errorf("Get of it: got %v, want an error that names it", err)
	}
}

// More records than one step reads are all read.
func TestManyRecords(t *testing.T) {
	rdb := empty(t)
	s := open(t, rdb)
	var changes []Change
	for i := range 2500 {
		changes = append(changes, Change{Ref: ref(KindUser, fmt.Sprintf("org%d", i%5),
			fmt.Sprintf("u%d", i)), New: named("x")})
	}
	err := s.Commit(t.Context(), AuditEntry{}, changes...)
	if err != nil {
		t.Fatal(err)
	}
	for what, store := range map[string]*Store{"this process": s, "another": open(t, rdb)} {
		for org, tenant := range store.Snapshot().Tenants {
			if len(tenant.Users) != 500 {
				t.Errorf("%s: got %d users of %s, want 500", what, len(tenant.Users), org)
			}
		}
		if n := len(store.Snapshot().Tenants); n != 5 {
			t.Errorf("%s: got %d orgs, want 5", what, n)
		}
	}
}

// Without Redis every method returns an error, and the snapshot stays.
func TestUnavailable(t *testing.T) {
	rdb := empty(t)
	own := redis.NewClient(&redis.Options{Addr: shared.Addr, MaxRetries: -1, DialerRetries: 1})
	s := open(t, own)
	set(t, s, ref(KindUser, "acme", "alice"), named("Alice"))
	_ = own.Close()
	ctx, r := t.Context(), ref(KindUser, "acme", "alice")
	var u User
	_, get := s.Get(ctx, r, &u)
	_, _, audit := s.Audit(ctx, AuditFilter{}, 1)
	_, used := s.LastUsed(ctx, "acme", "k1")
	for what, err := range map[string]error{
		"Get": get, "Audit": audit, "LastUsed": used, "Load": s.Load(ctx), "Refresh": s.Refresh(ctx),
		"ForgetUsed": s.ForgetUsed(ctx, "acme"),
		"Commit":     s.Commit(ctx, AuditEntry{}, Change{Ref: r}),
	} {
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", what, err)
		}
	}
	if s.Missed(ctx) || len(s.Snapshot().Tenants["acme"].Users) != 1 {
		t.Errorf("got %v, want what was known", s.Snapshot().Tenants)
	}
	n := rdb.HLen(ctx, "lg:{identity:}:records").Val()
	if n != 1 {
		t.Errorf("got %d records, want the one", n)
	}
}
