package ledger

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics count entries that leave Redis.
type metrics struct{ exported, exportErrors, exportGaps, trimmed prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return promauto.With(reg).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &metrics{
		exported:     counter("llmguard_budget_exported_entries_total", "Ledger entries written to export files."),
		exportErrors: counter("llmguard_budget_export_errors_total", "Failed attempts to export an org's ledger."),
		exportGaps: counter("llmguard_budget_export_gaps_total",
			"Times that entries may have been trimmed before they were exported."),
		trimmed: counter("llmguard_budget_trimmed_entries_total",
			"Ledger entries trimmed because ledgers reached ledger.memory_share."),
	}
}
