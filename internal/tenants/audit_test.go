package tenants

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// note adds an entry with a given time, as Redis stores it.
func note(t *testing.T, rdb redis.Cmdable, at time.Time, e AuditEntry) {
	t.Helper()
	e.At = at
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	args := &redis.XAddArgs{
		Stream: "lg:{identity:}:audit", ID: fmt.Sprintf("%d-*", at.UnixMilli()),
		Values: []any{"e", string(raw)},
	}
	err = rdb.XAdd(t.Context(), args).Err()
	if err != nil {
		t.Fatal(err)
	}
}

var began = time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC)

// targets returns the targets of the matching entries, newest first.
func targets(t *testing.T, s *Store, f AuditFilter, limit int) (string, bool) {
	t.Helper()
	list, more, err := s.Audit(t.Context(), f, limit)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Target)
	}
	return strings.Join(out, " "), more
}

func TestAuditFilters(t *testing.T) {
	rdb := empty(t)
	s := open(t, rdb)
	for i, e := range []AuditEntry{
		{Target: "a", Org: "acme", Actor: "ops", Action: "org.create"},
		{Target: "b", Org: "acme", Actor: "ann", Action: "key.create"},
		{Target: "c", Org: "globex", Actor: "ops", Action: "key.create"},
		{Target: "d", Actor: "local:root@host", Action: "admin.create"},
	} {
		note(t, rdb, began.Add(time.Duration(i)*time.Minute), e)
	}
	at := func(minutes int) time.Time { return began.Add(time.Duration(minutes) * time.Minute) }
	for want, f := range map[string]AuditFilter{
		"d c b a": {},
		"b a":     {Org: "acme"},
		"c a":     {Actor: "ops"},
		"c b":     {Action: "key.create"},
		"b":       {Org: "acme", Actor: "ann", Action: "key.create"},
		"d c":     {From: at(2)},
		"a":       {To: at(1)},
		"c":       {From: at(2), To: at(3)},
		"":        {Org: "globex", Actor: "ann"},
	} {
		got, more := targets(t, s, f, 10)
		if got != want || more {
			t.Errorf("%+v: got %q, more %v, want %q", f, got, more, want)
		}
	}
}

func TestAuditPages(t *testing.T) {
	rdb := empty(t)
	s := open(t, rdb)
	for i := range 5 {
		note(t, rdb, began.Add(time.Duration(i)*time.Minute), AuditEntry{Target: fmt.Sprint(i), Org: "acme"})
	}
	f, pages := AuditFilter{Org: "acme"}, ""
	for range 5 {
		list, more, err := s.Audit(t.Context(), f, 2)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			pages += e.Target
			f.After = e.ID
		}
		if pages += "|"; !more {
			break
		}
	}
	if pages != "43|21|0|" {
		t.Errorf("got the pages %s, want 43|21|0|", pages)
	}
	got, more := targets(t, s, AuditFilter{}, 5)
	if got != "4 3 2 1 0" || more {
		t.Errorf("a page that is just full: got %q, more %v, want no more", got, more)
	}
}

// A filter matches entries beyond those that one step reads.
func TestAuditOfManyEntries(t *testing.T) {
	rdb := empty(t)
	s := open(t, rdb)
	pipe := rdb.Pipeline()
	for i := range 2500 {
		org := "acme"
		if i%1000 == 3 {
			org = "globex"
		}
		note(t, pipe, began.Add(time.Duration(i)*time.Second), AuditEntry{Target: fmt.Sprint(i), Org: org})
	}
	_, err := pipe.Exec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, more := targets(t, s, AuditFilter{Org: "globex"}, 10)
	if got != "2003 1003 3" || more {
		t.Errorf("got %q, more %v, want 2003 1003 3", got, more)
	}
	got, more = targets(t, s, AuditFilter{Org: "globex"}, 2)
	if got != "2003 1003" || !more {
		t.Errorf("got %q, more %v, want two and more", got, more)
	}
}

// An entry that cannot be parsed is an error, not a gap in the audit.
func TestAuditEntryThatCannotBeRead(t *testing.T) {
	rdb := empty(t)
	s := open(t, rdb)
	note(t, rdb, began, AuditEntry{Target: "a"})
	args := &redis.XAddArgs{Stream: "lg:{identity:}:audit", Values: []any{"e", "nonsense"}}
	id, err := rdb.XAdd(t.Context(), args).Result()
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Audit(t.Context(), AuditFilter{}, 10)
	if err == nil || !strings.Contains(err.Error(), id) {
		t.Errorf("got %v, want an error that names %s", err, id)
	}
}

// An entry is returned as written, with its position in the log.
func TestAuditEntry(t *testing.T) {
	s := open(t, empty(t))
	want := AuditEntry{
		At: began, Actor: "ops", Action: "user.update", Org: "acme", Target: "alice", Reason: "why — ü", RequestID: "r1",
		IP:     "10.0.0.1",
		Before: json.RawMessage(`{"name":"A"}`), After: json.RawMessage(`{"name":"B"}`),
	}
	err := s.Commit(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := s.Audit(t.Context(), AuditFilter{}, 1)
	if err != nil || len(list) != 1 || list[0].ID == "" {
		t.Fatalf("got %+v, %v, want one entry with an id", list, err)
	}
	got := list[0]
	want.ID = got.ID
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
