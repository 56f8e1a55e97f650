package config

import "github.com/llmguard/llmguard/internal/removed"

// removedSettings are the settings, and the values of settings, that earlier versions had, with what to
// use instead.
var removedSettings = map[string]string{
	"tracing.metrics":                removed.MetricsPush,
	"finance.export.format: parquet": removed.Parquet,
}
