package diagnose

import (
	"maps"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redistest"
)

func TestOlder(t *testing.T) {
	for version, want := range map[string]bool{
		"6.0.16": true, "5.0.7": true, "6.1": true, "6.2.0": false, "6.10": false, "7.0.15": false, "10.0": false, "unstable": false, "": false,
	} {
		if older(version, 6, 2) != want {
			t.Errorf("older(%q) is not %v", version, want)
		}
	}
}

func TestPatchedSince(t *testing.T) {
	for version, want := range map[string]string{
		"redis 6.2.19": "6.2.20", "redis 6.2.20": "", "redis 7.0.15": "7.2.11", "redis 7.2.10": "7.2.11", "redis 7.2.11": "",
		"redis 7.4.5": "7.4.6", "redis 8.0.3": "8.0.4", "redis 8.2.1": "8.2.2", "redis 8.2.2": "", "redis 8.6.0": "", "redis 9.0.0": "",
		"valkey 7.2.10": "7.2.11", "valkey 8.1.4": "", "redis unstable": "",
	} {
		program, number, _ := strings.Cut(version, " ")
		if got := patchedSince(program, number); got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
}

func TestStoreMore(t *testing.T) {
	srv := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "noeviction"))
	found, facts := Store(t.Context(), srv.Client())
	if facts == nil || Count(found, Error) > 0 {
		t.Fatalf("%v", found)
	}
	f := func(level Level, want string, facts Facts, deadline time.Duration) {
		t.Helper()
		for _, got := range StoreMore(t.Context(), srv.Client(), facts, deadline) {
			if got.Level == level && strings.Contains(got.What, want) {
				return
			}
		}
		t.Errorf("no %s %q", level, want)
	}
	with := func(name, value string) Facts {
		all := maps.Clone(facts)
		all[name] = value
		return all
	}
	f(OK, "answers in", facts, time.Hour)
	f(Error, "store.deadline", facts, time.Nanosecond)
	f(Error, "replica", with("role", "slave"), time.Hour)
	f(Error, "append-only file", with("aof_last_write_status", "err"), time.Hour)
	f(Error, "loading", with("loading", "1"), time.Hour)
	f(Warning, "no maxmemory", with("maxmemory", "0"), time.Hour)
	f(Warning, "of its maxmemory", with("used_memory", "99000000"), time.Hour)
	memory := capacity.New(srv.Client(), nil, capacity.Options{}, nil)
	for org, bytes := range map[string]int64{"acme": 500, "hog": 7000, "zeta": 40} {
		if err := memory.Admit(t.Context(), org, bytes, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	f(Error, "no memory left (104857600 of 104857600 bytes): calls get 503 store_full; "+
		"callers of org hog keep most in it, 7000 bytes", with("used_memory", "104857600"), time.Hour)
	old := with("redis_version", "7.4.2")
	delete(old, "valkey_version") // if the tests run on Valkey
	f(Warning, "CVE-2025-49844", old, time.Hour)
}

// TestReplicas: a primary that accepts writes without its replicas is reported, and so is a
// durability that Redis does not support.
func TestReplicas(t *testing.T) {
	primary := redistest.Start(t, redistest.WithArgs("--repl-diskless-sync-delay", "0"))
	rdb := primary.Client()
	if found := replicas(readSettings(t.Context(), rdb), factsOf(t, primary)); len(found) > 0 {
		t.Errorf("without replicas: %v", found)
	}
	if found := Durability("wait1", factsOf(t, primary)); Count(found, Error) != 1 {
		t.Errorf("wait1 without a replica: %v", found)
	}
	host, port, err := net.SplitHostPort(primary.Addr)
	if err != nil {
		t.Fatal(err)
	}
	redistest.Start(t, redistest.WithArgs("--replicaof", host+" "+port))
	for end := time.Now().Add(time.Minute); factsOf(t, primary)["connected_slaves"] != "1"; {
		if time.Now().After(end) {
			t.Fatal("the replica does not come")
		}
	}
	expect := func(warnings int, write, lag string) {
		t.Helper()
		for name, value := range map[string]string{"min-replicas-to-write": write, "min-replicas-max-lag": lag} {
			if err := rdb.ConfigSet(t.Context(), name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if found := replicas(readSettings(t.Context(), rdb), factsOf(t, primary)); Count(found, Warning) != warnings {
			t.Errorf("%s within %s s: %v", write, lag, found)
		}
	}
	expect(1, "0", "10")
	expect(1, "1", "60")
	expect(0, "1", "10")
	if found := Durability("wait1", factsOf(t, primary)); len(found) > 0 {
		t.Errorf("wait1 with a replica: %v", found)
	}
	if found := Durability("waitaof1", factsOf(t, primary)); Count(found, Error) != 1 { // too old, or no append-only file
		t.Errorf("waitaof1: %v", found)
	}
}

func factsOf(t *testing.T, s *redistest.Server) Facts {
	t.Helper()
	info, err := s.Client().Info(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return parseInfo(info)
}
