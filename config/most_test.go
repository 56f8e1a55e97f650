package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestMostLimits: one caller may have 50 limits, whatever limits others have.
func TestMostLimits(t *testing.T) {
	list := func(n int, extra string) string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("{name: l%d, metric: requests, amount: 5, window: 1h%s}", i, extra))
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	head := minimal[:strings.Index(minimal, "orgs")]
	f := func(text, want string) {
		t.Helper()
		_, err := Parse("f.yaml", []byte(head+text), getenv)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.200v, want %q", err, want)
		}
	}
	f("orgs: [{id: acme, limits: "+list(50, "")+"}]\n", "")
	f("orgs: [{id: acme, limits: "+list(51, "")+"}]\n", "orgs[0].limits: 51 limits apply to a caller of this org; at most 50")
	f("orgs: [{id: acme, limits: "+list(60, ", mode: off")+"}]\n", "")
	f("orgs: [{id: acme, limits: "+list(50, "")+", users: [{id: a, limits: [{name: own, metric: requests, amount: 5, window: 1h}]}]}]\n",
		"orgs[0].users[0].limits: 51 limits apply to this user, including those of the org; at most 50")
	f("orgs: [{id: acme, limits: "+list(50, ", subject: user")+", users: [{id: a, limits: [{name: l7, metric: requests, amount: 9, window: 1h}]}]}]\n", "")
	f("spend_caps: "+list(51, "")+"\norgs: [{id: acme}]\n", "spend_caps: has 51 spend caps; at most 50 are possible")

	var each []string // a limit for each of 60 users: each user has one
	var users []string
	for i := range 60 {
		users = append(users, fmt.Sprintf("{id: u%d}", i))
		each = append(each, fmt.Sprintf("{name: l%d, subject: user, only: u%d, metric: requests, amount: 5, window: 1h}", i, i))
	}
	f("orgs: [{id: acme, limits: ["+strings.Join(each, ", ")+"], users: ["+strings.Join(users, ", ")+"]}]\n", "")
}
