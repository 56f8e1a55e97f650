package tenants

import (
	"encoding/json"
	"os"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

var shared *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.ForPackage(m, &shared)) }

// empty returns a client of an empty Redis.
func empty(t *testing.T) *redis.Client {
	t.Helper()
	rdb := shared.Client()
	err := rdb.FlushDB(t.Context()).Err()
	if err != nil {
		t.Fatal(err)
	}
	return rdb
}

// open returns a loaded Store.
func open(t *testing.T, rdb redis.UniversalClient) *Store {
	t.Helper()
	s := New(redistest.DB(rdb), Options{})
	err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ref(kind Kind, org, id string) Ref {
	return Ref{Kind: kind, Org: org, ID: id}
}

// set commits a record, whatever it is now; nil deletes it.
func set(t *testing.T, s *Store, r Ref, record any) {
	t.Helper()
	err := s.Commit(t.Context(), AuditEntry{Action: "test", Org: r.Org}, Change{Ref: r, Old: text(t, s, r), New: record})
	if err != nil {
		t.Fatalf("commit %s: %v", r, err)
	}
}

// text returns the record's text in Redis.
func text(t *testing.T, s *Store, r Ref) Text {
	t.Helper()
	var record json.RawMessage
	text, err := s.Get(t.Context(), r, &record)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// setOrg commits an org with a name.
func setOrg(t *testing.T, s *Store, id, name string) {
	t.Helper()
	set(t, s, ref(KindOrg, id, id), Org{Fields: settings.Fields[settings.Org]{"name": json.RawMessage(strconv.Quote(name))}})
}

// nameOf returns the name of an org, as a process knows it.
func nameOf(s *Store, id string) string {
	t := s.Snapshot().Tenants[id]
	if t == nil || t.Org == nil {
		return ""
	}
	return t.Org.Fields.Text("name")
}

func named(name string) User {
	return User{Fields: settings.Fields[settings.User]{"name": json.RawMessage(strconv.Quote(name))}}
}
