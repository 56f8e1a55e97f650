package cli

import (
	"math"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/admin"
)

// TestLimitsThatNeverEmpty: a time without end is "never" in tables, and none of its overflows.
func TestLimitsThatNeverEmpty(t *testing.T) {
	used, long, soon := int64(5), math.MaxInt64/1e9, 90.0
	var out strings.Builder
	err := limitTable(&out, []admin.Limit{
		{Name: "stock", Subject: "org", Used: &used},
		{Name: "older", Subject: "org", Used: &used, Reset: &long}, // of a server that sent the number
		{Name: "minute", Subject: "org", Used: &used, Reset: &soon},
		{Name: "each", Subject: "user"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := writeCaps(&out, []admin.Cap{{Name: "all", Unit: "nano_usd"}}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "never") != 3 || !strings.Contains(got, "1m 30s") || strings.Contains(got, "2562047h") || strings.Contains(got, "-2562047h") {
		t.Error(got)
	}
}
