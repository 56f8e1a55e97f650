package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/simulate"
)

// history writes a two-hour ledger export: three users make a $0.06 call every minute, and
// batch makes ten a minute for half an hour.
func history(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	begin, n := time.Date(2026, 11, 18, 8, 0, 0, 0, time.UTC), 0
	add := func(user string, at time.Time) {
		n++
		fmt.Fprintf(&b, `{"id":"c%d","attempt":1,"org":"acme","user":%q,"key":"k","model":"gpt-4o","endpoint":"chat.completions","kind":"settle",`+
			`"at":%q,"took_ms":2000,"held_us":%d,"held_nano":100000000,"held_tokens":1000,"cost_nano":60000000,"total_nano":60000000,"usage":{"input":500,"output":100}}`+"\n",
			n, user, at.Add(2*time.Second).Format(time.RFC3339Nano), at.UnixMicro())
	}
	for i := range 120 {
		for k, user := range []string{"ann", "bob", "cid"} {
			add(user, begin.Add(time.Duration(i)*time.Minute+time.Duration(k)*time.Second))
		}
		for k := range 10 {
			if i >= 60 && i < 90 {
				add("batch", begin.Add(time.Duration(i)*time.Minute+time.Duration(5*k)*time.Second))
			}
		}
	}
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLimitsSuggest(t *testing.T) {
	log := history(t)
	table := says(t, "limits", "suggest", "--log", log, "--window", "10m,1d", "--percentile", "70", "--heavy", "0")
	for _, want := range []string{
		"acme: 660 calls of 4 users for $39.60", "no limit with a window of 1d: the calls span only 1h 59m",
		"70 %", "each user", "4 users", "12 x 10m", "org-bucket", "all combined", "batch 287",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("there is no %q in\n%s", want, table)
		}
	}
	t.Run("yaml", func(t *testing.T) {
		text := says(t, "limits", "suggest", "--log", log, "--window", "10m", "--percentile", "70", "-o", "yaml")
		cfg, err := config.Parse("suggested", []byte("redis: {url: \"redis://h\"}\nproviders: [{id: p, base_url: \"http://h/v1\", pools: [{id: p, rpm: 9}]}]\n"+text),
			func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		org := cfg.Orgs[0]
		if len(org.Limits) != 3 || len(org.Users) != 1 || org.Users[0].ID != "batch" || len(org.Users[0].Limits) != 1 {
			t.Fatalf("read as %+v\n%s", org, text)
		}
		if own, each := org.Users[0].Limits[0], org.Limits[1]; own.Name != each.Name || own.Amount.N <= each.Amount.N || own.Mode != string(budget.Shadow) {
			t.Errorf("batch's limit is %+v, that of each user %+v", own, each)
		}
		for _, l := range org.Limits {
			if l.Mode != string(budget.Shadow) {
				t.Errorf("%s: mode %s", l.Name, l.Mode)
			}
		}
	})
	t.Run("json", func(t *testing.T) {
		var got struct {
			Headroom float64
			Orgs     []simulate.OrgSuggestions
		}
		text := says(t, "limits", "suggest", "--log", log, "--window", "10m", "--headroom", "2", "--metric", "requests", "-o", "json")
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		each := got.Orgs[0].Suggestions[1]
		if got.Headroom != 2 || each.Name != "user-10m-requests" || each.Metric != budget.Requests || each.WindowS != 600 || each.Amount < 2*100 {
			t.Errorf("suggested %+v", each)
		}
	})
}

func TestLimitsSuggestRefuses(t *testing.T) {
	log := history(t)
	for want, args := range map[string][]string{
		"--window x":                   {"--window", "x"},
		"expected cost, tokens":        {"--metric", "concurrency"},
		"expected 1 to 100":            {"--percentile", "0"},
		"expected 0.1 to 100":          {"--headroom", "0"},
		"--log cannot be combined":     {"--days", "3"},
		"expected one of table, json,": {"-o", "csv"},
	} {
		if got := says(t, append([]string{"limits", "suggest", "--log", log}, args...)...); !strings.Contains(got, want) {
			t.Errorf("%v: %s", args, got)
		}
	}
}

func TestQuantity(t *testing.T) {
	for want, n := range map[string]int64{"$2.30": 2_300_000_000, "$2": 2_000_000_000, "$0.05": 50_000_000, "$0.00012": 120_000, "$100": 100_000_000_000} {
		if got := quantity(budget.Cost, n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	if got := about(budget.Cost, 1_234_567_890); got != "$1.23" {
		t.Errorf("about $1.23456789: %s", got)
	}
}
