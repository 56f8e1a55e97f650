package budget

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/redistest"
)

func newTestLimiter(t *testing.T, server *redistest.Server, limits ...Limit) *Limiter {
	t.Helper()
	l, err := NewLimiter(server.DB(), "api", limits...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// TestLimitersCountTogether: of 100 concurrent requests at two processes, exactly as many are
// allowed as the limit says, for each id.
func TestLimitersCountTogether(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	both := []*Limiter{newTestLimiter(t, server, Rate(10, time.Hour)), newTestLimiter(t, server, Rate(10, time.Hour))}
	for _, id := range []string{"alice", "bob", "", strings.Repeat("long ", 1000)} {
		var allowed atomic.Int64
		var work sync.WaitGroup
		for i := range 100 {
			work.Go(func() {
				r, err := both[i%2].Allow(t.Context(), id, 1)
				if err != nil {
					t.Error(err)
				}
				if r.Allowed {
					allowed.Add(1)
				} else if r.RetryAfter <= 0 || r.Limit != 10 || r.Remaining != 0 {
					t.Errorf("got %+v; want when to retry", r)
				}
			})
		}
		redistest.Wait(t, work.Wait)
		if n := allowed.Load(); n != 10 {
			t.Errorf("%.10q: got %d allowed, want 10", id, n)
		}
	}
	for _, key := range server.Client().Keys(t.Context(), "lg:{limiter:api}:*").Val() {
		if strings.Contains(key, "ledger") || strings.Contains(key, "sums") || len(key) > 200 {
			t.Errorf("got key %.300s; want no ledger and no long keys", key)
		}
	}
}

// TestLimiterTakesAllOrNothing: a request over one of two limits takes nothing of the other, and a
// request that is larger than a limit is never told to wait.
func TestLimiterTakesAllOrNothing(t *testing.T) {
	t.Parallel()
	whole := Rate(12, time.Hour)
	whole.ID, whole.Subject = "whole", Org
	l := newTestLimiter(t, redistest.Start(t), Rate(10, time.Minute), whole)
	for i, step := range []struct {
		id        string
		n         int64
		allowed   bool
		remaining int64
	}{
		{"alice", 10, true, 0},
		{"bob", 3, false, 2}, // all ids together
		{"bob", 2, true, 0},
		{"carol", 11, false, 10},
	} {
		r, err := l.Allow(t.Context(), step.id, step.n)
		if err != nil || r.Allowed != step.allowed || r.Remaining != step.remaining {
			t.Errorf("step %d: got %+v, %v; want allowed %v and %d left", i, r, err, step.allowed, step.remaining)
		}
		if step.n == 11 && r.RetryAfter != Endless {
			t.Errorf("got retry in %s, want never", r.RetryAfter)
		}
	}
	if _, err := l.Allow(t.Context(), "alice", 0); err == nil {
		t.Error("0 units are accepted")
	}
}

func TestLimiterRefusesWrongLimits(t *testing.T) {
	t.Parallel()
	cost, key := Rate(1, time.Hour), Rate(1, time.Hour)
	cost.Metric, key.Subject = Cost, Key
	for _, one := range []struct {
		name   string
		limits []Limit
		want   string
	}{
		{"a b", []Limit{Rate(1, time.Hour)}, "name must be"},
		{"api", nil, "no limits"},
		{"api", []Limit{Rate(-1, time.Hour)}, "amount -1"},
		{"api", []Limit{cost}, "must count tokens or requests"},
		{"api", []Limit{key}, "must be for user"},
	} {
		if _, err := NewLimiter(nil, one.name, one.limits...); err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("got %v, want %q", err, one.want)
		}
	}
}

// TestMiddleware: real requests by their address or a header, with the state of the limit in the
// headers of every answer.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newTestLimiter(t, server, Rate(2, time.Hour))
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })
	begun := time.Now().Unix()
	mux := http.NewServeMux()
	mux.Handle("/address", Middleware(l, ByAddress)(hello))
	mux.Handle("/key", Middleware(l, ByHeader("X-Api-Key"))(hello))
	site := httptest.NewServer(mux)
	defer site.Close()
	site.Client().Timeout = redistest.Bound
	get := func(path, key string, status int, remaining string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Api-Key", key)
		a, err := site.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		h := a.Header
		if a.StatusCode != status || h.Get("X-RateLimit-Remaining") != remaining {
			t.Errorf("%s %s: got %d, %q left; want %d, %q", path, key, a.StatusCode, h.Get("X-RateLimit-Remaining"), status,
				remaining)
		}
		reset, _ := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64)
		known := h.Get("X-RateLimit-Limit") == "2" && h.Get("X-RateLimit-Resource") == "2-in-1h0m0s" && reset > begun
		if again := h.Get("Retry-After"); known != (status < 500) || (again != "") != (status > 200) || again == "0" {
			t.Errorf("%s %s: got %v; want the limit, and when to retry after %d", path, key, h, status)
		}
	}
	for _, path := range []string{"/address", "/key"} {
		get(path, "alice", 200, "1")
		get(path, "alice", 200, "0")
		get(path, "alice", 429, "0")
	}
	get("/key", "bob", 200, "1")
	server.Kill()
	get("/key", "bob", 503, "")
}

// TestLimiterFailsClosed: without Redis nothing is allowed, and the error says why.
func TestLimiterFailsClosed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l := newTestLimiter(t, server, Rate(2, time.Hour))
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if r, err := l.Allow(ctx, "alice", 1); r.Allowed || !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %+v, %v; want ErrUnavailable", r, err)
	}
}
