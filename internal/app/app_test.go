package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/keys"
)

func TestCheckRedis(t *testing.T) {
	f := func(refused, warned string, args ...string) {
		t.Helper()
		var log bytes.Buffer
		err := CheckRedis(t.Context(), redistest.Start(t, redistest.WithArgs(args...)).Client(), slog.New(slog.NewTextHandler(&log, nil)))
		if (err == nil) != (refused == "") || err != nil && !strings.Contains(err.Error(), refused) {
			t.Errorf("%v: %v", args, err)
		}
		if (log.Len() == 0) != (warned == "") || !strings.Contains(log.String(), warned) {
			t.Errorf("%v: logged %q, want %q", args, log.String(), warned)
		}
	}
	f("", "", "--appendonly", "yes")
	f("", "appendonly yes")
	f("maxmemory-policy noeviction", "", "--appendonly", "yes", "--maxmemory-policy", "allkeys-lru")
	f("maxmemory-policy noeviction", "", "--appendonly", "yes", "--maxmemory-policy", "allkeys-random")
	f("maxmemory-policy noeviction", "", "--appendonly", "yes", "--maxmemory-policy", "volatile-ttl")
}

func TestCheckRedisAway(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer rdb.Close()
	if err := CheckRedis(t.Context(), rdb, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("got %v", err)
	}
}

// running is an App with its parts.
type running struct {
	*App
	redis *redistest.Server
	fake  *fakeprovider.Server
	store *budget.Store
	key   string
	stop  context.CancelFunc
	ended chan error
}

func start(t *testing.T, roles Role, text string) *running {
	t.Helper()
	r := &running{redis: redistest.Start(t), fake: fakeprovider.New(fakeprovider.Options{}), key: keys.New(keys.Live), ended: make(chan error, 1)}
	if err := r.fake.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.fake.Close() })
	c := read(t, fmt.Sprintf(`
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
redis: {addresses: ["%s"]}
providers: [{id: openai, base_url: "%s"}]
orgs: [{id: acme, limits: [{name: w, amount: $1000, window: 1h}], users: [{id: alice, keys: [{id: k1, hash: "%s"}]}]}]
%s`, r.redis.Addr, r.fake.BaseURL(), keys.Hash(keys.Pepper{}, r.key), text))
	rdb, err := Connect(c.Redis)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	r.store = budget.New(r.redis.Client(), budget.Options{})
	if r.App, err = New(Options{Config: c, Redis: rdb, Roles: roles, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
	})
	await(t, "ready", func() bool { return r.status(r.AdminURL()+"/readyz") == 200 })
	return r
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 24000 {
		if is() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("never %s", what)
}

// status asks over a new connection, as load balancers do; 0 means no answer.
func (r *running) status(url string) int {
	tr := &http.Transport{DisableKeepAlives: true}
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// call makes a chat call and returns its status and body, or the error.
func (r *running) call(text, extra string) (int, string, error) {
	body := fmt.Sprintf(`{"model":"gpt-4o","messages":[{"role":"user","content":%q}],"max_tokens":50%s}`, text, extra)
	req, err := http.NewRequest(http.MethodPost, r.URL()+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), err
}

func (r *running) entries(t *testing.T) []budget.Entry {
	t.Helper()
	var out []budget.Entry
	if err := r.store.Entries(t.Context(), "acme", time.Unix(0, 0), time.Now().Add(time.Hour), func(e budget.Entry) error {
		out = append(out, e)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestAdmin: health does not depend on Redis, readiness does; models are not
// served there, nor metrics to callers.
func TestAdmin(t *testing.T) {
	r := start(t, Proxy, "timeouts: {drain: 0s}\n")
	if s := r.status(r.AdminURL() + "/metrics"); s != 200 {
		t.Errorf("metrics: %d", s)
	}
	for _, path := range []string{"/v1/models", "/v1/chat/completions"} { // "/" leads to the console
		if s := r.status(r.AdminURL() + path); s != 404 {
			t.Errorf("the operators' listener answers %s with %d", path, s)
		}
	}
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		if s := r.status(r.URL() + path); s != 404 {
			t.Errorf("the callers' listener answers %s with %d", path, s)
		}
	}
	r.redis.Kill()
	if s := r.status(r.AdminURL() + "/readyz"); s != 503 {
		t.Errorf("ready without Redis: %d", s)
	}
	if s := r.status(r.AdminURL() + "/healthz"); s != 200 {
		t.Errorf("healthz without Redis: %d", s)
	}
	r.redis.Restart()
	await(t, "ready again", func() bool { return r.status(r.AdminURL()+"/readyz") == 200 })
}

// TestSilentStore: a Redis that takes connections and does not answer is not
// waited for.
func TestSilentStore(t *testing.T) {
	r := start(t, Proxy, "timeouts: {drain: 0s}\n")
	if s, body, err := r.call("hi", ""); s != 200 {
		t.Fatal(s, body, err)
	}
	if err := r.redis.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.redis.Signal(syscall.SIGCONT) }()
	if s, body, err := r.call("hi", ""); s != 503 || !strings.Contains(body, "server_is_overloaded") {
		t.Errorf("a call: %d %s %v", s, body, err)
	}
	if s := r.status(r.URL() + "/v1/jobs"); s != 503 {
		t.Errorf("jobs: %d", s)
	}
	if n := len(r.fake.Log()); n != 1 {
		t.Errorf("%d calls reached the provider", n)
	}
}

// TestShutdown: not ready first, still serving while load balancers notice;
// what ends in time ends whole, the rest is cancelled and settled.
func TestShutdown(t *testing.T) {
	r := start(t, Proxy|Worker, "timeouts: {drain: 500ms, shutdown: 500ms}\n")
	got := map[string]chan string{"short": make(chan string, 1), "long": make(chan string, 1)}
	go func() {
		_, body, err := r.call("[fake: output=40 gap=10ms]", `,"stream":true`)
		got["short"] <- fmt.Sprint(body, err)
	}()
	go func() {
		s, body, err := r.call("[fake: delay=1h]", "")
		got["long"] <- fmt.Sprint(s, body, err)
	}()
	await(t, "under way", func() bool { return len(r.fake.Log()) == 2 })
	r.stop()
	await(t, "not ready", func() bool { return r.status(r.AdminURL()+"/readyz") == 503 })
	if s := r.status(r.URL() + "/v1/models"); s != 200 {
		t.Errorf("no calls are taken while load balancers do not know: %d", s)
	}
	if body := <-got["short"]; !strings.HasSuffix(body, "data: [DONE]\n\n<nil>") {
		t.Errorf("a stream was cut: %q", body)
	}
	<-got["long"]
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	r.ended <- nil
	list := r.entries(t)
	if len(list) != 2 || list[0].Outcome != "completed" || list[1].Outcome != "client_gone" || !list[1].Estimated {
		t.Errorf("ledger %+v", list)
	}
	await(t, "closed", func() bool { return r.status(r.AdminURL()+"/readyz") == 0 })
}

// TestWorkerShutdown: a process without callers becomes unready too, and puts
// its jobs back.
func TestWorkerShutdown(t *testing.T) {
	r := start(t, Worker, "queue: {shutdown: 100ms}\n")
	if r.URL() != "" {
		t.Errorf("a worker serves callers at %s", r.URL())
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	r.ended <- nil
	if r.ready.Load() {
		t.Error("still ready")
	}
}

// TestPortInUse: a port that is taken is told at once.
func TestPortInUse(t *testing.T) {
	r := start(t, Proxy, "timeouts: {drain: 0s}\n")
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
