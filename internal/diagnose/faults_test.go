package diagnose_test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/redistest"
)

var shared *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.ForPackage(m, &shared)) }

// healthy are the recommended Redis settings.
var healthy = map[string]string{"appendonly": "yes", "maxmemory": "64mb", "maxmemory-policy": "noeviction"}

// configure starts a Redis with the recommended settings, except for these.
func configure(t *testing.T, settings map[string]string) *redis.Client {
	t.Helper()
	rdb := shared.Client()
	ctx := t.Context()
	if err := rdb.FlushDB(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	for name, value := range healthy {
		if v, ok := settings[name]; ok {
			value = v
		}
		if err := rdb.ConfigSet(ctx, name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return rdb
}

// all returns all findings about a store.
func all(t *testing.T, rdb redis.UniversalClient) []diagnose.Finding {
	t.Helper()
	found, facts := diagnose.Store(t.Context(), rdb)
	if facts == nil {
		t.Fatalf("got no facts: %+v", found)
	}
	return append(found, diagnose.StoreMore(t.Context(), rdb, facts, time.Hour)...)
}

// wants checks that there is one finding of a level with this text, and that it has a fix
// unless it is OK.
func wants(t *testing.T, found []diagnose.Finding, level diagnose.Level, what string) {
	t.Helper()
	for _, f := range found {
		if f.Level != level || !strings.Contains(f.What, what) {
			continue
		}
		if level != diagnose.OK && f.Fix == "" {
			t.Errorf("got no advice with %+v", f)
		}
		return
	}
	t.Errorf("got %+v, want %s %q", found, level, what)
}

// others omits the finding about a vulnerable server version, which depends on the installed
// server.
func others(found []diagnose.Finding) (out []diagnose.Finding) {
	for _, f := range found {
		if !strings.Contains(f.What, "CVE-") {
			out = append(out, f)
		}
	}
	return out
}

func TestHealthyRedis(t *testing.T) {
	found := others(all(t, configure(t, nil)))
	if len(found) != 1 {
		t.Errorf("got %+v, want one finding", found)
	}
	wants(t, found, diagnose.OK, "answers in")
}

// Each setting that loses money or jobs is reported, and nothing else.
func TestFaultsOfRedis(t *testing.T) {
	for _, tc := range []struct {
		name, value string
		level       diagnose.Level
		what        string
	}{
		{"appendonly", "no", diagnose.Warning, "no append-only file"},
		{"maxmemory", "0", diagnose.Warning, "no maxmemory"},
		{"maxmemory-policy", "allkeys-lru", diagnose.Error, "evicts keys (maxmemory-policy allkeys-lru)"},
		{"maxmemory-policy", "volatile-ttl", diagnose.Error, "evicts keys (maxmemory-policy volatile-ttl)"},
		{"maxmemory-policy", "allkeys-random", diagnose.Error, "evicts keys"},
	} {
		found := others(all(t, configure(t, map[string]string{tc.name: tc.value})))
		wants(t, found, tc.level, tc.what)
		if len(found) != 2 { // and that it responds
			t.Errorf("%s %s: got %+v, want this one finding", tc.name, tc.value, found)
		}
		for _, f := range found {
			if f.Area != "redis" {
				t.Errorf("%s: got the area %q, want redis", tc.name, f.Area)
			}
		}
	}
}

// A nearly full Redis is reported before it refuses calls.
func TestRedisIsNearlyFull(t *testing.T) {
	rdb := configure(t, nil)
	ctx := t.Context()
	for i := range 20 {
		if err := rdb.Set(ctx, fmt.Sprintf("ballast-%d", i), strings.Repeat("x", 1<<20), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	used, _, err := capacity.Usage(ctx, rdb)
	if err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int64]string{used * 10 / 9: "warning of its maxmemory", used / 2: "error no memory left"} {
		if err := rdb.ConfigSet(ctx, "maxmemory", fmt.Sprint(most)).Err(); err != nil {
			t.Fatal(err)
		}
		level, what, _ := strings.Cut(want, " ")
		wants(t, all(t, rdb), map[string]diagnose.Level{"warning": diagnose.Warning, "error": diagnose.Error}[level], what)
	}
}

func TestReplicaTakesNoWrites(t *testing.T) {
	rdb := configure(t, nil)
	err := rdb.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err()
	if err != nil {
		t.Fatal(err)
	}
	found := all(t, rdb)
	err = rdb.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err()
	if err != nil {
		t.Fatal(err)
	}
	wants(t, found, diagnose.Error, "is a replica")
}

// Each way in which Redis does not respond has its own fix, and passwords are not repeated.
func TestRedisDoesNotAnswer(t *testing.T) {
	rdb := configure(t, nil)
	ctx := t.Context()
	for _, user := range [][]any{
		{"acl", "setuser", "locked", "on", ">secret-canary", "allkeys", "allcommands"},
		{"acl", "setuser", "narrow", "on", ">secret-canary", "allkeys", "+@read", "-info", "+hello", "+client"},
	} {
		if err := rdb.Do(ctx, user...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for name, tc := range map[string]struct {
		options redis.Options
		what    string
		fix     string
	}{
		"a wrong password": {redis.Options{Addr: shared.Addr, Username: "locked", Password: "wrong-canary"}, "WRONGPASS", "redis.password"},
		"no right to INFO": {redis.Options{Addr: shared.Addr, Username: "narrow", Password: "secret-canary"}, "does not allow INFO, which shows memory and failovers: NOPERM", "Allow the ACL user to run INFO"},
		"a port of nobody": {redis.Options{Addr: closed.Addr().String()}, "connection refused", "Check that it is running there"},
	} {
		o := tc.options
		o.MaxRetries, o.DialerRetries = -1, 1
		client := redis.NewClient(&o)
		found, facts := diagnose.Store(ctx, client)
		_ = client.Close()
		text := fmt.Sprintf("%+v", found)
		if facts != nil || len(found) != 1 || found[0].Level != diagnose.Error || !strings.Contains(found[0].What, tc.what) || !strings.Contains(found[0].Fix, tc.fix) {
			t.Errorf("%s: got %s, want an error %q with the advice %q", name, text, tc.what, tc.fix)
		}
		if strings.Contains(text, "canary") {
			t.Errorf("%s: got a password in %s", name, text)
		}
	}
}
