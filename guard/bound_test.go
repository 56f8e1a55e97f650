package guard_test

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// TestBound checks that what an org can spend in an hour is the least of what its limits,
// the spend caps and the limits of its users admit, and that orgs and users without a limit
// are reported.
func TestBound(t *testing.T) {
	base, err := url.Parse("https://p.example/v1")
	if err != nil {
		t.Fatal(err)
	}
	set, err := providers.NewSet([]*providers.Provider{
		{ID: "p", BaseURL: base, Pools: []providers.Pool{{ID: "p"}}}, {ID: "q", BaseURL: base, Pools: []providers.Pool{{ID: "q"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const usd = int64(pricing.NanoPerUSD)
	cost := func(subject budget.Subject, amount int64, change ...func(*budget.Limit)) budget.Limit {
		l := budget.Limit{
			ID: "l", Subject: subject, Metric: budget.Cost, Shape: budget.Shape{Kind: budget.Window, Amount: amount * usd, Window: time.Hour},
		}
		for _, f := range change {
			f(&l)
		}
		return l
	}
	tokens := func(l *budget.Limit) { l.Metric = budget.Tokens }
	models := func(list ...string) func(*budget.Limit) { return func(l *budget.Limit) { l.Models = list } }
	mode := func(m budget.Mode) func(*budget.Limit) { return func(l *budget.Limit) { l.Mode = m } }
	only := func(id string) func(*budget.Limit) { return func(l *budget.Limit) { l.Only = id } }
	list := func(l ...budget.Limit) []budget.Limit { return l }
	two := map[string][]string{"alice": {"a1", "a2"}, "bob": {"b1"}}
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	raised := func(l *budget.Limit) {
		l.Raises = []budget.Raise{{Add: 3 * usd, Until: now.Add(time.Hour)}, {Add: 50 * usd, Until: now.Add(-time.Hour)}}
	}
	covered := guard.Org{
		Org: settings.Org{Models: []string{"gpt-4o", "o3"}}, Limits: list(cost(budget.Org, 5, models("gpt-*")), cost(budget.Org, 3, models("o3"))),
	}
	type want struct {
		usd   int64 // -1: unlimited
		none  bool
		users []string
	}
	for name, tc := range map[string]struct {
		org  guard.Org
		caps []budget.Cap
		keys map[string][]string
		want want
	}{
		"nothing":                    {guard.Org{}, nil, two, want{-1, true, nil}},
		"nothing, and no user yet":   {guard.Org{}, nil, nil, want{-1, true, nil}},
		"a limit of the org":         {guard.Org{Limits: list(cost(budget.Org, 5))}, nil, two, want{5, false, nil}},
		"the least of two":           {guard.Org{Limits: list(cost(budget.Org, 5), cost(budget.Org, 2))}, nil, two, want{2, false, nil}},
		"one that is overridden":     {guard.Org{Limits: list(cost(budget.Org, 5, raised))}, nil, two, want{8, false, nil}},
		"one in shadow mode":         {guard.Org{Limits: list(cost(budget.Org, 5, mode(budget.Shadow)))}, nil, two, want{-1, true, nil}},
		"one that is off":            {guard.Org{Limits: list(cost(budget.Org, 5, mode(budget.Off)))}, nil, two, want{-1, true, nil}},
		"one of tokens":              {guard.Org{Limits: list(cost(budget.Org, 5, tokens))}, nil, two, want{-1, false, nil}},
		"one of some endpoints":      {guard.Org{Limits: list(cost(budget.Org, 5, func(l *budget.Limit) { l.Endpoints = []string{"embeddings"} }))}, nil, two, want{-1, true, nil}},
		"one of addresses":           {guard.Org{Limits: list(cost(budget.IP, 5))}, nil, two, want{-1, true, nil}},
		"one of some models":         {guard.Org{Limits: list(cost(budget.Org, 5, models("gpt-*")))}, nil, two, want{-1, true, nil}},
		"one of all that it may use": {guard.Org{Org: settings.Org{Models: []string{"gpt-4o", "gpt-5*"}}, Limits: list(cost(budget.Org, 5, models("gpt-*")))}, nil, two, want{5, false, nil}},
		"several that cover all":     {covered, nil, two, want{8, false, nil}},
		"a limit of each user":       {guard.Org{Limits: list(cost(budget.User, 5))}, nil, two, want{10, false, nil}},
		"the same, and no user yet":  {guard.Org{Limits: list(cost(budget.User, 5))}, nil, nil, want{5, false, nil}},
		"a limit of each key":        {guard.Org{Limits: list(cost(budget.Key, 5))}, nil, two, want{15, false, nil}},
		"a limit of one user":        {guard.Org{Limits: list(cost(budget.User, 5, only("alice")))}, nil, two, want{-1, true, []string{"bob"}}},
		"a limit of one key of two":  {guard.Org{Limits: list(cost(budget.Key, 5, only("a1")))}, nil, two, want{-1, true, nil}},
		"users less than the org":    {guard.Org{Limits: list(cost(budget.Org, 50), cost(budget.User, 5))}, nil, two, want{10, false, nil}},
		"a user with a limit raised": {guard.Org{Limits: list(cost(budget.User, 5)), UserLimits: map[string][]budget.Limit{"bob": list(cost(budget.User, 9, only("bob")))}}, nil, two, want{14, false, nil}},
		"a cap of the deployment":    {guard.Org{}, []budget.Cap{{Limits: list(cost(budget.Org, 7))}}, two, want{7, false, nil}},
		"a cap of one provider":      {guard.Org{}, []budget.Cap{{Provider: "p", Limits: list(cost(budget.Org, 7))}}, two, want{-1, true, nil}},
		"a cap of its one provider":  {guard.Org{Org: settings.Org{Providers: []string{"p"}}}, []budget.Cap{{Provider: "p", Limits: list(cost(budget.Org, 7))}}, two, want{7, false, nil}},
		"a disabled org":             {guard.Org{Org: settings.Org{Disabled: true}}, nil, two, want{0, false, nil}},
	} {
		p := &guard.Policy{Providers: set, Caps: tc.caps}
		tc.org.ID = "acme"
		got := p.Bound(&tc.org, tc.keys, now)
		hour := int64(got.Hour) / usd
		if got.Hour == guard.Unlimited {
			hour = -1
		}
		if hour != tc.want.usd || got.None != tc.want.none || !slices.Equal(got.Users, tc.want.users) {
			t.Errorf("%s: got $%d, none %t, users %v, want %+v", name, hour, got.None, got.Users, tc.want)
		}
	}
}
