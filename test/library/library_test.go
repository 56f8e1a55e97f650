// Package library uses llmguard's packages as another module does.
package library

import (
	"io"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestLimiterInAnotherModule: the ten lines of docs/library.md.
func TestLimiterInAnotherModule(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)

	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer rdb.Close()
	limiter, err := budget.NewLimiter(redistest.DB(rdb), "mails", budget.Rate(10, 10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer limiter.Close()
	r, err := limiter.Allow(t.Context(), "customer-17", 3)
	if err != nil || !r.Allowed || r.Remaining != 7 || r.Limit != 10 {
		t.Errorf("got %+v, %v; want 7 of 10 left", r, err)
	}
	r, err = limiter.Allow(t.Context(), "customer-17", 8)
	if err != nil || r.Allowed || r.RetryAfter <= 0 {
		t.Errorf("got %+v, %v; want a refusal that says when to retry", r, err)
	}
}

// TestLimiterExample: examples/limiter, as its own process, admits 10 requests and refuses the 11th.
func TestLimiterExample(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	program, listen := filepath.Join(t.TempDir(), "limiter"), redistest.FreePort(t)
	build := redistest.Command(t, "go", "build", "-o", program, "./examples/limiter")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := redistest.Process(t, program)
	cmd.Env = []string{"REDIS=" + server.Addr, "LISTEN=127.0.0.1:" + listen}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	seen := map[int]int{}
	var last http.Header
	redistest.Eventually(t, "the example refuses a request", func() bool {
		resp, err := (&http.Client{Timeout: redistest.Bound}).Get("http://127.0.0.1:" + listen)
		if err != nil {
			return false
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		seen[resp.StatusCode]++
		last = resp.Header
		return resp.StatusCode == http.StatusTooManyRequests
	})
	if seen[200] < 10 || last.Get("Retry-After") == "" || last.Get("X-RateLimit-Limit") != "10" {
		t.Errorf("got %v, then %v; want 10 answers, then when to retry", seen, last)
	}
}
