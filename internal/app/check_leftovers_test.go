package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
)

// TestLeftovers: Parquet files of an earlier version are named with what to use instead. Looking for
// them creates nothing.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	cfg := &config.Config{}
	find := func(to string) string {
		cfg.Finance.Export.To = to
		var text []string
		for _, f := range app.CheckLeftovers(t.Context(), cfg) {
			text = append(text, f.What+" "+f.Fix)
		}
		return strings.Join(text, "; ")
	}
	missing := filepath.Join(dir, "missing")
	if err := os.WriteFile(filepath.Join(dir, "focus-acme-2026-10.csv"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{"", dir, missing} {
		if got := find(to); got != "" {
			t.Errorf("%s: got %s, want nothing", to, got)
		}
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("the directory was created")
	}
	for _, name := range []string{"focus-acme-2026-10.parquet", "focus-zeta-2026-10.parquet", "own.parquet"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const want = "finance.export.to: Parquet files that are no longer updated: 2, such as focus-acme-2026-10.parquet " +
		"Let their readers use the CSV files, and delete them: parquet was removed in 0.2.0; use csv"
	if got := find(dir); !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}
