package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/config"
)

const withProvider = "providers: [{id: p, base_url: https://p.example/v1}]\n"

// TestDefaultLimits: defaults apply to every org. A limit of an org or a user replaces the default
// with the same name completely.
func TestDefaultLimits(t *testing.T) {
	cfg, err := config.Parse("f.yaml", []byte(withProvider+`
defaults:
  limits:
    - {name: month, amount: $100, calendar: month}
    - {name: each, subject: user, amount: $5, window: 1h, models: [gpt-*]}
orgs:
  - {id: plain, users: [{id: alice}]}
  - id: own
    limits: [{name: month, amount: $7, calendar: day}, {name: more, amount: $1, window: 1m}]
    users: [{id: alice, limits: [{name: each, amount: $20, window: 1d}]}]
`), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	text := func(list []config.Limit) string {
		var out []string
		for _, l := range list {
			out = append(out, fmt.Sprintf("%s=%d%s%v", l.Name, l.Amount.N/1e9, l.Calendar, l.Models))
		}
		return strings.Join(out, " ")
	}
	for i, want := range [][2]string{
		{"month=100month[] each=5[gpt-*]", "month=100month[] each=5[gpt-*]"},
		{"month=7day[] each=5[gpt-*] more=1[]", "month=7day[] each=20[] more=1[]"},
	} {
		o := &cfg.Orgs[i]
		if got := text(cfg.Defaults.OrgLimits(o)); got != want[0] {
			t.Errorf("org %s: got %s, want %s", o.ID, got, want[0])
		}
		if got := text(cfg.Defaults.UserLimits(o, &o.Users[0])); got != want[1] {
			t.Errorf("user of %s: got %s, want %s", o.ID, got, want[1])
		}
	}
}

func TestDefaultLimitMistakes(t *testing.T) {
	checkWrong(t, []wrongFile{
		{
			"a default for one user", "defaults: {limits: [{name: a, amount: $5, window: 1h, subject: user, only: «bob»}]}\norgs: [{id: acme, users: [{id: bob}]}]\n",
			"defaults.limits[0].only", "is not allowed in limits for every org; put the limit under the org of that user",
		},
		{
			"two defaults of one name", "defaults: {limits: [{name: a, amount: $5, window: 1h}, {name: «a», amount: $5, window: 1h}]}\norgs: [{id: acme}]\n",
			"defaults.limits[1].name", `"a" is already used on line 1, by defaults.limits[0].name`,
		},
		{
			"a default without a shape", "defaults: {limits: [«{»name: a, amount: $5}]}\norgs: [{id: acme}]\n",
			"defaults.limits[0]", "amount of what time? add window: 1h (sliding), calendar: month (fixed), or use bucket",
		},
		{
			"a user that replaces a default of the org",
			"defaults: {limits: [{name: a, amount: $5, window: 1h}]}\norgs: [{id: acme, users: [{id: bob, limits: [{name: «a», amount: $9, window: 1h}]}]}]\n",
			"orgs[0].users[0].limits[0].name", `"a" is a limit of the org on line 1 whose subject is not user, so a user cannot replace it`,
		},
	})
}
