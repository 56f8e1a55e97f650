package cli_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// planned is a configuration with a group and two plans.
const planned = `defaults:
  plans:
    - {id: free, limits: [{name: day, amount: $1, window: 1d}]}
    - {id: pro, limits: [{name: day, amount: $20, window: 1d}], models: ["gpt-5*", "gpt-4o"]}
  plan: free
` + orgs

// TestPlansAtRuntime: groups and plans of users and keys are set by the commands, a change of a plan applies
// to all who have it, and explain says where each limit is from.
func TestPlansAtRuntime(t *testing.T) {
	s := newSite(t, planned)
	s.refuses("there is no group", "users", "create", "carol", "--org", "acme", "--group", "research")
	has(t, s.must("limits", "set", "team", "--org", "acme", "--group", "research", "--amount", "$500", "--calendar", "month"), "group research")
	has(t, s.must("users", "create", "carol", "--org", "acme", "--group", "research", "--plan", "pro"), "research", "pro")
	s.refuses("there is no plan", "users", "update", "carol", "--org", "acme", "--plan", "prro")
	out := s.must("limits", "explain", "--org", "acme", "--user", "carol", "--model", "gpt-5")
	has(t, out, "chat.completions with gpt-5 by user carol, group research, plan pro (named by the user) of org acme",
		"plan pro", "$20", "group research", "$500", "runtime", "llmguard.yaml:5")
	has(t, s.must("limits", "explain", "--user", "carol", "--model", "o3"), "of org acme", "refused: the models of plan pro are gpt-5*, gpt-4o")
	s.refuses("No org has the user", "limits", "explain", "--user", "nobody")
	s.must("users", "create", "carol", "--org", "globex")
	s.refuses("The orgs acme, globex have a user", "limits", "explain", "--user", "carol")
	s.refuses("must have subject user", "limits", "set", "team", "--org", "acme", "--user", "carol", "--amount", "$5")
	s.must("limits", "set", "day", "--org", "all", "--plan", "pro", "--amount", "$30")
	has(t, s.must("limits", "explain", "--org", "acme", "--user", "carol"), "$30", "runtime (org all)")
	s.must("limits", "set", "day", "--org", "acme", "--user", "carol", "--amount", "$40")
	out = s.must("limits", "explain", "--org", "acme", "--user", "carol")
	has(t, out, "user carol", "$40", "replaced by the limit of the same name of user carol")
	s.must("keys", "create", "c1", "--org", "acme", "--user", "alice", "--plan", "pro")
	out = s.must("limits", "explain", "--org", "acme", "--key", "c1")
	has(t, out, "key c1 of user alice, plan pro (named by the key)", "each key")
	has(t, s.must("limits", "get", "--org", "acme", "--group", "research"), "group research", "team")
	s.refuses("Name the user or the key of the call", "limits", "explain", "--org", "acme")
	s.must("limits", "override", "--org", "acme", "--group", "research", "--limit", "team", "--add", "$100", "--until", "4h", "--reason", "x")
	has(t, s.must("limits", "get", "--org", "acme", "--group", "research"), "$600")
	s.must("limits", "reset", "team", "--org", "acme", "--group", "research", "--reason", "x")
	s.refuses("there is no group", "limits", "unset", "team", "--org", "acme", "--group", "research", "--yes")
	s.must("users", "create", "dora", "--org", "acme", "--group", "research", "--plan", "pro")
	has(t, s.must("users", "update", "dora", "--org", "acme", "--unset", "group,plan"), "none", "the org's")
	has(t, s.must("limits", "explain", "--org", "acme", "--user", "dora"), "plan free (named by the defaults)")
	s.calls("acme", "alice", 1)
	s.refuses("acme/group:research/team", "simulate", "--set", "acme/hourly: $1")
	s.must("simulate", "--set", "all/plan:pro/day: $50", "--set", "acme/group:research/team: $400")
	if out := s.must("config", "export"); !strings.Contains(out, "groups:") || !strings.Contains(out, "group: research") {
		t.Errorf("config export prints no groups: %s", out)
	}
}

// TestApplyGroupsAndPlans: a declared org can have groups and plans with limits, and users in them; a second
// run changes nothing, and --prune removes them.
func TestApplyGroupsAndPlans(t *testing.T) {
	s := newSite(t, planned)
	file := filepath.Join(t.TempDir(), "orgs.yaml")
	writeFile(t, file, `
orgs:
  - id: initech
    groups: [{id: sales, limits: [{name: team, amount: $50, window: 1d}, {name: each, subject: user, amount: $5, window: 1d}]}]
    plans: [{id: trial, limits: [{name: day, amount: $3, window: 1d}]}, {id: free, limits: [{name: day, amount: $2, window: 1d}]}]
    users: [{id: ann, group: sales, plan: trial}, {id: tom}]
`)
	s.must("apply", "-f", file)
	out := s.must("limits", "explain", "--user", "ann")
	has(t, out, "group sales, plan trial (named by the user) of org initech", "$50.00", "$5.00", "$3.00")
	has(t, s.must("limits", "explain", "--user", "tom"), "plan free (named by the defaults)", "$2.00")
	has(t, s.must("apply", "-f", file), "no changes")
	writeFile(t, file, "orgs: [{id: initech, users: [{id: ann, plan: pro}]}]\n")
	s.must("users", "update", "ann", "--org", "initech", "--unset", "group")
	s.must("apply", "-f", file, "--prune")
	has(t, s.must("limits", "explain", "--user", "ann"), "user ann, plan pro", "$20.00")
}
