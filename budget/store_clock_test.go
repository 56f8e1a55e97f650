package budget

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/llmguard/llmguard/internal/redistest"
)

// TestStoreClockIsRead: Run reads the clock of the server.
func TestStoreClockIsRead(t *testing.T) {
	server, reg := redistest.Start(t), prometheus.NewRegistry()
	s := New(server.DB(), Options{Metrics: reg})
	if _, err := s.watcher.Servers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(reg, "llmguard_budget_store_clock_skew_seconds"); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}
