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
func reports(t *testing.T, found []diagnose.Finding, what string) {
	t.Helper()
	for _, f := range found {
		if f.Level == diagnose.Error && strings.Contains(f.What, what) && f.Fix != "" {
			return
		}
	}
	t.Errorf("got %+v, want an error with advice: %q", found, what)
}

// TestDiagnoseSlowRedis: a store slower than the deadline would make calls fail, which is an
// error.
func TestDiagnoseSlowRedis(t *testing.T) {
	t.Parallel()
	far := newLink(t, redistest.Start(t).Addr)
	far.Set(fault{Kind: "latency", Values: map[string]any{"latency": 6}})
	client := redis.NewClient(&redis.Options{Addr: far.Addr})
	t.Cleanup(func() { _ = client.Close() })
	_, facts := diagnose.Store(t.Context(), client)
	reports(t, diagnose.StoreMore(t.Context(), client, facts, 10*time.Millisecond), "longer than store.deadline (10ms)")
}

// TestDiagnoseRedisGoes: a Redis that becomes unreachable between two checks is an error with a
// fix.
func TestDiagnoseRedisGoes(t *testing.T) {
	t.Parallel()
	far := newLink(t, redistest.Start(t).Addr)
	client := redis.NewClient(&redis.Options{Addr: far.Addr, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	_, facts := diagnose.Store(t.Context(), client)
	far.Set(fault{Kind: down})
	reports(t, diagnose.StoreMore(t.Context(), client, facts, time.Hour), "does not answer")
}
