package proxy

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/queue"
)

// limitRequests puts limits on requests into effect.
func (r *rig) limitRequests(limits ...guard.RequestLimit) {
	p := *r.guard.Policy()
	p.RequestLimits = limits
	r.guard.SetPolicy(&p)
}

func requestLimit(id string, by budget.Subject, amount int64) guard.RequestLimit {
	return guard.RequestLimit{Limit: budget.Limit{
		ID: id, Subject: by, Metric: budget.Requests, IPv6Prefix: 64,
		Shape: budget.Shape{Kind: budget.Window, Amount: amount, Window: 24 * time.Hour},
	}}
}

// refusedBy fails the test unless the answer is a 429 that names the limit.
func (a answer) refusedBy(t *testing.T, what, limit string) {
	t.Helper()
	if a.status != http.StatusTooManyRequests || !strings.Contains(a.body, `limit \"`+limit+`\"`) ||
		!strings.Contains(a.body, "rate_limit_exceeded") || a.header.Get("Retry-After") == "" {
		t.Errorf("%s: got status %d, Retry-After %q, %.200s; want 429 by %s", what, a.status, a.header.Get("Retry-After"),
			a.body, limit)
	}
	if of, left := a.header.Get("X-Ratelimit-Resource"), a.header.Get("X-Ratelimit-Remaining"); of != limit || left != "0" {
		t.Errorf("%s: got the limit %q with %q left, want %q with 0", what, of, left, limit)
	}
}

// TestEveryRequestCounts: limits per address and per key count every method of every route, paths
// that are not served, and requests without a key. A limit of a class counts that class only.
func TestEveryRequestCounts(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil)
	each := func(visit func(name, method, path string, of route)) {
		for pattern, of := range r.proxy.routes {
			path := strings.ReplaceAll(pattern, "*", "x")
			if strings.HasSuffix(path, "/") && path != "/" {
				path += "x"
			}
			for _, method := range of.methods {
				if method != http.MethodHead {
					visit(method+" "+pattern, method, "/v1"+path, of)
				}
			}
		}
	}
	r.limitRequests(requestLimit("address", budget.IP, 1))
	r.call(http.MethodGet, "/v1/models", "")
	each(func(name, method, path string, _ route) { r.call(method, path, "").refusedBy(t, name, "address") })
	r.call(http.MethodGet, "/elsewhere", "").refusedBy(t, "a path that is not served", "address")
	r.call(http.MethodGet, "/v1/models", "", "Authorization", "Bearer wrong").refusedBy(t, "a wrong key", "address")
	r.call(http.MethodGet, "/v1/models", "", "Upgrade", "websocket").refusedBy(t, "an upgrade", "address")
	r.call(http.MethodPost, "/openai/deployments/gpt-4o-mini/chat/completions", "{}").refusedBy(t, "Azure's path", "address")

	r.limitRequests(requestLimit("key", budget.Key, 1))
	r.call(http.MethodGet, "/v1/models", "")
	each(func(name, method, path string, of route) {
		if !of.open {
			r.call(method, path, "").refusedBy(t, name, "key")
		}
	})

	var classes []guard.RequestLimit
	for _, class := range []guard.RequestClass{guard.Reads, guard.Writes, guard.Spends} {
		l := requestLimit("class-"+string(class), budget.Key, 0)
		l.Shape.Amount, l.Class = 1, class
		classes = append(classes, l)
	}
	r.limitRequests(classes...)
	r.call(http.MethodGet, "/v1/models", "")
	r.call(http.MethodPost, "/v1/jobs/x/cancel", "")
	r.call(http.MethodPost, "/v1/chat/completions", "")
	each(func(name, method, path string, of route) {
		want := "class-write"
		switch {
		case of.open:
			return
		case of.priced && method == http.MethodPost, path == "/v1/batches" && method == http.MethodPost,
			path == "/v1/messages/batches" && method == http.MethodPost,
			strings.HasPrefix(path, "/v1/containers") && !(path == "/v1/containers" && method == http.MethodGet) &&
				!(path == "/v1/containers/x" && method == http.MethodDelete),
			path == "/v1/vector_stores" && method == http.MethodPost, path == "/v1/vector_stores/x/search",
			path == "/v1/vector_stores/x/files" && method == http.MethodPost, path == "/v1/vector_stores/x/file_batches":
			want = "class-spend"
		case method == http.MethodGet:
			want = "class-read"
		}
		r.call(method, path, "").refusedBy(t, name, want)
	})
}

// TestNoRequestLimits: without limits on requests, a request costs no command in Redis for them.
func TestNoRequestLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, queue.Pool{}, nil)
	for range 3 {
		if a := r.call(http.MethodGet, "/v1/models", ""); a.status != http.StatusOK {
			t.Errorf("got status %d, %s; want 200", a.status, a.body)
		}
	}
	for _, pattern := range []string{"lg:{ip:*", "lg:{auth:*", "lg:{acme}:l:*"} {
		keys, err := r.rdb.Keys(t.Context(), pattern).Result()
		if err != nil || len(keys) > 0 {
			t.Errorf("got keys %q, %v; want none", keys, err)
		}
	}
}
