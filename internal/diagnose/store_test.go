package diagnose

import (
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/capacity"
	"github.com/llmguard/llmguard/internal/redistest"
)

var shared *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.ForPackage(m, &shared)) }

// configure gives the shared Redis the recommended settings, except for these.
func configure(t *testing.T, settings map[string]string) *redis.Client {
	t.Helper()
	rdb := shared.Client()
	all := map[string]string{
		"appendonly": "yes", "appendfsync": "everysec", "maxmemory": "64mb", "maxmemory-policy": "noeviction",
		"min-replicas-to-write": "0", "min-replicas-max-lag": "10",
	}
	maps.Copy(all, settings)
	for name, value := range all {
		if err := rdb.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	return rdb
}

// examine returns all findings about a server. TestPatchedSince tests if it is vulnerable, which depends on the installed one.
func examine(t *testing.T, s *Server, durability string, deadline time.Duration) string {
	t.Helper()
	var r, out Report
	s.Settings(t.Context(), &r)
	s.Durability(&r, durability)
	s.Condition(t.Context(), &r, deadline)
	for _, f := range r.Findings {
		if !strings.Contains(f.What, "CVE-") {
			out.Findings = append(out.Findings, f)
		}
	}
	return summary(t, out.Findings)
}

// TestRedis: each setting or state that loses money or jobs, or is slow, is reported, and nothing else.
func TestRedis(t *testing.T) {
	type values = map[string]string
	const answers = " | ok answers in"
	if err := shared.Client().FlushDB(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	memory := capacity.New(shared.DB(), nil, capacity.Options{}, nil)
	for org, bytes := range map[string]int64{"acme": 500, "hog": 7000, "zeta": 40} {
		if err := memory.Admit(t.Context(), org, bytes, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		want          string
		config, facts values // the latter as INFO would report them
	}{
		{"ok answers in", nil, nil},
		{"warning no append-only file" + answers, values{"appendonly": "no"}, nil},
		{"warning appendfsync no" + answers, values{"appendfsync": "no"}, nil},
		{"warning no maxmemory" + answers, values{"maxmemory": "0"}, nil},
		{"error evicts keys (maxmemory-policy allkeys-lru)" + answers, values{"maxmemory-policy": "allkeys-lru"}, nil},
		{"error evicts keys (maxmemory-policy volatile-ttl)" + answers, values{"maxmemory-policy": "volatile-ttl"}, nil},
		{"error too old" + answers, nil, values{"redis_version": "6.1.9"}},
		{"warning 32-bit" + answers, nil, values{"arch_bits": "32"}},
		{"error is a replica" + answers, nil, values{"role": "slave"}},
		{"error cannot write its append-only file" + answers, nil, values{"aof_last_write_status": "err"}},
		{"error loading" + answers, nil, values{"loading": "1"}},
		{"warning uses 94 % of its maxmemory; no jobs are accepted beyond queue.memory_share; callers of org hog keep most in it, 7000 bytes" +
			answers, nil, values{"used_memory": "63500000"}},
		{"error no memory left (67108864 of 67108864 bytes): calls get 503 store_full; callers of org hog" + answers, nil, values{"used_memory": "67108864"}},
		{"warning queue.memory_share and ledger.memory_share have no effect" + answers, nil, values{"used_memory": ""}},
		{"warning a failover is not noticed" + answers, nil, values{"run_id": "", "master_replid": ""}},

		{"warning failover loses those writes" + answers, nil, values{"connected_slaves": "1"}},
		{"error is a replica" + answers, nil, values{"role": "slave", "connected_slaves": "1"}},
		{"warning for 60 s" + answers, values{"min-replicas-to-write": "1", "min-replicas-max-lag": "60"}, values{"connected_slaves": "1"}},
		{"ok answers in", values{"min-replicas-to-write": "1"}, values{"connected_slaves": "1"}},
		{"error wait1 and redis has no replica" + answers, nil, values{"durability": "wait1"}},
		{"error waitaof1, and redis is older than 7.2" + answers, values{"min-replicas-to-write": "1"}, values{
			"durability": "waitaof1", "connected_slaves": "1", "redis_version": "7.0.15",
		}},
		{
			"warning no append-only file | error waitaof1, and redis has no append-only file" + answers,
			values{"min-replicas-to-write": "1", "appendonly": "no"},
			values{
				"durability": "waitaof1", "connected_slaves": "1", "redis_version": "7.4.6",
			},
		},

		{"warning 9.0.0 is newer than this llmguard" + answers, nil, values{"redis_version": "9.0.0"}},
		{"warning valkey 10.0.0 is newer" + answers, nil, values{"valkey_version": "10.0.0"}},
		{"ok valkey 9.1.2 answers in", nil, values{"valkey_version": "9.1.2"}},
		{"ok redis unstable answers in", nil, values{"redis_version": "unstable"}},
		{"error store.deadline", nil, values{"deadline": "1ns"}},
	} {
		rdb := configure(t, tc.config)
		var r Report
		s := AskRedis(t.Context(), redistest.DB(rdb), &r)
		if s == nil {
			t.Fatalf("got %+v", r.Findings)
		}
		maps.Copy(s.facts, tc.facts)
		deadline := time.Hour
		if tc.facts["deadline"] != "" {
			deadline = time.Nanosecond
		}
		got := examine(t, s, tc.facts["durability"], deadline)
		if !matches(got, tc.want) {
			t.Errorf("%v %v: got %s, want %s", tc.config, tc.facts, got, tc.want)
		}
	}
}

// TestReplica: a replica, and its primary that accepts writes without it, are recognized.
func TestReplica(t *testing.T) {
	primary := redistest.Start(t, redistest.WithArgs("--repl-diskless-sync-delay", "0"))
	host, port, err := net.SplitHostPort(primary.Addr)
	if err != nil {
		t.Fatal(err)
	}
	replica := redistest.Start(t, redistest.WithArgs("--replicaof", host+" "+port))
	var got string
	redistest.Eventually(t, "the replica comes", func() bool {
		got = examine(t, AskRedis(t.Context(), primary.DB(), &Report{}), "wait1", time.Hour)
		return !strings.Contains(got, "no replica")
	})
	if !strings.Contains(got, "a failover loses those writes") {
		t.Errorf("got %s, want a warning about the writes without the replica", got)
	}
	got = examine(t, AskRedis(t.Context(), replica.DB(), &Report{}), "", time.Hour)
	if !strings.Contains(got, "this redis is a replica") || strings.Contains(got, "failover loses") {
		t.Errorf("got %s, want that it is a replica", got)
	}
}

// TestManaged: without CONFIG, what INFO reports is still checked, and fixes are in the service's settings. What INFO hides
// is read with CONFIG if possible; otherwise a warning names what does not work.
func TestManaged(t *testing.T) {
	fixes := func(s *Server) string {
		var r Report
		s.Settings(t.Context(), &r)
		var out []string
		for _, f := range r.Findings {
			out = append(out, f.What+" "+f.Fix)
		}
		return strings.Join(out, "\n")
	}
	has := func(text string, want ...string) {
		t.Helper()
		for _, one := range want {
			if strings.Count(text, one) != 1 {
				t.Errorf("got %s, want one %q", text, one)
			}
		}
	}
	without := redistest.Start(t, redistest.WithArgs("--maxmemory-policy", "allkeys-lru", "--rename-command", "CONFIG", "")).Client()
	s := AskRedis(t.Context(), redistest.DB(without), &Report{})
	has(fixes(s), "evicts keys (maxmemory-policy allkeys-lru)", "parameter group", "append-only persistence in the settings of the service")
	has(examine(t, s, "", time.Hour), "ok redis has no CONFIG")

	rdb := configure(t, map[string]string{"appendonly": "no", "maxmemory-policy": "volatile-lru"})
	has(fixes(server(t.Context(), redistest.DB(rdb), Facts{"redis_version": "7.4.6"})), "evicts keys (maxmemory-policy volatile-lru)",
		"Set maxmemory-policy noeviction.", "Set appendonly yes.")
	has(examine(t, server(t.Context(), redistest.DB(without), Facts{}), "", time.Hour), "does not report its eviction policy",
		"does not report whether it has an append-only file", "redis has no CONFIG", "redis of unknown version answers in",
		"queue.memory_share and ledger.memory_share have no effect", "a failover is not noticed")
}

// TestRedisDoesNotAnswer: each way in which Redis does not respond has its own fix, and passwords are not repeated.
func TestRedisDoesNotAnswer(t *testing.T) {
	rdb := configure(t, nil)
	for _, user := range [][]any{
		{"acl", "setuser", "locked", "on", ">secret-canary", "allkeys", "allcommands"},
		{"acl", "setuser", "narrow", "on", ">secret-canary", "allkeys", "+@read", "-info", "+hello", "+client"},
	} {
		if err := rdb.Do(t.Context(), user...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		options   redis.Options
		what, fix string
	}{
		{redis.Options{Addr: shared.Addr, Username: "locked", Password: "wrong-canary"}, "WRONGPASS", "redis.password"},
		{
			redis.Options{Addr: shared.Addr, Username: "narrow", Password: "secret-canary"},
			"does not allow INFO, which shows memory and failovers: NOPERM", "Allow the ACL user to run INFO",
		},
		{redis.Options{Addr: shared.Addr, DB: 999}, "DB index", "Set redis.db"},
		{redis.Options{Addr: "127.0.0.1:1"}, "connection refused", "Check that it is running there"},
	} {
		tc.options.MaxRetries, tc.options.DialerRetries = -1, 1
		client := redis.NewClient(&tc.options)
		var r Report
		s := AskRedis(t.Context(), redistest.DB(client), &r)
		_ = client.Close()
		text := fmt.Sprintf("%+v", r.Findings)
		if s != nil || !matches(summary(t, r.Findings), "error "+tc.what) || !strings.Contains(r.Findings[0].Fix, tc.fix) ||
			strings.Contains(text, "canary") {
			t.Errorf("got %s, want an error %q with the fix %q and without the password", text, tc.what, tc.fix)
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
			t.Errorf("%s: got %q, want %q", version, got, want)
		}
	}
}
