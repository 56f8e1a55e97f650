package guard_test

import (
	"slices"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
)

// TestLimitsCountTheSameCallsEverywhere checks that one rule decides which limits count a
// call: the limits chosen for a call are the ones it is held under, whatever fields the
// call leaves empty.
func TestLimitsCountTheSameCallsEverywhere(t *testing.T) {
	limit := func(id string, subject budget.Subject, only string) budget.Limit {
		return budget.Limit{
			ID: id, Subject: subject, Only: only, Metric: budget.Requests, Mode: budget.Enforce,
			Shape: budget.Shape{Kind: budget.Window, Amount: 5, Window: time.Hour},
		}
	}
	off := limit("off", budget.Org, "")
	off.Mode = budget.Off
	limits := []budget.Limit{
		limit("org", budget.Org, ""), off,
		limit("user", budget.User, ""), limit("alice", budget.User, "alice"),
		limit("key", budget.Key, ""), limit("k1", budget.Key, "k1"),
		limit("ip", budget.IP, ""), limit("home", budget.IP, "127.0.0.1"),
	}
	for _, test := range []struct {
		call ledger.Call
		want []string
	}{
		{ledger.Call{Org: "acme", User: "alice", Key: "k1", IP: "127.0.0.1"}, []string{"org", "user", "alice", "key", "k1", "ip", "home"}},
		{ledger.Call{Org: "acme", User: "bob", Key: "k2", IP: "10.0.0.7"}, []string{"org", "user", "key", "ip"}},
		{ledger.Call{Org: "acme", User: "alice"}, []string{"org", "user", "alice", "key"}}, // the address is unknown
	} {
		names := func(list []budget.Limit) []string {
			var out []string
			for _, l := range list {
				out = append(out, l.ID)
			}
			return out
		}
		test.call.Model, test.call.Endpoint = "m", "chat.completions"
		if got := names(guard.Applying(limits, test.call, "m")); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %v apply, want %v", test.call, got, test.want)
		}
		held, err := budget.NewVirtual(budget.Options{}).Bind(limits, test.call)
		if err != nil {
			t.Fatal(err)
		}
		if got := names(held.Limits()); !slices.Equal(got, test.want) {
			t.Errorf("%+v: held under %v, want %v", test.call, got, test.want)
		}
	}
}
