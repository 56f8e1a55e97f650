package proxy

import (
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/auth"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/queue"
)

// TestScopesOfLimitRequests: a key needs a scope to request more of its own limits, and another to speak for
// its org. A run requests nothing. What is refused is not recorded, and not offered with a refusal.
func TestScopesOfLimitRequests(t *testing.T) {
	cost := func(id string, subject budget.Subject) budget.Limit {
		return budget.Limit{ID: id, Subject: subject, Metric: budget.Cost, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.Window, Amount: 1, Window: time.Hour}}
	}
	r := newRig(t, queue.Pool{}, nil, cost("of-org", budget.Org), cost("of-user", budget.User), cost("of-key", budget.Key))
	r.org.RaiseRequests = settings.RaiseRequests{Mode: "allow", MaxAmount: settings.Quantity{N: 5e9, Money: true}, MaxFor: time.Hour}
	r.org.Runs = settings.Runs{MaxDepth: 1, MaxOpen: 9, MaxAmount: settings.Quantity{N: 50e9, Money: true}, MaxLife: time.Hour}
	store := tenants.New(redistest.DB(r.rdb), tenants.Options{})
	r.proxy.opts.Raises = store
	r.proxy.routes = r.proxy.table()
	child := r.run(r.key, "POST", "", `{"amount":"$0.000000001"}`).Key
	for _, x := range []struct {
		name                 string
		scopes               []string
		ofUser, ofKey, ofOrg int
	}{
		{"no list", nil, 201, 201, 400},
		{"calls only", []string{"chat.completions"}, 403, 403, 403},
		{"all calls", []string{"calls", "jobs", "usage", runScope}, 403, 403, 403},
		{"own limits", []string{"chat.completions", raiseScope}, 201, 201, 400},
		{"the org's alone", []string{"chat.completions", raiseOrgScope}, 403, 403, 403},
		{"the org's", []string{"chat.completions", raiseScope, raiseOrgScope}, 201, 201, 201},
		{"a run", nil, 403, 403, 403},
	} {
		secret := keys.New(keys.Live)
		known := map[string]auth.Principal{keys.Hash(keys.Pepper{}, secret): {Org: r.org, User: x.name, Key: "k1", Scopes: x.scopes}}
		if x.name == "a run" {
			secret = child
			known = map[string]auth.Principal{keys.Hash(keys.Pepper{}, r.key): {Org: r.org, User: "alice", Key: "k1"}}
		}
		r.proxy.SetDirectory(&auth.Directory{ByHash: known})
		for limit, want := range map[string]int{"of-user": x.ofUser, "of-key": x.ofKey, "of-org": x.ofOrg} {
			if a := r.as(secret, "POST", "/limit_requests", `{"limit":"`+limit+`","amount":"$1","reason":"x"}`); a.status != want {
				t.Errorf("%s, %s: got %d %s, want %d", x.name, limit, a.status, a.body, want)
			}
		}
		if a := r.as(secret, "POST", "/chat/completions", prompt("hi", `"max_tokens":5`)); x.ofUser == 403 && a.header.Get(headerAsk) != "" {
			t.Errorf("%s: %d offers %s", x.name, a.status, a.header.Get(headerAsk))
		}
		if err := store.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		made := 0
		for _, one := range store.Snapshot().RaiseRequests("acme") {
			if one.User == x.name {
				made++
			}
		}
		want := 0
		for _, status := range []int{x.ofUser, x.ofKey, x.ofOrg} {
			if status == 201 {
				want++
			}
		}
		if made != want {
			t.Errorf("%s: %d requests are recorded, want %d", x.name, made, want)
		}
	}
}
