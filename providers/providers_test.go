package providers

import (
	"errors"
	"net/url"
	"testing"
)

func TestMatch(t *testing.T) {
	f := func(pattern, name string, want bool) {
		t.Helper()
		if Match(pattern, name) != want {
			t.Errorf("Match(%q, %q) is not %v", pattern, name, want)
		}
	}
	f("gpt-4o", "gpt-4o", true)
	f("gpt-4o", "gpt-4o-mini", false)
	f("gpt-4o*", "gpt-4o-mini", true)
	f("gpt-4o*", "gpt-4o", true)
	f("gpt-4o*", "xgpt-4o", false)
	f("*", "", true)
	f("*", "any/thing:with*signs", true)
	f("", "", true)
	f("", "x", false)
	f("*mini", "gpt-4o-mini", true)
	f("*mini", "gpt-4o-mini-2024", false)
	f("a*a", "a", false) // the two letters are separate
	f("a*a", "aa", true)
	f("a*b*c", "a-b-b-c", true)
	f("a*b*c", "a-c-b", false)
	f("**", "x", true)
	f("org/*", "org/model/a", true)
	f("GPT-4o", "gpt-4o", false)
}

func TestMatchAny(t *testing.T) {
	if !MatchAny(nil, "x") {
		t.Error("no patterns do not fit every name")
	}
	if MatchAny([]string{"a", "b*"}, "c") || !MatchAny([]string{"a", "b*"}, "bc") {
		t.Error("a list of patterns does not fit as its members do")
	}
}

func base(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestResolve(t *testing.T) {
	a := &Provider{
		ID: "a", BaseURL: base(t, "http://a/v1"), Aliases: map[string]string{"smart": "big-1", "b-only": "nowhere"},
		Pools: []Pool{{ID: "a-mini", Models: []string{"*-mini"}}, {ID: "a-big", Models: []string{"big-*", "one"}}},
	}
	b := &Provider{ID: "b", BaseURL: base(t, "http://b/v1"), Pools: []Pool{{ID: "b-all"}}}
	set, err := NewSet([]*Provider{a, b})
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	f := func(model string, only []string, pool, name string) {
		t.Helper()
		got, err := set.Resolve(model, only)
		var unknown *UnknownModelError
		if pool == "" {
			if !errors.As(err, &unknown) || unknown.Model != model {
				t.Errorf("Resolve(%q, %q) = %+v, %v, want an unknown model", model, only, got, err)
			}
			return
		}
		if err != nil || got.Pool != pool || got.Model != name || got.Provider.Pools == nil {
			t.Errorf("Resolve(%q, %q) = %s %s, %v", model, only, got.Pool, got.Model, err)
		}
	}
	f("gpt-mini", nil, "a-mini", "gpt-mini")
	f("big-mini", nil, "a-mini", "big-mini") // the first matching pool
	f("one", nil, "a-big", "one")
	f("other", nil, "b-all", "other")
	f("smart", nil, "a-big", "big-1")
	f("smart", []string{"b"}, "b-all", "smart") // an alias applies only to its own provider
	f("one", []string{"b"}, "b-all", "one")
	f("other", []string{"a"}, "", "")
	f("b-only", []string{"a"}, "", "") // an alias whose model no pool serves
	f("one", []string{"nobody"}, "", "")
}

func TestNewSetRefuses(t *testing.T) {
	f := func(what string, list ...*Provider) {
		t.Helper()
		if _, err := NewSet(list); err == nil {
			t.Errorf("NewSet took %s", what)
		}
	}
	f("no base URL", &Provider{ID: "a"})
	f("a base URL without a host", &Provider{ID: "a", BaseURL: base(t, "/v1")})
	f("one pool at two providers", &Provider{ID: "a", BaseURL: base(t, "http://a"), Pools: []Pool{{ID: "p"}}},
		&Provider{ID: "b", BaseURL: base(t, "http://b"), Pools: []Pool{{ID: "p"}}})
}

func TestNames(t *testing.T) {
	p := &Provider{Models: []string{"listed"}, Aliases: map[string]string{"alias": "x"}, Pools: []Pool{{Models: []string{"pooled", "any-*"}}}}
	got := p.Names()
	if len(got) != 3 || got[0] != "listed" || got[1] != "alias" || got[2] != "pooled" {
		t.Errorf("Names() = %q", got)
	}
}
