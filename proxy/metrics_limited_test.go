package proxy

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/queue"
)

// TestRateLimitedIsCounted: every 429 counts under its org and the limit that refused; a 401 and a
// success do not.
func TestRateLimitedIsCounted(t *testing.T) {
	t.Parallel()
	calls := budget.Limit{
		ID: "calls", Subject: budget.User, Metric: budget.Requests,
		Shape: budget.Shape{Kind: budget.ExactWindow, Amount: 1, Window: time.Hour},
	}
	reg := prometheus.NewRegistry()
	r := newRig(t, queue.Pool{}, func(o *Options) { o.Metrics = reg }, calls)
	count := func(org, limit string) float64 {
		return testutil.ToFloat64(r.proxy.metrics.limited.answers.WithLabelValues(org, limit))
	}
	r.org.OverLimit = "refuse"
	if a := r.chat(prompt("hi", `"max_tokens":5`)); a.status != http.StatusOK {
		t.Fatalf("the first call: %d %s", a.status, a.body)
	}
	for range 2 {
		r.chat(prompt("hi", `"max_tokens":5`)).fails(t, 429, "rate_limit_exceeded")
	}
	r.await("the record of the last call", func() bool { return count("acme", "calls") == 2 })
	if n := count("acme", byProvider) + count("acme", byOther) + count(noOrg, byOther); n != 0 {
		t.Errorf("%v answers count under another reason", n)
	}
	r.org.OverLimit = "wait" // it waits as long as its caller allows, for the same limit
	r.chat(prompt("hi", `"max_tokens":5`), "X-Stainless-Timeout", "2").fails(t, 429, "rate_limit_exceeded")
	r.await("the record of the call that waited", func() bool { return count("acme", "calls") == 3 })
}

// TestRateLimitedSeriesAreBounded: orgs and limits beyond the bounds are counted as _other.
func TestRateLimitedSeriesAreBounded(t *testing.T) {
	l := newLimited(nil)
	for i := range 700 {
		l.count(fmt.Sprint("org", i), "day")
	}
	for i := range 3000 {
		l.count("org0", fmt.Sprint("limit", i))
	}
	if n := testutil.CollectAndCount(l.answers); n > mostLimited+mostLimitedOrgs+1 {
		t.Errorf("%d series", n)
	}
	if n := testutil.ToFloat64(l.answers.WithLabelValues(byOther, "day")); n != 200 {
		t.Errorf("%v answers of other orgs, want 200", n)
	}
}
