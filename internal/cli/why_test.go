package cli_test

import (
	"testing"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/admin"
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
		s.charge(ledger.Call{Org: "acme", User: "alice", Key: one.key, Model: "gpt-4o"}, pricing.Split{Output: one.cost}, pricing.Usage{Output: 10})
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
}
