package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/redistest"
)

// reports checks for a finding of level error with this text.
func reports(t *testing.T, r diagnose.Report, what string) {
	t.Helper()
	for _, f := range r.Findings {
		if f.Level == diagnose.Error && strings.Contains(f.What, what) && f.Fix != "" {
			return
		}
	}
	t.Errorf("got %+v, want an error with advice: %q", r.Findings, what)
}

// TestDiagnoseFarRedis: a store slower than the deadline would make calls fail, which is an error; so is one that becomes
// unreachable between two checks.
func TestDiagnoseFarRedis(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		before, after fault
		deadline      time.Duration
		what          string
	}{
		{fault{Kind: "latency", Values: map[string]any{"latency": 6}}, fault{}, 10 * time.Millisecond, "longer than store.deadline (10ms)"},
		{fault{}, fault{Kind: down}, time.Hour, "does not answer"},
	} {
		far := newLink(t, redistest.Start(t).Addr)
		if tc.before.Kind != "" {
			far.Set(tc.before)
		}
		client := redis.NewClient(&redis.Options{Addr: far.Addr, MaxRetries: -1, DialerRetries: 1})
		t.Cleanup(func() { _ = client.Close() })
		var r diagnose.Report
		s := diagnose.AskRedis(t.Context(), redistest.DB(client), &r)
		if tc.after.Kind != "" {
			far.Set(tc.after)
		}
		s.Condition(t.Context(), &r, tc.deadline)
		reports(t, r, tc.what)
	}
}
