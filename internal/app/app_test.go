package app

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redisconn"
	"github.com/llmguard/llmguard/internal/redistest"
)

func TestCheckRedis(t *testing.T) {
	rdb := redistest.Start(t).Client()
	for _, c := range []struct{ appendonly, policy, refused, warned string }{
		{"yes", "noeviction", "", ""},
		{"no", "noeviction", "", "appendonly yes"},
		{"yes", "allkeys-lru", "maxmemory-policy noeviction", ""},
		{"yes", "allkeys-random", "maxmemory-policy noeviction", ""},
		{"yes", "volatile-ttl", "maxmemory-policy noeviction", ""},
	} {
		err := rdb.ConfigSet(t.Context(), "appendonly", c.appendonly).Err()
		if err == nil {
			err = rdb.ConfigSet(t.Context(), "maxmemory-policy", c.policy).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		err = CheckRedis(t.Context(), rdb, slog.New(slog.NewTextHandler(&log, nil)))
		if (err == nil) != (c.refused == "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%+v: got error %v, want %q", c, err, c.refused)
		}
		if (log.Len() == 0) != (c.warned == "") || !strings.Contains(log.String(), c.warned) {
			t.Errorf("%+v: logged %q, want %q", c, log.String(), c.warned)
		}
	}
}

func TestCheckRedisUnavailable(t *testing.T) {
	rdb := redisconn.Open(redisconn.Single, redisconn.Options("127.0.0.1:1"))
	defer rdb.Close()
	err := CheckRedis(t.Context(), rdb, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v, want that Redis does not answer", err)
	}
}

// TestAdmin: health does not depend on Redis, readiness does; models are not
// served there, nor metrics to callers.
func TestAdmin(t *testing.T) {
	r := start(t, Proxy, "")
	if s := r.status(r.AdminURL() + "/metrics"); s != 200 {
		t.Errorf("metrics: got status %d, want 200", s)
	}
	for _, path := range []string{"/v1/models", "/v1/chat/completions"} { // "/" leads to the console
		if s := r.status(r.AdminURL() + path); s != 404 {
			t.Errorf("the operators' listener answers %s with %d, want 404", path, s)
		}
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		if s := r.status(r.URL() + path); s != 404 {
			t.Errorf("the callers' listener answers %s with %d, want 404", path, s)
		}
	}
	r.redis.Kill()
	if s := r.status(r.AdminURL() + "/readyz"); s != 503 {
		t.Errorf("readyz without Redis: got status %d, want 503", s)
	}
	if s := r.status(r.AdminURL() + "/healthz"); s != 200 {
		t.Errorf("healthz without Redis: got status %d, want 200", s)
	}
	r.redis.Restart()
	await(t, "ready again", func() bool { return r.status(r.AdminURL()+"/readyz") == 200 })
}

// TestSilentStore: a Redis that takes connections and does not answer is not
// waited for.
func TestSilentStore(t *testing.T) {
	t.Parallel()
	r := start(t, Proxy, "")
	if s, body, err := r.call("hi", ""); s != 200 {
		t.Fatalf("a call: got status %d, %s, %v; want 200", s, body, err)
	}
	if err := r.redis.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.redis.Signal(syscall.SIGCONT) }()
	if s, body, err := r.call("hi", ""); s != 503 || !strings.Contains(body, "server_is_overloaded") {
		t.Errorf("a call: got status %d, %s, %v; want 503, server_is_overloaded", s, body, err)
	}
	if s := r.status(r.URL() + "/v1/jobs"); s != 503 {
		t.Errorf("jobs: got status %d, want 503", s)
	}
	if n := len(r.fake.Log()); n != 1 {
		t.Errorf("%d calls reached the provider, want 1", n)
	}
}

