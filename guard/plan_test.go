package guard

import (
	"errors"
	"net/url"
	"testing"

	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

// planner returns a guard that can only price: one OpenAI account, one account at a
// gateway, and the catalogue's prices plus those of the text.
func planner(t *testing.T, own string, unknown *pricing.Entry) (*Guard, Caller) {
	t.Helper()
	base := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	set, err := providers.NewSet([]*providers.Provider{
		{ID: "openai", BaseURL: base, Pools: []providers.Pool{{ID: "openai", Models: []string{"gpt-*"}}}},
		{ID: "gateway", BaseURL: base, Pools: []providers.Pool{{ID: "gateway"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := pricing.ParseEntries([]byte(own))
	if err != nil {
		t.Fatal(err)
	}
	catalogue, err := pricing.Embedded()
	if err != nil {
		t.Fatal(err)
	}
	if catalogue, err = catalogue.With(entries); err != nil {
		t.Fatal(err)
	}
	return New(Options{Policy: &Policy{Catalogue: catalogue, UnknownPrice: unknown, Providers: set}}), Caller{Org: &Org{Org: settings.Org{ID: "acme"}}, User: "u"}
}

func chatRequest(t *testing.T, model string) *wire.Request {
	t.Helper()
	r, err := wire.Scan(wire.ChatCompletions, []byte(`{"model":"`+model+`","messages":[{"role":"user","content":"hi"}],"max_tokens":10}`), wire.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func entry(t *testing.T, text string) *pricing.Entry {
	t.Helper()
	list, err := pricing.ParseEntries([]byte("[" + text + "]"))
	if err != nil {
		t.Fatal(err)
	}
	return &list[0]
}

func TestUnknownModelPrice(t *testing.T) {
	const own = `
- {model: shared-name, provider: vendor-a, prices: [{input: 1, output: 1}]}
- {model: shared-name, provider: vendor-b, prices: [{input: 2, output: 2}]}
- {model: not-yet, prices: [{effective_from: 2999-01-01, input: 1, output: 1}]}
`
	dear := entry(t, `{model: unknown, max_output: 7, prices: [{input: 100, output: 1000, per_request: 0.5}]}`)
	for _, c := range []struct {
		name, model     string
		unknown         *pricing.Entry
		provider, label string
		refused         bool
	}{
		{"refused without a price", "gpt-77-nova", nil, "", "", true},
		{"priced with one", "gpt-77-nova", dear, "openai", "unknown", false},
		{"under the account it goes to", "house-7b", dear, "gateway", "unknown", false},
		{"known models keep their price", "gpt-4o", dear, "openai", "gpt-4o", false},
		{"vendors that disagree are not unknown", "shared-name", dear, "", "", true},
		{"a price that begins later is not unknown", "not-yet", dear, "", "", true},
		{"a fallback that begins later does not price", "gpt-77-nova", entry(t, `{model: unknown, prices: [{effective_from: 2999-01-01, input: 1, output: 1}]}`), "", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, caller := planner(t, own, c.unknown)
			p, err := g.Plans.Prepare(caller, chatRequest(t, c.model))
			_, errModel := g.Plans.Model(caller, c.model)
			if (errModel != nil) != c.refused {
				t.Errorf("GET /v1/models/%s: %v", c.model, errModel)
			}
			if c.refused {
				var e *wire.Error
				if !errors.As(err, &e) || e.Status != 400 || e.Code != "model_not_priced" {
					t.Errorf("plan %+v, error %v", p, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.Price.Model != c.label || p.Price.Provider != c.provider || p.Price.Version == "" {
				t.Errorf("priced as %s at %s, version %q", p.Price.Model, p.Price.Provider, p.Price.Version)
			}
			if want := pricing.Nano(500_000_000 + 100_000*p.Input + 1_000_000*10); c.label == "unknown" && p.Max.Cost != want {
				t.Errorf("%d tokens in and 10 out hold %s instead of %s", p.Input, p.Max.Cost, want)
			}
		})
	}
	g, caller := planner(t, own, dear)
	p, err := g.Plans.Prepare(caller, chatRequest(t, "gpt-77-nova"))
	if err != nil {
		t.Fatal(err)
	}
	for answered, label := range map[string]string{"gpt-4o": "gpt-4o", "gpt-77-nova-2027-01-01": "unknown", "": "unknown"} {
		c, want := newCall(g, p, "", 0), p.Price
		if label != "unknown" {
			if want, err = g.policy.Load().Catalogue.Lookup("openai", label, p.at); err != nil {
				t.Fatal(err)
			}
		}
		usage := pricing.Usage{Input: 1000, Output: 1000, Requests: 1}
		cost, _ := want.Charge(usage, p.terms)
		if got, err := c.bill.split(usage, answered, ""); err != nil || got.Total() != cost {
			t.Errorf("an answer of %q is charged %s, want %s (%v)", answered, got.Total(), cost, err)
		}
	}
	if dear.Provider != "" {
		t.Error("pricing a call changed the policy")
	}
}
