package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/diagnose"
)

const bounded = "limits: [{name: month, amount: $5, calendar: month}]"

// found returns the findings of a check of a file, with their levels and places, in order.
func found(t *testing.T, text string, look func(*config.Config) []diagnose.Finding) (list []diagnose.Finding, places string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "llmguard.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	list = look(cfg)
	app.LocateFindings(cfg, list)
	var out []string
	for _, f := range list {
		if f.Level != diagnose.OK && (f.Fix == "" || f.Line == 0 || !strings.Contains(f.Excerpt, "^")) {
			t.Errorf("got %+v, want a fix, a line and a caret", f)
		}
		out = append(out, string(f.Level)+" "+f.Path)
	}
	return list, strings.Join(out, ", ")
}

// TestMistakes checks that check finds valid but unintended settings, at their places, and
// nothing else.
func TestMistakes(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	const provider, org = "providers: [{id: p, base_url: https://api.openai.com/v1}]\n", "orgs: [{id: acme, " + bounded + "}]\n"
	pools := func(list string) string {
		return "providers: [{id: p, base_url: https://api.openai.com/v1, pools: [" + list + "]}]\n" + org
	}
	two := "providers: [{id: p, base_url: https://a.example/v1}, {id: q, base_url: https://b.example/v1}]\n"
	key := func(expires string) string {
		return provider + `orgs: [{id: acme, ` + bounded + `, users: [{id: u, keys: [{id: k, hash: "sha256:` + strings.Repeat("0", 64) + `", expires: ` + expires + `}]}]}]` + "\n"
	}
	downgrade := func(models string) string {
		return provider + "orgs: [{id: acme, " + bounded + ", downgrade: " + models + "}]\n"
	}
	for name, tc := range map[string]struct{ text, want string }{
		"an ordinary file":            {provider + org, ""},
		"a pool behind a catch-all":   {pools(`{id: all, models: ["*"]}, {id: gpt, models: ["gpt-*"]}`), "warning providers[0].pools[1]"},
		"a pool behind a wider one":   {pools(`{id: gpt, models: ["gpt-*"]}, {id: mini, models: [gpt-4o-mini, "gpt-5*"]}`), "warning providers[0].pools[1]"},
		"a pool without models first": {pools(`{id: all}, {id: gpt, models: ["gpt-*"]}`), "warning providers[0].pools[1]"},
		"the catch-all last":          {pools(`{id: gpt, models: ["gpt-*"]}, {id: all, models: ["*"]}`), ""},
		"a pool that is partly left":  {pools(`{id: gpt, models: ["gpt-*"]}, {id: more, models: [gpt-4o, o3]}`), ""},
		"a provider behind another":   {two + org, "warning providers[1].id"},
		"one that an org goes to":     {two + "orgs: [{id: acme, providers: [q], " + bounded + "}]\n", ""},
		"/v1/v1":                      {"providers: [{id: p, base_url: https://api.openai.com/v1/v1/}]\n" + org, "warning providers[0].base_url"},
		"a host alone":                {"providers: [{id: p, base_url: https://api.openai.com}]\n" + org, "warning providers[0].base_url"},
		"/v1 of Azure":                {"providers: [{id: p, kind: azure, base_url: https://n.openai.azure.com/v1}]\n" + org, "warning providers[0].base_url"},
		"a gateway's path":            {"providers: [{id: p, base_url: https://gw.example/openai/v1}]\n" + org, ""},
		"a key expired last year":     {key("2025-10-01"), "warning orgs[0].users[0].keys[0].expires"},
		"a key expired last week":     {key("2026-10-25"), ""},
		"a key that is good":          {key("2027-01-01"), ""},
		"a downgrade without a price": {downgrade("{gpt-4o: never-heard-of}"), "error orgs[0].downgrade.gpt-4o"},
		"a downgrade":                 {downgrade("{gpt-4o: gpt-4o-mini}"), ""},
		"a downgrade to no pool": {
			"providers: [{id: p, base_url: https://a.example/v1, pools: [{id: p, models: [gpt-4o]}]}]\norgs: [{id: acme, " + bounded + ", downgrade: {gpt-4o: gpt-4o-mini}}]\n",
			"error orgs[0].downgrade.gpt-4o",
		},
		"an org called all": {provider + "orgs: [{id: all, " + bounded + "}]\n", "warning orgs[0].id"},
	} {
		list, got := found(t, tc.text, func(cfg *config.Config) []diagnose.Finding {
			policy, err := app.Policy(cfg, 1)
			if err != nil {
				t.Fatal(err)
			}
			return app.CheckMistakes(cfg, policy.Guard, now)
		})
		if got != tc.want {
			t.Errorf("%s: got %q, want %q: %+v", name, got, tc.want, list)
		}
	}
}

// TestBoundsAreFound checks that unbounded orgs and users are named, with a fix.
func TestBoundsAreFound(t *testing.T) {
	const head = "providers: [{id: p, base_url: https://api.openai.com/v1}]\n"
	user := func(id, more string) string {
		return `{id: ` + id + `, keys: [{id: ` + id + `, hash: "sha256:` + strings.Repeat(id[:1], 64) + `"}]` + more + `}`
	}
	own := ", limits: [{name: day, amount: $1, calendar: day}]"
	for name, tc := range map[string]struct{ text, want, says string }{
		"an org with a limit":   {head + "orgs: [{id: acme, " + bounded + "}]\n", "", ""},
		"an org without one":    {head + "orgs: [{id: acme, " + bounded + "}, {id: open}]\n", "warning orgs[1].id", "org open"},
		"a limit in shadow":     {head + "orgs: [{id: acme, limits: [{name: m, amount: $5, calendar: month, mode: shadow}]}]\n", "warning orgs[0].id", "org acme"},
		"limits of every org":   {head + "defaults: {" + bounded + "}\norgs: [{id: acme}, {id: open}]\n", "", ""},
		"a spend cap":           {head + "spend_caps: [{name: month, amount: $5, calendar: month}]\norgs: [{id: acme}]\n", "", ""},
		"the kill switch":       {head + "kill_switch: shadow\norgs: [{id: acme, " + bounded + "}]\n", "warning orgs[0].id", "org acme"},
		"one user without one":  {head + "orgs: [{id: acme, users: [" + user("ada", own) + ", " + user("bob", "") + "]}]\n", "warning orgs[0].id", "1 user of org acme can spend: bob"},
		"users with their own":  {head + "orgs: [{id: acme, users: [" + user("ada", own) + ", " + user("bob", own) + "]}]\n", "", ""},
		"an org that is closed": {head + "orgs: [{id: acme, disabled: true}]\n", "", ""},
	} {
		list, got := found(t, tc.text, func(cfg *config.Config) []diagnose.Finding {
			policy, err := app.Policy(cfg, 1)
			if err != nil {
				t.Fatal(err)
			}
			return app.CheckBounds(cfg, policy.Guard, time.Now())
		})
		if got != tc.want || len(list) > 0 && !strings.Contains(list[0].What, tc.says) {
			t.Errorf("%s: got %q, want %q saying %q: %+v", name, got, tc.want, tc.says, list)
		}
	}
}
