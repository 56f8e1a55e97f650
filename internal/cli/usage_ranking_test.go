package cli_test

import (
	"strings"
	"testing"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
)

// TestSameNameInTwoOrgs: users of the same name stay apart, in sums and in lists of entries.
func TestSameNameInTwoOrgs(t *testing.T) {
	s := newSite(t, "orgs: [{id: acme, users: [{id: carol}]}, {id: beta, users: [{id: carol}]}]\n")
	var ids []string
	for i, org := range []string{"beta", "acme", "beta", "acme"} {
		cost := pricing.Split{Output: pricing.Nano(int64([]int{2, 4, 3, 1}[i]) * 1e9)}
		ids = append(ids, s.charge(budget.Call{Org: org, User: "carol", Key: "k", Model: "gpt-4o"}, cost, pricing.Usage{Output: 1}))
	}
	has(t, s.must("usage", "--by", "user"), "org user calls", "acme carol 2", "beta carol 2")
	has(t, s.must("usage", "--by", "user", "--org", "acme"), "user calls", "carol 2")
	list := func(args ...string) string {
		t.Helper()
		var entries []struct{ ID string }
		s.read(&entries, append([]string{"usage", "entries"}, args...)...)
		var out []string
		for _, e := range entries {
			for i, id := range ids {
				if id == e.ID {
					out = append(out, string(rune('0'+i)))
				}
			}
		}
		return strings.Join(out, "")
	}
	for args, want := range map[string]string{
		"":                                 "0123",
		"--limit 2":                        "23",
		"--sort cost":                      "1203",
		"--sort cost --limit 1":            "1",
		"--sort cost --limit 3 --org beta": "20",
		"--sort cost --limit 0":            "1203",
	} {
		if got := list(strings.Fields(args)...); got != want {
			t.Errorf("entries %s: calls %s, want %s", args, got, want)
		}
	}
	s.refuses("carol is a user of several orgs: acme, beta. Name one with --org", "why", "carol")
}
