package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/config"
)

// TestGroupAndPlanMistakes: every mistake in groups and plans, and in what names them, is reported at its
// place.
func TestGroupAndPlanMistakes(t *testing.T) {
	const day = "amount: $5, window: 1d"
	org := func(text string) string { return "orgs:\n  - {id: acme, " + text + "}\n" }
	plans := func(text string) string { return "defaults: {plans: [" + text + "]}\norgs: [{id: acme}]\n" }
	many := make([]string, 51)
	for i := range many {
		many[i] = fmt.Sprintf("{name: l%d, %s}", i, day)
	}
	checkWrong(t, []wrongFile{
		{"an unknown group", org("groups: [{id: research}], users: [{id: alice, group: «reserch»}]"), "orgs[0].users[0].group", `there is no group "reserch"; did you mean "research"?`},
		{"an unknown plan", org("plans: [{id: free}], users: [{id: alice, plan: «fre»}]"), "orgs[0].users[0].plan", `there is no plan "fre"; did you mean "free"?`},
		{"an unknown plan of a key", org(`plans: [{id: free}], users: [{id: alice, keys: [{id: k, hash: "sha256:` + strings.Repeat("a", 64) + `", plan: «pro»}]}]`), "orgs[0].users[0].keys[0].plan", `there is no plan "pro"; known: free`},
		{"a group twice", org("groups: [{id: a}, {id: «a»}]"), "orgs[0].groups[1].id", `"a" is already used on line 2, by orgs[0].groups[0].id`},
		{"a priority above the org's", org("plans: [{id: a, priority: «high»}]"), "orgs[0].plans[0].priority", "high is above the org's max_priority, normal; set max_priority: high for org acme"},
		{"a plan twice", plans("{id: a}, {id: «a»}"), "defaults.plans[1].id", `"a" is already used on line 1, by defaults.plans[0].id`},
		{"a limit twice", plans("{id: a, limits: [{name: d, " + day + "}, {name: «d», " + day + "}]}"), "defaults.plans[0].limits[1].name", `"d" is already used on line 1, by defaults.plans[0].limits[0].name`},
		{"a subject of a plan's limit", plans("{id: a, limits: [{name: d, subject: «org», " + day + "}]}"), "defaults.plans[0].limits[0].subject", "a limit of a plan counts each user or key that has the plan; remove subject and only"},
		{"a subject of a group's limit", org("groups: [{id: a, limits: [{name: d, subject: «key», " + day + "}]}]"), "orgs[0].groups[0].limits[0].subject", "a limit under a group has subject group (shared by its users) or user (for each of them)"},
		{"only of a group's limit", org("groups: [{id: a, limits: [{name: d, only: «a», " + day + "}]}]"), "orgs[0].groups[0].limits[0].only", "a limit under a group applies only to its users; remove only"},
		{"a group combined", org("limits: [{name: d, «subject»: [group, user], " + day + "}]"), "orgs[0].limits[0].subject", "group cannot be combined with others; use one limit for the group and one for the others"},
		{"a label group", "labels: [{name: «group», default: a}]\norgs: [{id: acme}]\n", "labels[0].name", "group cannot be the name of a label, because limits already count by it"},
		{"a limit that counts something else", org("limits: [{name: d, " + day + "}], groups: [«{»id: a, limits: [{name: d, " + day + "}]}]"), "orgs[0].groups[0]", `the limit "d" of group a cannot replace that of the org, which has subject org; rename one of them`},
		{"too many limits", org("plans: [«{»id: a, limits: [" + strings.Join(many, ", ") + "]}]"), "orgs[0].plans[0]", "51 limits apply to this user, including those of the org; at most 50 can be counted together. Remove some, or cover several models with one limit and a pattern"},
		{"an unknown default plan", "defaults: {plan: «pro»}\norgs: [{id: acme}]\n", "defaults.plan", `there is no plan "pro"`},
	})
}

// TestPrecedence: a limit of a later place replaces that of the same name: defaults, org, group,
// plan, user; and a key's plan takes the place of the user's.
func TestPrecedence(t *testing.T) {
	c, err := config.Parse("f.yaml", []byte(withProvider+`defaults:
  limits: [{name: a, subject: user, amount: $1, window: 1d}, {name: b, subject: user, amount: $1, window: 1d}]
  plans: [{id: free, limits: [{name: a, amount: $4, window: 1d}, {name: d, amount: $4, window: 1d}]}, {id: pro, limits: [{name: d, amount: $40, window: 1d}]}]
  plan: free
orgs:
  - id: acme
    limits: [{name: b, subject: user, amount: $2, window: 1d}, {name: c, subject: user, amount: $2, window: 1d}]
    groups: [{id: g, limits: [{name: a, subject: user, amount: $3, window: 1d}, {name: c, subject: user, amount: $3, window: 1d}, {name: all, amount: $30, window: 1d}]}]
    plans: [{id: free, limits: [{name: d, amount: $5, window: 1d}]}]
    users:
      - {id: alice, group: g, limits: [{name: d, amount: $6, window: 1d}]}
      - {id: bob, group: g, keys: [{id: k, hash: "sha256:`+strings.Repeat("a", 64)+`", plan: pro}]}
      - {id: carol, plan: pro}
`), lookup)
	if err != nil {
		t.Fatal(err)
	}
	o := &c.Orgs[0]
	for i, want := range []string{
		"a user $4, b user $2, c user $3, all group g $30, d user alice $6",
		"a user $4, b user $2, c user $3, all group g $30, d user $5",
		"a user $1, b user $2, c user $2, d user $40",
	} {
		u := &o.Users[i]
		if got := limitsText(c.Defaults.UserLimits(o, u)); got != want {
			t.Errorf("the limits of %s are %s, want %s", u.ID, got, want)
		}
	}
	bob := &o.Users[1]
	got := limitsText(c.Defaults.LimitsOf(o, bob, c.Defaults.Membership(o, bob, &bob.Keys[0])))
	if want := "a user $3, b user $2, c user $3, all group g $30, d key $40"; got != want {
		t.Errorf("the limits of bob's key are %s, want %s", got, want)
	}
}

func limitsText(list []config.Limit) string {
	var out []string
	for _, l := range list {
		out = append(out, fmt.Sprintf("%s %s $%d", l.Name, strings.TrimSpace(l.Subject+" "+l.Only), l.Amount.N/1_000_000_000))
	}
	return strings.Join(out, ", ")
}
