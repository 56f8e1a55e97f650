package front_test

import (
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/app/front"
	"github.com/llmguard/llmguard/internal/fakeprovider"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestAdmin checks that health does not depend on Redis and readiness does, that the
// operators' listener does not serve models, and that callers cannot read metrics.
func TestAdmin(t *testing.T) {
	r := start(t, app.Proxy, "")
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

// TestSilentStore checks that a Redis that accepts connections and does not answer is not
// waited for.
func TestSilentStore(t *testing.T) {
	t.Parallel()
	r := start(t, app.Proxy, "")
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

// TestShutdownFinishesCalls checks that a stopping process immediately becomes unready,
// still serves while load balancers notice, and lets calls finish completely.
func TestShutdownFinishesCalls(t *testing.T) {
	t.Parallel()
	const drain = time.Second
	r := start(t, app.Proxy|app.Worker, "timeouts: {drain: 1s, shutdown: 2m}\n")
	gate := make(chan struct{})
	r.fake.Script(func(*fakeprovider.Request) fakeprovider.Behaviour {
		redistest.Came(t, gate)
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
	if body := redistest.Came(t, stream); !strings.HasSuffix(body, "data: [DONE]\n\n<nil>") {
		t.Errorf("a stream under way: got %q, want all of it", body)
	}
	r.end(t)
	if list := r.entries(t); len(list) != 1 || list[0].Outcome != "completed" {
		t.Errorf("the ledger has %+v, want one completed call", list)
	}
	await(t, "the admin listener is closed", func() bool { return r.status(r.AdminURL()+"/readyz") == 0 })
}

// TestShutdownCancelsCalls checks that calls that do not end in time are cancelled and
// settled.
func TestShutdownCancelsCalls(t *testing.T) {
	r := start(t, app.Proxy, "timeouts: {drain: 0s, shutdown: 50ms}\n")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _, _ = r.call("[fake: delay=1h]", "")
	}()
	await(t, "the call is at the provider", func() bool { return len(r.fake.Log()) == 1 })
	r.stop()
	r.end(t)
	redistest.Came(t, done)
	if list := r.entries(t); len(list) != 1 || list[0].Outcome != "client_gone" || !list[0].Estimated {
		t.Errorf("the ledger has %+v, want one call that is client_gone and estimated", list)
	}
}

// TestWorkerShutdown checks that a process without callers becomes unready too, and returns
// its jobs to the queue.
func TestWorkerShutdown(t *testing.T) {
	r := start(t, app.Worker, "queue: {shutdown: 100ms}\n")
	if r.URL() != "" {
		t.Errorf("a worker serves callers at %s", r.URL())
	}
	r.stop()
	r.end(t)
	if got := r.status(r.AdminURL() + "/readyz"); got != 0 {
		t.Errorf("/readyz of a process that ended has status %d, want none", got)
	}
}

// TestPortInUse checks that a port in use is reported immediately.
func TestPortInUse(t *testing.T) {
	r := start(t, app.Proxy, "")
	for _, text := range []string{
		"listen: " + strings.TrimPrefix(r.URL(), "http://") + "\nadmin: {listen: \"127.0.0.1:0\"}\n",
		"listen: 127.0.0.1:0\nadmin: {listen: \"" + strings.TrimPrefix(r.AdminURL(), "http://") + "\"}\n",
	} {
		c := parse(t, text+"providers: [{id: p, base_url: \"http://x/v1\"}]\norgs: [{id: acme}]\n")
		_, err := app.New(app.Options{
			Config: c, Redis: redistest.DB(r.rdb), Roles: app.Proxy, Front: front.New, Log: slog.New(slog.DiscardHandler),
		})
		if err == nil || !strings.Contains(err.Error(), "listen") {
			t.Errorf("%s: got %v, want an error that names listen", text, err)
		}
	}
}
