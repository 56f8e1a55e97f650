package guard

import (
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/quota"
)

// TestPriority: the key's priority precedes the user's, and that the model's; requests choose up to
// what is allowed.
func TestPriority(t *testing.T) {
	low, normal, high := quota.Low, quota.Normal, quota.High
	rules := Priorities{
		Most:   quota.High,
		Users:  map[string]quota.Priority{"bot": quota.Low, "vip": quota.High},
		Keys:   map[string]quota.Priority{"vip-test": quota.Normal},
		Models: []ModelPriority{{"gpt-4o-mini", quota.Normal}, {"gpt-4o*", quota.Low}},
	}
	bounded := rules
	bounded.Most = quota.Normal
	for _, c := range []struct {
		what             string
		rules            Priorities
		user, key, model string
		tier             string
		chosen           *quota.Priority
		want             quota.Priority
	}{
		{"nothing is set", rules, "ann", "k", "o1", "", nil, quota.Normal},
		{"the model's", rules, "ann", "k", "gpt-4o", "", nil, quota.Low},
		{"the first pattern", rules, "ann", "k", "gpt-4o-mini", "", nil, quota.Normal},
		{"the user's", rules, "vip", "k", "gpt-4o", "", nil, quota.High},
		{"the key's", rules, "vip", "vip-test", "gpt-4o", "", nil, quota.Normal},
		{"chosen, up to the org's", rules, "ann", "k", "gpt-4o", "", &high, quota.High},
		{"chosen, lower", rules, "vip", "k", "o1", "", &low, quota.Low},
		{"chosen above the user's", rules, "bot", "k", "o1", "", &high, quota.Low},
		{"chosen above the key's", rules, "vip", "vip-test", "o1", "", &high, quota.Normal},
		{"chosen above the org's", bounded, "ann", "k", "o1", "", &high, quota.Normal},
		{"the user's above the org's", bounded, "vip", "k", "o1", "", nil, quota.Normal},
		{"flex", rules, "vip", "k", "o1", "flex", nil, quota.Low},
		{"flex, chosen", rules, "vip", "k", "o1", "flex", &normal, quota.Normal},
		{"another tier", rules, "ann", "k", "o1", "priority", nil, quota.Normal},
		{"an org without rules", Priorities{}, "ann", "k", "o1", "", &high, quota.Normal},
	} {
		p := Plan{
			Caller:  Caller{Org: &Org{Priorities: c.rules}, User: c.user, Key: c.key},
			Request: &wire.Request{Model: c.model, ServiceTier: c.tier},
		}
		if got := p.Priority(c.chosen); got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, got, c.want)
		}
	}
}
