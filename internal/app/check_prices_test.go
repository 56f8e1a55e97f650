package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/diagnose"
)

// prices returns the findings of a configuration with these orgs, at a time.
func prices(t *testing.T, orgs, more string, now time.Time) []diagnose.Finding {
	t.Helper()
	file := filepath.Join(t.TempDir(), "llmguard.yaml")
	text := fmt.Sprintf(`
listen: 127.0.0.1:0
redis: {addresses: ["127.0.0.1:6379"]}
providers:
  - {id: openai, base_url: "http://127.0.0.1:9/v1", pools: [{id: main, models: ["gpt-*", "odd-*"]}]}
  - {id: second, base_url: "http://127.0.0.1:9/v1", pools: [{id: other, models: ["second-*"]}]}
orgs: %s
%s`, orgs, more)
	err := os.WriteFile(file, []byte(text), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cfg, policy, err := app.Check(file)
	if err != nil {
		t.Fatal(err)
	}
	if now.IsZero() {
		now = policy.Catalogue.AsOf()
	}
	return app.CheckPrices(cfg, policy, now)
}

func TestModelsThatOrgsMayUse(t *testing.T) {
	const free = "unknown_model_price: {max_output: 128000, prices: [{input: 15, output: 75}]}\n"
	key := func(models string) string {
		return `[{id: acme, users: [{id: alice, keys: [{id: k1, models: ` + models + `, hash: "sha256:` + strings.Repeat("0",
			64) + `"}]}]}]`
	}
	for _, tc := range []struct {
		name, orgs, more string
		level            diagnose.Level // empty: no finding
		what             string
	}{
		{"a model with a price", `[{id: acme, models: [gpt-4o]}]`, "", "", ""},
		{"a pattern", `[{id: acme, models: ["nobody-*"]}]`, "", "", ""},
		{"every model", `[{id: acme}]`, "", "", ""},
		{
			"a model of no pool", `[{id: acme, models: [llama-3]}]`, "", diagnose.Warning,
			"org acme may use llama-3, which no provider's pool serves",
		},
		{
			"a model without a price", `[{id: acme, models: [odd-1]}]`, "", diagnose.Error,
			"org acme may use odd-1, which has no price",
		},
		{"one with a price for all unknown ones", `[{id: acme, models: [odd-1]}]`, free, "", ""},
		{"a key's model", key("[odd-2]"), "", diagnose.Error, "key k1 may use odd-2, which has no price"},
		{
			"twice the same", `[{id: acme, models: [odd-1]}, {id: globex, models: [odd-1]}]`, "", diagnose.Error,
			"org acme may use odd-1",
		},
	} {
		found := prices(t, tc.orgs, tc.more, time.Time{})
		if tc.level == "" {
			if len(found) > 0 {
				t.Errorf("%s: got %+v, want nothing", tc.name, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Level != tc.level || !strings.Contains(found[0].What, tc.what) || found[0].Fix == "" {
			t.Errorf("%s: got %+v, want %s %q and advice", tc.name, found, tc.level, tc.what)
		}
	}
}

// TestOldPrices checks that prices that were not verified for 90 days are suspect, whatever
// models are used.
func TestOldPrices(t *testing.T) {
	asOf := time.Now()
	found := prices(t, `[{id: acme}]`, "", asOf.AddDate(10, 0, 0))
	if len(found) != 1 {
		t.Fatalf("got %+v, want one finding", found)
	} else {
		wants(t, found, diagnose.Warning, "the oldest price was last checked")
	}
	found = prices(t, `[{id: acme}]`, "", time.Time{})
	if len(found) > 0 {
		t.Errorf("on the day they were checked: got %+v, want nothing", found)
	}
}

// wants requires one finding with a level, a text and a fix.
func wants(t *testing.T, found []diagnose.Finding, level diagnose.Level, what string) {
	t.Helper()
	for _, f := range found {
		if f.Level == level && strings.Contains(f.What, what) && f.Fix != "" {
			return
		}
	}
	t.Errorf("got %+v, want %s %q with a fix", found, level, what)
}

// TestAModelHasOneFindingOfEachKind: an org that no provider serves a model to does not hide that the model has no
// price for another.
func TestAModelHasOneFindingOfEachKind(t *testing.T) {
	got := prices(t, `[{id: acme, providers: [second], models: [odd-1]}, {id: globex, models: [odd-1]},
  {id: initech, models: [odd-1]}]`, "", time.Time{})
	if len(got) != 2 || got[0].Level != diagnose.Warning || got[1].Level != diagnose.Error ||
		!strings.Contains(got[1].What, "org globex") {
		t.Errorf("got %+v, want a warning about acme and an error about globex", got)
	}
}
