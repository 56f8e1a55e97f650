package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestPrecedence: a limit of a later place completely replaces that of the same name: defaults, org, group, plan, user;
// and a key's plan takes the place of the user's. A limit only for one user is for no other.
func TestPrecedence(t *testing.T) {
	c := read(t, `defaults:
  limits: [{name: a, subject: user, amount: $1, window: 1d}, {name: b, subject: user, amount: $1, window: 1d, models: [gpt-*]}]
  plans: [{id: free, limits: [{name: a, amount: $4, window: 1d}, {name: d, amount: $4, window: 1d}]}, {id: pro, limits: [{name: d, amount: $40, window: 1d}]}]
  plan: free
orgs:
  - id: acme
    limits:
      - {name: b, subject: user, amount: $2, window: 1d}
      - {name: c, subject: user, amount: $2, window: 1d}
      - {name: e, subject: user, only: carol, amount: $7, window: 1d}
    groups: [{id: g, limits: [{name: a, subject: user, amount: $3, window: 1d}, {name: c, subject: user, amount: $3, window: 1d}, {name: all, amount: $30, window: 1d}]}]
    plans: [{id: free, limits: [{name: d, amount: $5, window: 1d}]}]
    users:
      - {id: alice, group: g, limits: [{name: d, amount: $6, window: 1d}]}
      - {id: bob, group: g, keys: [{id: k, hash: "sha256:`+strings.Repeat("a", 64)+`", plan: pro}]}
      - {id: carol, plan: pro}
  - {id: plain}
`)
	o := &c.Orgs[0]
	for i, want := range []string{
		"a user $4, b user $2, c user $3, all group g $30, d user alice $6",
		"a user $4, b user $2, c user $3, all group g $30, d user $5",
		"a user $1, b user $2, c user $2, e user carol $7, d user $40",
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
	if got, want := limitsText(c.Defaults.OrgLimits(&c.Orgs[1])), "a user $1, b user [gpt-*] $1"; got != want {
		t.Errorf("the limits of an org without own ones are %s, want %s", got, want)
	}
	if n := len(o.Limits); n != 3 {
		t.Errorf("the org has %d limits of its own, want them unchanged", n)
	}
}

func limitsText(list []Limit) string {
	var out []string
	for _, l := range list {
		what := l.Subject + " " + l.Only
		if len(l.Models) > 0 {
			what += fmt.Sprint(l.Models)
		}
		out = append(out, fmt.Sprintf("%s %s $%d", l.Name, strings.TrimSpace(what), l.Amount.N/1_000_000_000))
	}
	return strings.Join(out, ", ")
}

// TestMostLimits: one caller may have 50 limits, whatever limits others have.
func TestMostLimits(t *testing.T) {
	list := func(n int, format string) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf(format, i))
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	limits := func(n int, extra string) string {
		return list(n, "{name: l%[1]d, metric: requests, amount: 5, window: 1h"+extra+"}")
	}
	const more = "51 limits apply to %s; at most 50 can be counted together."
	own := func(name string) string {
		return ", users: [{id: a, limits: [{name: " + name + ", metric: requests, amount: 5, window: 1h}]}]"
	}
	for text, want := range map[string]string{
		"orgs: [{id: acme, limits: " + limits(50, "") + "}]": "",
		"orgs: [{id: acme, limits: " + limits(51, "") + "}]": "orgs[0].limits: " + fmt.Sprintf(more, "a caller of this org"),

		"orgs: [{id: acme, limits: " + limits(60, ", mode: off") + "}]": "",
		"orgs: [{id: acme, limits: " + limits(50, "") + own("own") + "}]": "orgs[0].users[0].limits: " +
			fmt.Sprintf(more, "this user, the org's included"),
		"orgs: [{id: acme, limits: " + limits(50, ", subject: user") + own("l7") + "}]": "",
		"orgs: [{id: acme, plans: [{id: a, limits: " + limits(51, "") + "}]}]": "orgs[0].plans[0]: " +
			fmt.Sprintf(more, "this user, the org's included"),
		"spend_caps: " + limits(51, ""): "spend_caps: has 51 spend caps; at most 50 are possible",
		// A limit for each of 60 users: each user has one.
		"orgs: [{id: acme, limits: " + limits(60, ", subject: user, only: u%[1]d") + ", users: " + list(60, "{id: u%d}") + "}]": "",
	} {
		_, err := Parse("f.yaml", []byte(complete(text+"\n")), getenv)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %.200v, want %q", text, err, want)
		}
	}
}

// TestAlertThresholds: thresholds are those written, sorted and without duplicates; if omitted,
// they are 50, 80 and 100.
func TestAlertThresholds(t *testing.T) {
	for _, c := range []struct {
		text string
		want []int
	}{
		{"", []int{50, 80, 100}},
		{", thresholds: []", []int{50, 80, 100}},
		{", thresholds: [100%, 7%, 100%]", []int{7, 100}},
	} {
		if got := read(t, "alerts: {url: \"https://a.example\""+c.text+"}\n").Alerts.Percents(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.text, got, c.want)
		}
	}
}
