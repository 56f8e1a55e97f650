package cli_test

import (
	"strings"
	"testing"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// TestWhyUser: a user's limits with their numbers, when they free capacity, the largest
// holders, and the command that raises the limit.
func TestWhyUser(t *testing.T) {
	s := newSite(t, orgs)
	for _, one := range []struct {
		key  string
		cost pricing.Nano
	}{{"k1", 4_000_000_000}, {"k2", 1_000_000_000}} {
		s.charge(budget.Call{Org: "acme", User: "alice", Key: one.key, Model: "gpt-4o"}, pricing.Split{Output: one.cost}, pricing.Usage{Output: 10})
	}
	var w admin.Why
	s.read(&w, "why", "alice")
	if w.Kind != "user" || w.Org != "acme" || len(w.Limits) != 2 || w.Limits[0].Name != "daily" {
		t.Fatalf("%+v", w)
	}
	l := w.Limits[0]
	if !l.Refuses || l.Used != 5_000_000_000 || l.Amount != 5_000_000_000 || len(l.Frees) != 3 || l.Frees[0].Amount != 500_000_000 ||
		l.Frees[0].Seconds == nil || *l.Frees[0].Seconds > 86400*1.02 || *l.Frees[0].Seconds < 86400*0.9 {
		t.Errorf("daily: %+v", l)
	}
	if len(l.Neighbors) != 2 || l.Neighbors[0].Key != "k1" || l.Neighbors[0].Used != 4_000_000_000 || l.Neighbors[1].Key != "k2" {
		t.Errorf("those who share it: %+v", l.Neighbors)
	}
	out := s.must("why", "alice", "--org", "acme")
	command := " limits override --org acme --user alice --limit daily --add '$0.5' --until 1h --reason 'let alice continue' --config " + s.file
	has(t, out, "There is no capacity left in the limit daily of this user.", "key k1 used $4.00", command)
	s.must("limits", "override", "--org", "acme", "--user", "alice", "--limit", "daily", "--add", "$0.5", "--until", "1h", "--reason", "let alice continue")
	has(t, s.must("why", "alice"), "All limits have capacity.")
	s.refuses("user has the id \"nobody\"", "why", "nobody")
}

// TestWhyCall: the ledger entry of a call, and the present state of its limits.
func TestWhyCall(t *testing.T) {
	s := newSite(t, orgs)
	id := s.charge(budget.Call{Org: "acme", User: "alice", Key: "k1", Model: "gpt-4o", Endpoint: string(wire.ChatCompletions)},
		pricing.Split{Output: 1_500_000_000}, pricing.Usage{Output: 10})
	var w admin.Why
	s.read(&w, "why", id)
	if w.Kind != "call" || len(w.Entries) != 1 || w.Entries[0].Cost != 1_500_000_000 || len(w.Limits) != 2 || len(w.Commands) != 0 {
		t.Errorf("%+v", w)
	}
	out := s.must("why", id)
	has(t, out, "call "+id, "The same call would now be within all limits.", "completed")
	if strings.Contains(out, "To let it through") {
		t.Errorf("a command without need: %s", out)
	}
}
