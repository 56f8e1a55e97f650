package cli

import (
	"encoding/json"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/wire"
)

// TestUsageCaps: the configured caps and their current usage.
func TestUsageCaps(t *testing.T) {
	b := newBooks(t)
	text, err := os.ReadFile(b.file)
	if err != nil {
		t.Fatal(err)
	}
	caps := `
spend_caps:
  - {name: day, amount: "$50", window: 1d}
  - {name: tries, metric: requests, amount: 10, window: 1h, mode: shadow}
  - {name: none, amount: "$1", window: 1h, mode: "off"}
`
	own := `base_url: "http://127.0.0.1:1", spend_caps: [{name: purse, bucket: {capacity: "$20"}}]`
	changed := strings.Replace(string(text), `base_url: "http://127.0.0.1:1"`, own, 1) + caps
	if err := os.WriteFile(b.file, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	list := []budget.Cap{
		{Provider: "openai", Limits: []budget.Limit{{ID: "purse", Subject: budget.Org, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Bucket, Amount: 20e9}}}},
		{Limits: []budget.Limit{{ID: "day", Subject: budget.Org, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Window, Amount: 50e9, Window: 24 * time.Hour}}}},
	}
	most := budget.Amounts{Cost: 2e9}
	var holds []*budget.Hold
	for _, org := range []string{"acme", "globex"} {
		h, err := b.store.Hold(t.Context(), budget.Terms{Caps: list, Call: budget.Call{ID: wire.NewCallID(), Org: org}, Max: most, Expected: most})
		if err != nil {
			t.Fatal(err)
		}
		holds = append(holds, h)
	}
	if _, err := b.store.Settle(t.Context(), holds[0], budget.Settlement{Actual: budget.Amounts{Cost: 500_000_000}}); err != nil {
		t.Fatal(err)
	}
	out := b.says("caps")
	for _, want := range []string{
		`openai +purse +cost +enforce +\$2\.500000000 +\$2\.000000000 +\$20\.000000000 +\$17\.500000000`,
		`\(all\) +day +cost +enforce +\$2\.500000000 +\$2\.000000000 +\$50\.000000000 +\$47\.500000000 +1d`,
		`\(all\) +tries +requests +shadow +0 +0 +10 +10`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("%s\nhas no %s", out, want)
		}
	}
	if strings.Contains(out, "none") {
		t.Errorf("a cap that is off is shown:\n%s", out)
	}
	out = b.says("caps", "-o", "json")
	var got []admin.Cap
	if json.Unmarshal([]byte(out), &got) != nil || len(got) != 3 || got[0].Used != 2_500_000_000 {
		t.Error(out)
	}
}

// TestLimitsThatNeverEmpty: an unlimited time prints as "never", without overflow.
func TestLimitsThatNeverEmpty(t *testing.T) {
	used, long, soon := int64(5), math.MaxInt64/1e9, 90.0
	var out strings.Builder
	err := limitTable(&out, []admin.Limit{
		{Name: "stock", Subject: "org", Used: &used},
		{Name: "older", Subject: "org", Used: &used, Reset: &long}, // from an older server that sent the maximum
		{Name: "minute", Subject: "org", Used: &used, Reset: &soon},
		{Name: "each", Subject: "user"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := tableOf(&out, []admin.Cap{{Name: "all", Unit: "nano_usd"}}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "never") != 3 || !strings.Contains(got, "1m 30s") || strings.Contains(got, "2562047h") || strings.Contains(got, "-2562047h") {
		t.Error(got)
	}
}
