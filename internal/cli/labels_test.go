package cli_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
)

// labeled is a configuration with labels.
const labeled = "labels: [{name: session, from: [header X-Session, key]}, {name: project, from: [key]}]\n" + orgs

// TestLabelRecords: labels of orgs, users and keys are set, shown and removed by the commands.
func TestLabelRecords(t *testing.T) {
	s := newSite(t, labeled)
	has(t, s.must("orgs", "update", "acme", "--label", "project=web", "--label", "session=none"),
		"labels project=web session=none")
	has(t, s.must("orgs", "create", "initech", "--label", "project=core"), "labels project=core")
	has(t, s.must("users", "update", "alice", "--org", "acme", "--label", "project=mobile"), "labels project=mobile")
	has(t, s.must("users", "create", "carol", "--org", "acme", "--label", "project=x"), "labels project=x")
	has(t, s.must("keys", "create", "a1", "--org", "acme", "--user", "alice", "--label", "project=ci"),
		"labels project=ci")
	for _, one := range []struct {
		args []string
		want string
	}{
		{[]string{"orgs", "get", "acme"}, "labels project=web session=none"},
		{[]string{"users", "get", "alice", "--org", "acme"}, "labels project=mobile"},
		{[]string{"keys", "get", "a1", "--org", "acme"}, "labels project=ci"},
	} {
		has(t, s.must(one.args...), one.want)
	}
	var user struct{ Labels map[string]string }
	s.read(&user, "users", "update", "alice", "--org", "acme", "--unset", "label")
	if user.Labels == nil || len(user.Labels) > 0 {
		t.Errorf("got labels %v after --unset label, want none", user.Labels)
	}
	s.refuses("expected name=value", "users", "update", "alice", "--org", "acme", "--label", "project")
	s.refuses("tenant", "orgs", "update", "acme", "--label", "tenant=a") // not declared
}

// TestLimitsByLabel: a limit by a combination is set whatever the order, and one of its counters is reset.
func TestLimitsByLabel(t *testing.T) {
	s := newSite(t, labeled)
	s.must("limits", "set", "chat", "--org", "acme", "--subject", "session+user", "--amount", "$5", "--window", "1d")
	ledger := budget.New(s.redis, budget.Options{})
	limit := budget.Limit{
		ID: "chat", Subject: "user+session", Metric: budget.Cost,
		Shape: budget.Shape{Kind: budget.Window, Amount: 5_000_000_000, Window: 24 * time.Hour},
	}
	for i, session := range []string{"s1", "s2"} {
		call := budget.Call{ID: budget.NewCallID(), Org: "acme", User: "alice", Labels: budget.Labels("session=" + session)}
		cost := pricing.Nano(i+1) * 1_000_000_000
		h, err := ledger.Hold(t.Context(), budget.Terms{
			Limits: []budget.Limit{limit}, Call: call, Max: budget.Amounts{Cost: cost},
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ledger.Settle(t.Context(), h, budget.Settlement{Actual: budget.Amounts{Cost: cost}}); err != nil {
			t.Fatal(err)
		}
	}
	used := func(session string) int64 {
		t.Helper()
		var list []limitView
		s.read(&list, "limits", "get", "chat", "--org", "acme", "--user", "alice", "--label", "session="+session)
		if len(list) != 1 {
			t.Fatalf("got %+v, want one limit", list)
		}
		return list[0].Used
	}
	if a, b := used("s1"), used("s2"); a != 1_000_000_000 || b != 2_000_000_000 {
		t.Errorf("used %d and %d, want $1 and $2", a, b)
	}
	s.must("limits", "reset", "chat", "--org", "acme", "--user", "alice", "--label", "session=s2", "--reason", "a loop")
	if a, b := used("s1"), used("s2"); a != 1_000_000_000 || b != 0 {
		t.Errorf("used %d and %d after a reset of s2, want $1 and $0", a, b)
	}
}

// TestCacheRecords: the response cache of an org is set at runtime, field by field, over the file.
func TestCacheRecords(t *testing.T) {
	s := newSite(t, orgs)
	has(t, s.must("orgs", "get", "acme"), "cache off")
	has(t, s.must("orgs", "create", "initech", "--cache-max-age", "1h", "--cache-cost", "25%"),
		"cache max age 1h", "cache cost 25%", "cache always no", "cache max bytes 64000000")
	has(t, s.must("orgs", "update", "initech", "--cache-always"), "cache max age 1h", "cache cost 25%",
		"cache always yes")
	has(t, s.must("orgs", "update", "initech", "--unset", "cache-cost"), "cache max age 1h", "cache cost 0%",
		"cache always yes")
	has(t, s.must("orgs", "update", "initech", "--cache-max-age", "0"), "cache off")
	s.refuses("must be from 1s to 30d", "orgs", "update", "initech", "--cache-max-age", "31d")
	s.refuses("cost", "orgs", "update", "initech", "--cache-cost", "101%")
}

// TestApplyLabelsAndCache: what `config export` prints of labels and caches is applied to a deployment
// without them, and leaves no difference.
func TestApplyLabelsAndCache(t *testing.T) {
	s := newSite(t, labeled)
	s.must("orgs", "update", "acme", "--label", "project=web", "--cache-max-age", "90m", "--cache-cost", "10%",
		"--cache-max-bytes", "1MB")
	s.must("users", "update", "alice", "--org", "acme", "--label", "project=mobile")
	s.must("keys", "create", "a1", "--org", "acme", "--user", "alice", "--label", "project=ci", "--label", "session=none")
	file := filepath.Join(t.TempDir(), "orgs.yaml")
	s.must("config", "export", "--org", "acme", "--out", file)
	if plans, code := s.plan("-f", file); code != 0 {
		t.Errorf("the exported orgs differ from themselves: %+v", plans)
	}
	other := newSite(t, labeled)
	out, _, _ := llmguard(t, "apply", "-f", file, "--dry-run", "-c", other.file)
	has(t, out, "labels: not set -> project=web", "cache: not set -> max_age: 1h30m, cost: 10%, max_bytes: 1000000",
		"labels: not set -> project=mobile")
	other.must("apply", "-f", file)
	if plans, code := other.plan("-f", file); code != 0 {
		t.Errorf("differences after apply: %+v", plans)
	}
	has(t, other.must("orgs", "get", "acme"), "labels project=web",
		"cache max age 1h30m", "cache cost 10%", "cache max bytes 1000000")
	has(t, other.must("users", "get", "alice", "--org", "acme"), "labels project=mobile")
	has(t, other.must("keys", "get", "a1", "--org", "acme"), "labels project=ci session=none")
}
