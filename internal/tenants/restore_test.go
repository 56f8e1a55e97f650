package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// history is what a Redis has of the records, as in a backup or a replica.
type history map[string]string

func historyOf(t *testing.T, rdb *redis.Client) history {
	t.Helper()
	h := history{}
	for _, key := range rdb.Keys(t.Context(), prefix+"*").Val() {
		h[key] = rdb.Dump(t.Context(), key).Val()
	}
	return h
}

// takeOver replaces the data of a Redis.
func (h history) takeOver(t *testing.T, rdb *redis.Client) {
	t.Helper()
	if err := rdb.FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for key, dump := range h {
		if err := rdb.Restore(t.Context(), key, 0, dump).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLostRecordsAreRestored: whatever Redis lost, the processes that read it go on as before and write it
// again, once. What was deleted or changed after the loss stays so, as do records that Redis has as new.
func TestLostRecordsAreRestored(t *testing.T) {
	rdb := empty(t)
	at := time.Now().UTC()
	stamp := func(n int) Stamp { return Stamp{Updated: at.Add(time.Duration(n) * time.Second)} }
	yes := json.RawMessage("true")
	brake := BrakeRef("acme", "loop", "abc")
	key, stop, org, admin := Ref{KindKey, "acme", "k1"}, StopRef(AllOrgs), Ref{KindOrg, "acme", "acme"}, Ref{KindAdmin, "", "ops"}
	raise, limit := RaiseRef("acme", "u1"), Ref{KindLimit, "acme", "day"}
	has := func(s *Store) string { // what is restricted
		snap := s.Snapshot()
		acme := snap.Tenants["acme"]
		if acme == nil {
			acme = &Tenant{}
		}
		k, o := acme.Keys["k1"], acme.Org
		return fmt.Sprint("brake ", snap.Brakes["acme"]["loop abc"] != nil, ", stop ", snap.Stops[AllOrgs] != nil, ", key ",
			k != nil && k.Fields.Is("disabled"), ", org ", o != nil && o.Fields.Is("disabled"), ", admin ", snap.Admins["ops"] != nil,
			", limit ", acme.Limits["day"] != nil, ", raise ", snap.Raises[RaiseOwner{"acme", "u1"}] != nil)
	}
	const all = "brake true, stop true, key true, org true, admin true, limit true, raise true"
	for name, c := range map[string]struct {
		empty bool
		after func(s *Store) // in a process that knows only what Redis has after the loss
		want  string
	}{
		"emptied":  {empty: true, want: all},
		"a backup": {want: all},
		"changed since": {want: "brake true, stop true, key false, org true, admin true, limit true, raise true", after: func(s *Store) {
			set(t, s, key, Key{Stamp: stamp(3)})
		}},
		"deleted since": {want: "brake false, stop true, key true, org true, admin true, limit true, raise true", after: func(s *Store) {
			set(t, s, brake, Brake{Brake: "loop", Value: "abc", Stamp: stamp(3)})
			set(t, s, brake, nil)
		}},
		"as many changes": {empty: true, want: all, after: func(s *Store) {
			for range 20 {
				set(t, s, Ref{KindUser, "acme", "other"}, User{})
			}
		}},
	} {
		rdb.FlushDB(t.Context())
		a, b := New(redistest.DB(rdb), Options{}), New(redistest.DB(rdb), Options{})
		set(t, a, key, Key{Stamp: stamp(0)})
		set(t, a, org, Org{Stamp: stamp(0)})
		before := history{}
		if !c.empty {
			before = historyOf(t, rdb)
		}
		set(t, a, brake, Brake{Brake: "loop", Value: "abc", Action: "stop", Until: at.Add(time.Hour), Stamp: stamp(1)})
		set(t, a, stop, Stop{Stamp: stamp(1)})
		set(t, a, key, Key{Fields: settings.Fields[settings.Key]{"disabled": yes}, Stamp: stamp(1)})
		set(t, a, org, Org{Fields: settings.Fields[settings.Org]{"disabled": yes}, Stamp: stamp(1)})
		set(t, a, admin, Admin{Stamp: stamp(1)})
		set(t, a, limit, Limit{Stamp: stamp(1)})
		set(t, a, raise, UserRaises{Requests: []RaiseRequest{{ID: "r"}}})
		if err := b.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		before.takeOver(t, rdb)
		if c.after != nil {
			s := New(redistest.DB(rdb), Options{})
			if err := s.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.after(s)
		}
		for round := range 3 { // the first notices, the second reads what another wrote
			for process, s := range map[string]*Store{"a": a, "b": b} {
				if err := s.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := has(s); got != c.want {
					t.Errorf("%s, round %d: process %s has %s, want %s", name, round, process, got, c.want)
				}
			}
			if round > 0 {
				restored(t, a, b)
			}
		}
		fresh := New(redistest.DB(rdb), Options{})
		if err := fresh.Load(t.Context()); err != nil || has(fresh) != c.want {
			t.Errorf("%s: Redis has %s, want %s (%v)", name, has(fresh), c.want, err)
		}
		list, _, err := fresh.Audit(t.Context(), AuditFilter{Actor: RestoreActor}, 10)
		if err != nil || len(list) != 1 {
			t.Errorf("%s: the audit has %+v, want one restoration (%v)", name, list, err)
		}
	}
}

func restored(t *testing.T, list ...*Store) {
	t.Helper()
	for _, s := range list {
		if err := s.restore(context.WithoutCancel(t.Context())); err != nil || len(s.lost) > 0 {
			t.Errorf("%d records are still lost: %v", len(s.lost), err)
		}
	}
}

// TestATrimmedStreamIsNoLoss: a process that reads everything again, because the stream no longer has the
// change that it knows, does not bring back what was deleted meanwhile.
func TestATrimmedStreamIsNoLoss(t *testing.T) {
	rdb := empty(t)
	a, b := New(redistest.DB(rdb), Options{}), New(redistest.DB(rdb), Options{})
	setOrg(t, a, "acme", "one")
	if err := b.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	set(t, a, ref(KindOrg, "acme", "acme"), nil)
	setOrg(t, a, "globex", "g")
	if err := rdb.XTrimMaxLen(t.Context(), changesKey, 1).Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.Refresh(t.Context()); err != nil || nameOf(b, "acme") != "" || nameOf(b, "globex") != "g" || len(b.lost) > 0 {
		t.Errorf("got %v, lost %v (%v), want globex alone", b.Snapshot().Tenants, b.lost, err)
	}
}
