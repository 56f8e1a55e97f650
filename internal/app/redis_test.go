package app

import (
	"bytes"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/redisconn/driver"
	"github.com/llmguard/llmguard/internal/redistest"
)

func TestCheckRedis(t *testing.T) {
	rdb := redistest.Start(t, redistest.WithArgs("--appendonly", "yes")).Client()
	for _, c := range []struct{ appendonly, policy, refused, warned string }{
		{"yes", "noeviction", "", ""},
		{"yes", "allkeys-lru", "maxmemory-policy noeviction", ""},
		{"yes", "allkeys-random", "maxmemory-policy noeviction", ""},
		{"yes", "volatile-ttl", "maxmemory-policy noeviction", ""},
		{"no", "noeviction", "", "appendonly yes"}, // must be last: enabling it again starts a rewrite
	} {
		err := rdb.ConfigSet(t.Context(), "appendonly", c.appendonly).Err()
		if err == nil {
			err = rdb.ConfigSet(t.Context(), "maxmemory-policy", c.policy).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		err = CheckRedis(t.Context(), redistest.DB(rdb), slog.New(slog.NewTextHandler(&log, nil)))
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%+v: got error %v, want %q", c, err, c.refused)
		}
		if (log.Len() == 0) != (c.warned == "") || !strings.Contains(log.String(), c.warned) {
			t.Errorf("%+v: logged %q, want %q", c, log.String(), c.warned)
		}
	}
}

func TestCheckRedisUnavailable(t *testing.T) {
	rdb := driver.Open(driver.Single, driver.Options("127.0.0.1:1"))
	defer rdb.Close()
	err := CheckRedis(t.Context(), redistest.DB(rdb), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v, want that Redis does not answer", err)
	}
}

// TestRedisOptions checks that the Redis settings of the file reach the client.
func TestRedisOptions(t *testing.T) {
	d, err := driverConfig(config.Redis{Addresses: []string{"a:1", "b:2"}, MasterName: "m", Username: "u", Password: "p", DB: 4, SentinelUsername: "su", SentinelPassword: "sp"})
	if err != nil || len(d.Addresses) != 2 || d.MasterName != "m" || d.Username != "u" || d.Password != "p" || d.Database != 4 || d.SentinelUsername != "su" || d.SentinelPassword != "sp" || d.TLS != nil {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err = Connect(config.Redis{URL: "redis://:secret@h:x"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a broken URL: %v", err)
	}
	for _, broken := range []config.RedisTLS{{Enabled: true, CAFile: "/no/such"}, {Enabled: true, CAFile: "app_test.go"}, {Enabled: true, CertFile: "/no/such", KeyFile: "/no/such"}} {
		if _, err := Connect(config.Redis{Addresses: []string{"a:1"}, TLS: broken}); err == nil || !strings.Contains(err.Error(), "redis.tls.") {
			t.Errorf("%+v: %v", broken, err)
		}
	}
}

// TestConnectPrefix checks that the prefix of the file reaches the keys.
func TestConnectPrefix(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb, err := Connect(config.Redis{Addresses: []string{srv.Addr}, Mode: "single", Prefix: "staging:"})
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "lg:epoch", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if got := srv.Client().Get(t.Context(), "staging:lg:epoch").Val(); got != "1" {
		t.Errorf("got %q under the prefix, want 1", got)
	}
}

// TestLogger checks that the log has the configured level and format.
func TestLogger(t *testing.T) {
	for c, want := range map[config.Log]string{
		{Level: "info", Format: "json"}: `{"time":`, {Level: "info", Format: "text"}: "time=", {Level: "warn", Format: "json"}: "",
	} {
		var out bytes.Buffer
		log, level, flush := Logger(c, &out)
		log.Info("told")
		flush()
		if got := out.String(); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%+v writes %q", c, got)
		}
		out.Reset()
		level.Set(slog.LevelInfo)
		log.Info("told")
		if flush(); out.Len() == 0 {
			t.Errorf("%+v: the level cannot be changed", c)
		}
	}
}

// onWrite is a writer that calls a function.
type onWrite func()

func (f onWrite) Write(p []byte) (int, error) { f(); return len(p), nil }

// TestStartWaitsForALateRedis checks that a slow Redis is waited for, and that the log says
// so.
func TestStartWaitsForALateRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb, err := Connect(config.Redis{Addresses: []string{srv.Addr}, Mode: "single"})
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	if err := srv.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	told := false
	log := slog.New(slog.NewTextHandler(onWrite(func() {
		if !told {
			told = true
			_ = srv.Signal(syscall.SIGCONT)
		}
	}), nil))
	if err := CheckRedis(t.Context(), rdb, log); err != nil || !told {
		t.Errorf("got %v, told %v; want it waited for", err, told)
	}
}
