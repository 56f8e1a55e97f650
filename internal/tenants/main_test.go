package tenants_test

import (
	"encoding/json"
	"os"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants"
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
func open(t *testing.T, rdb redis.UniversalClient) *tenants.Store {
	t.Helper()
	s := tenants.New(rdb, tenants.Options{})
	err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ref(kind tenants.Kind, org, id string) tenants.Ref {
	return tenants.Ref{Kind: kind, Org: org, ID: id}
}

// create commits a new record.
func create(t *testing.T, s *tenants.Store, r tenants.Ref, record any) {
	t.Helper()
	err := s.Commit(t.Context(), tenants.AuditEntry{Action: "test", Org: r.Org}, tenants.Change{Ref: r, New: record})
	if err != nil {
		t.Fatalf("commit %s: %v", r, err)
	}
}

// text returns the record's text in Redis.
func text(t *testing.T, s *tenants.Store, r tenants.Ref) tenants.Text {
	t.Helper()
	var record map[string]any
	text, err := s.Get(t.Context(), r, &record)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func named(name string) tenants.User {
	return tenants.User{Fields: settings.Fields[settings.User]{"name": json.RawMessage(strconv.Quote(name))}}
}