// TestShutdownFinishesCalls: a process that stops is not ready at once, still serves
// while load balancers notice, and lets calls end whole.
func TestShutdownFinishesCalls(t *testing.T) {
	t.Parallel()
	const drain = time.Second
	r := start(t, Proxy|Worker, "timeouts: {drain: 1s, shutdown: 2m}\n")
	gate := make(chan struct{})
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		<-gate
		return fakeprovider.Behaviour{Output: 40}
	})
	stream := make(chan string, 1)
	go func() {
		_, body, err := r.call("hi", `,"stream":true`)
		stream <- fmt.Sprint(body, err)
	}()
	await(t, "the call is at the provider", func() bool { return len(r.fake.Log()) == 1 })
	began := time.Now()
	r.stop()
	await(t, "the process is not ready", func() bool { return r.status(r.AdminURL()+"/readyz") == 503 })
	got := r.status(r.URL() + "/v1/models")
	if time.Since(began) < drain && got != 200 {
		t.Errorf("a call while load balancers do not know: got status %d, want 200", got)
	}
	close(gate)
	if body := <-stream; !strings.HasSuffix(body, "data: [DONE]\n\n<nil>") {
		t.Errorf("a stream under way: got %q, want all of it", body)
	}
	r.end(t)
	if list := r.entries(t); len(list) != 1 || list[0].Outcome != "completed" {
		t.Errorf("the ledger has %+v, want one completed call", list)
	}
	await(t, "the admin listener is closed", func() bool { return r.status(r.AdminURL()+"/readyz") == 0 })
}

// TestShutdownCancelsCalls: what does not end in the time for it is cancelled and
// settled.
func TestShutdownCancelsCalls(t *testing.T) {
	r := start(t, Proxy, "timeouts: {drain: 0s, shutdown: 50ms}\n")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = r.call("[fake: delay=1h]", "")
	}()
	await(t, "the call is at the provider", func() bool { return len(r.fake.Log()) == 1 })
	r.stop()
	r.end(t)
	<-done
	if list := r.entries(t); len(list) != 1 || list[0].Outcome != "client_gone" || !list[0].Estimated {
		t.Errorf("the ledger has %+v, want one call that is client_gone and estimated", list)
	}
}

// TestWorkerShutdown: a process without callers becomes unready too, and puts
// its jobs back.
func TestWorkerShutdown(t *testing.T) {
	r := start(t, Worker, "queue: {shutdown: 100ms}\n")
	if r.URL() != "" {
		t.Errorf("a worker serves callers at %s", r.URL())
	}
	r.stop()
	r.end(t)
	if r.ready.Load() {
		t.Error("still ready")
	}
}

// TestPortInUse: a port that is taken is told at once.
func TestPortInUse(t *testing.T) {
	r := start(t, Proxy, "")
	for _, text := range []string{"listen: " + r.calls.Addr().String() + "\nadmin: {listen: \"127.0.0.1:0\"}\n", "listen: 127.0.0.1:0\nadmin: {listen: \"" + r.admin.Addr().String() + "\"}\n"} {
		c := read(t, text+"providers: [{id: p, base_url: \"http://x/v1\"}]\norgs: [{id: acme}]\n")
		if _, err := New(Options{Config: c, Redis: r.rdb, Roles: Proxy, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "listen") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestRedisOptions: what the file says of Redis reaches the client.
func TestRedisOptions(t *testing.T) {
	o, err := redisOptions(config.Redis{URL: "rediss://u:secret@h:7/3"})
	if err != nil || o.Addrs[0] != "h:7" || o.Username != "u" || o.Password != "secret" || o.DB != 3 || o.TLSConfig == nil || !o.ContextTimeoutEnabled {
		t.Errorf("%+v, %v", o, err)
	}
	o, err = redisOptions(config.Redis{Addresses: []string{"a:1", "b:2"}, MasterName: "m", Username: "u", Password: "p", DB: 4, SentinelUsername: "su", SentinelPassword: "sp"})
	if err != nil || len(o.Addrs) != 2 || o.MasterName != "m" || o.Username != "u" || o.Password != "p" || o.DB != 4 || o.SentinelUsername != "su" || o.SentinelPassword != "sp" || o.TLSConfig != nil {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err = redisOptions(config.Redis{URL: "redis://:secret@h:x"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a broken URL: %v", err)
	}
	for _, broken := range []config.RedisTLS{{Enabled: true, CAFile: "/no/such"}, {Enabled: true, CAFile: "app_test.go"}, {Enabled: true, CertFile: "/no/such", KeyFile: "/no/such"}} {
		if _, err := redisOptions(config.Redis{Addresses: []string{"a:1"}, TLS: broken}); err == nil || !strings.Contains(err.Error(), "redis.tls.") {
			t.Errorf("%+v: %v", broken, err)
		}
	}
}

// TestLogger: the log has the level and the format that were configured.
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
