package diagnose

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/redistest"
)

// expect checks that there is exactly one finding with this text, of this level, and that its fix contains fix.
func expect(t *testing.T, found []Finding, level Level, what, fix string) {
	t.Helper()
	var all []Finding
	for _, f := range found {
		if strings.Contains(f.What, what) {
			all = append(all, f)
		}
	}
	if len(all) != 1 || all[0].Level != level || !strings.Contains(all[0].Fix, fix) {
		t.Errorf("got %+v, want one %s %q with the fix %q", found, level, what, fix)
	}
}

// without checks that there is no finding with this text.
func without(t *testing.T, found []Finding, what string) {
	t.Helper()
	if slices.ContainsFunc(found, func(f Finding) bool { return strings.Contains(f.What, what) }) {
		t.Errorf("got %+v, want nothing about %q", found, what)
	}
}

// managed starts a server without CONFIG, like most managed services.
func managed(t *testing.T, args ...string) *redis.Client {
	t.Helper()
	return redistest.Start(t, redistest.WithArgs(append(args, "--rename-command", "CONFIG", "")...)).Client()
}

// TestWithoutConfig: without CONFIG, what INFO reports is still checked, and fixes are in the
// service's settings.
func TestWithoutConfig(t *testing.T) {
	found, facts := Store(t.Context(), managed(t, "--maxmemory-policy", "allkeys-lru"))
	if facts == nil {
		t.Fatalf("got no facts: %+v", found)
	}
	expect(t, found, Error, "evicts keys (maxmemory-policy allkeys-lru)", "parameter group")
	expect(t, found, Warning, "no append-only file", "append-only persistence in the settings of the service")
	rdb := managed(t, "--appendonly", "yes")
	found, facts = Store(t.Context(), rdb)
	if len(found) > 0 {
		t.Errorf("got %+v, want nothing", found)
	}
	expect(t, StoreMore(t.Context(), rdb, facts, time.Hour), OK, "redis has no CONFIG", "")
}

// TestHiddenInfo: what a service hides of INFO is read with CONFIG if possible. Otherwise a warning
// names what cannot be checked and what does not work.
func TestHiddenInfo(t *testing.T) {
	srv := redistest.Start(t, redistest.WithArgs("--appendonly", "no", "--maxmemory-policy", "volatile-lru"))
	found := check(t.Context(), srv.Client(), Facts{"redis_version": "7.4.6"})
	expect(t, found, Error, "evicts keys (maxmemory-policy volatile-lru)", "Set maxmemory-policy noeviction.")
	expect(t, found, Warning, "no append-only file", "Set appendonly yes.")

	err := srv.Client().Do(t.Context(), "acl", "setuser", "narrow", "on", "nopass", "allkeys", "+@all", "-config").Err()
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr, Username: "narrow", Password: "any"})
	t.Cleanup(func() { _ = rdb.Close() })
	found = check(t.Context(), rdb, Facts{})
	expect(t, found, Warning, "does not report its eviction policy", "Make sure that it is noeviction")
	expect(t, found, Warning, "does not report whether it has an append-only file", "Make sure that a restart")
	more := StoreMore(t.Context(), rdb, Facts{}, time.Hour)
	expect(t, more, OK, "redis has no CONFIG", "")
	expect(t, more, OK, "redis of unknown version answers in", "")
	expect(t, more, Warning, "queue.memory_share and ledger.memory_share have no effect", "max_entries")
	expect(t, more, Warning, "a failover is not noticed", "wait1")
}

// TestAppendfsync: an append-only file that the kernel flushes at its leisure is reported.
func TestAppendfsync(t *testing.T) {
	srv := redistest.Start(t, redistest.WithArgs("--appendonly", "yes", "--appendfsync", "no"))
	found, _ := Store(t.Context(), srv.Client())
	expect(t, found, Warning, "appendfsync no", "everysec")
	if err := srv.Client().ConfigSet(t.Context(), "appendfsync", "everysec").Err(); err != nil {
		t.Fatal(err)
	}
	found, _ = Store(t.Context(), srv.Client())
	without(t, found, "appendfsync")
}

// TestUntested: a server that is newer than those that this llmguard was tested with is
// reported. What is too old is refused.
func TestUntested(t *testing.T) {
	for version, warned := range map[string]bool{
		"redis 6.2.20": false, "redis 7.0.15": false, "redis 7.4.6": false, "redis 8.6.3": false, "redis 9.0.0": true,
		"valkey 7.2.11": false, "valkey 8.1.4": false, "valkey 9.1.2": false, "valkey 10.0.0": true,
		"redis unstable": false, "redis ": false,
	} {
		name, number, _ := strings.Cut(version, " ")
		facts := Facts{"redis_version": "7.2.4"} // as Valkey reports for old clients
		facts[name+"_version"] = number
		found := untested(facts)
		if len(found) > 0 != warned {
			t.Errorf("%s: got %+v, want a warning: %t", version, found, warned)
		}
		if warned {
			expect(t, found, Warning, version+" is newer than this llmguard", "Update llmguard")
		}
	}
}
