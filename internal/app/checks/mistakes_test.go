package checks

import (
	"slices"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/diagnose"
)

// TestOperatorsMistakes: what is valid and does not do what it looks like is found at its place.
func TestOperatorsMistakes(t *testing.T) {
	providers := func(first, second string) string {
		one := func(id, models string) string {
			return "{id: " + id + ", base_url: \"https://" + id + ".example/v1\", pools: [{id: " + id + ", models: [" + models + "]}]}"
		}
		return "providers: [" + one("a", first) + ", " + one("b", second) + "]\n" + bounded
	}
	org := func(list string) string {
		return provider + "orgs: [{id: acme, limits: [{name: all, amount: $5, window: 1d}" + list + "]}]\n"
	}
	user := func(limit string) string {
		return provider + "orgs: [{id: acme, limits: [{name: all, amount: $5, window: 1d}], users: [{id: al, limits: [" + limit + "]}]}]\n"
	}
	price := func(output string) string {
		return provider + bounded + "prices: [{model: m1, provider: p, prices: [{input: " + output + ", output: " + output + "}]}]\n"
	}
	at := func(account string) string { return "providers: [{id: p, " + account + "}]\n" + bounded }
	listen := func(own, base string) string {
		return "listen: " + own + "\nadmin: {listen: \"127.0.0.1:0\"}\n" + at(`base_url: "http://`+base+`/v1"`)
	}
	tuned := func(models ...string) string {
		return provider + "orgs: [{id: acme, limits: [{name: all, amount: $5, window: 1d}], models: [\"" + strings.Join(models, `", "`) +
			"\"]}]\nprices: [{model: ft-mini, provider: p, prefixes: [\"ft:gpt-4.1-mini:\"], prices: [{input: 1, output: 2}]}]\n"
	}
	const itself = "warning is the address on which llmguard listens"
	const unused = "provider b gets no calls for orgs without their own providers: provider a"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"other patterns":              {providers(`"gpt-4*"`, `"gpt-5*", gpt-4o`), nil},
		"patterns that are had":       {providers(`"gpt-*"`, "gpt-4o, gpt-4o-mini"), []string{"warning " + unused}},
		"the same patterns":           {providers(`"gpt-4*"`, `"gpt-4*"`), []string{"warning " + unused}},
		"a regular expression":        {providers(`"gpt-4o.*"`, `"claude-*"`), []string{`warning no known model matches "gpt-4o.*"`}},
		"a dot and a star":            {providers(`"gpt-4.*"`, `"house.*"`), nil},
		"a limit's model typed wrong": {org(`, {name: u, models: [gpt4o], amount: $1, window: 1h}`), []string{`warning no known model matches "gpt4o"`}},
		"a limit's models":            {org(`, {name: u, models: [gpt-4o, "claude-*"], amount: $1, window: 1h}`), nil},
		"a user's expression":         {user(`{name: u, models: ["gpt-.*"], amount: $1, window: 1d}`), []string{`warning no known model matches "gpt-.*"`}},
		"tpm and rpm swapped":         {at(`base_url: "https://a.example/v1", pools: [{id: p, rpm: 30000, tpm: 500}]`), []string{"warning pool p has fewer tokens"}},
		"another kind":                {at(`base_url: "https://generativelanguage.googleapis.com/v1beta"`), []string{"warning kind openai at generativelanguage"}},
		"Claude's as OpenAI's":        {at(`base_url: "https://api.anthropic.com/v1"`), nil},
		"Mistral's as OpenAI's":       {at(`base_url: "https://api.mistral.ai/v1"`), nil},
		"the compatible API":          {at(`base_url: "https://generativelanguage.googleapis.com/v1beta/openai"`), nil},
		"its own address":             {listen("127.0.0.1:8899", "localhost:8899"), []string{itself}},
		"its own name":                {listen("localhost:8899", "localhost:8899"), []string{itself}},
		"all of its addresses":        {listen("0.0.0.0:8899", "127.0.0.1:8899"), []string{itself}},
		"another on this machine":     {listen("192.0.2.5:8899", "localhost:8899"), []string{"warning listen: 192.0.2.5:8899 cannot be opened"}},
		"a provider's placeholder":    {at(`base_url: "https://a.example/v1", api_key: your-key`), []string{"error is a placeholder"}},
		"a prefix of prices":          {tuned("ft:*", "ft:gpt-4.1-mini:*", "ft:gpt-4.1-mini:acme::x", "ft:gpt-4.1-mini*"), nil},
		"another prefix":              {tuned("ft:gpt-5*"), []string{`warning no known model matches "ft:gpt-5*"`}},
		"the end of a name":           {tuned("*-mni"), []string{`warning no known model matches "*-mni"`}},
		"free moderations":            {tuned("omni-moderation-latest", "text-moderation-stable", "omni-*"), nil},
		"a plan's model typed wrong":  {provider + bounded + "defaults: {plans: [{id: free, models: [gpt-4o-mni]}]}\n", []string{`warning no known model matches "gpt-4o-mni"`}},
		"a cap's model typed wrong":   {provider + bounded + "spend_caps: [{name: c, models: [gpt-4o-mni], amount: $5, calendar: month}]\n", []string{`warning no known model matches "gpt-4o-mni"`}},
		"less than any call":          {org(`, {name: u, subject: user, amount: "$0.000001", window: 1h}`), []string{"warning limit u: nearly every call costs more"}},
		"more than the org":           {org(`, {name: u, subject: user, amount: $50, window: 1d}`), []string{"warning limit u never refuses a call: limit all"}},
		"more in a longer time":       {org(`, {name: u, subject: user, amount: $50, window: 7d}`), nil},
		"more than part of it":        {provider + `orgs: [{id: acme, limits: [{name: all, amount: $5, window: 1d, models: [gpt-4o]}, {name: u, subject: user, amount: $50, window: 1d}]}]` + "\n", nil},
		"a user's more":               {user(`{name: u, amount: $50, window: 1d}`), []string{"warning limit u never refuses a call: limit all"}},
		"a user's less":               {user(`{name: u, amount: $4, window: 1d}`), nil},
		"a price per token":           {price("0.000005"), []string{"warning m1: its output price"}},
		"a price per 1k":              {price("0.01"), []string{"warning m1: its output price"}},
		"a price in micro-USD":        {price("250000"), []string{"warning m1: its output price"}},
		"a price per 1M":              {price("0.02"), nil},
	} {
		text := c.text
		if !strings.HasPrefix(text, "listen") {
			text = local + text
		}
		e := read(t, text)
		found := e.file(t.Context(), false)
		only(t, name, found, c.want...)
		for _, f := range found {
			if f.Level != diagnose.OK && f.Path == "" {
				t.Errorf("%s: got %+v, want a place", name, f)
			}
		}
	}
	e := read(t, local+provider+"orgs: [{id: acme, models: [none], limits: [{name: all, amount: $5, window: 1d}]}]\n")
	e.meet(t.Context(), needModels|needOrgs)
	const want = "error org acme may use none, which has no price: calls are refused" // without a place of the file
	if got := problems(t, e.findings); !slices.Equal(got, []string{want}) {
		t.Errorf("a running process: got %q, want %q", got, want)
	}
}
