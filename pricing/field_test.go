package pricing

import "testing"

// TestNamesOfTheField: model names that programs still use have prices, at the provider that serves
// them and at one that the catalogue does not list.
func TestNamesOfTheField(t *testing.T) {
	c, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for provider, models := range map[string]map[string]string{ // by name: USD per 1M tokens of input, of output
		"openai": {
			"gpt-4": "30 60", "gpt-4-0613": "30 60", "gpt-4-32k": "60 120", "gpt-4-turbo": "10 30", "gpt-4-turbo-2024-04-09": "10 30",
			"gpt-4-turbo-preview": "10 30", "gpt-3.5-turbo": "0.5 1.5", "gpt-3.5-turbo-1106": "1 2", "gpt-3.5-turbo-16k": "3 4",
			"gpt-3.5-turbo-instruct": "1.5 2", "text-embedding-ada-002": "0.1 0", "chatgpt-4o-latest": "5 15", "o1": "15 60",
			"o1-mini": "1.1 4.4", "o1-mini-2024-09-12": "1.1 4.4", "o1-preview": "15 60", "o1-pro": "150 600",
		},
		"azure": {"gpt-35-turbo": "0.5 1.5", "gpt-4": "30 60"},
		"anthropic": {
			"claude-3-5-sonnet-20241022": "3 15", "claude-3-5-sonnet-latest": "3 15", "claude-3-7-sonnet-20250219": "3 15",
			"claude-3-5-haiku-latest": "0.8 4", "claude-3-haiku-20240307": "0.25 1.25", "claude-3-opus-latest": "15 75",
			"claude-sonnet-4-20250514": "3 15", "claude-opus-4-0": "15 75",
		},
		"bedrock": {
			"anthropic.claude-3-5-sonnet-20241022-v2:0": "3 15", "us.anthropic.claude-3-5-sonnet-20241022-v2:0": "3 15",
			"eu.anthropic.claude-3-haiku-20240307-v1:0": "0.25 1.25", "apac.anthropic.claude-3-7-sonnet-20250219-v1:0": "3 15",
			"global.anthropic.claude-sonnet-4-5-20250929-v1:0": "3 15", "us.anthropic.claude-sonnet-4-5-20250929-v1:0": "3.3 16.5",
		},
		"vertex": {"claude-3-5-sonnet@20240620": "3 15", "claude-3-5-sonnet-v2@20241022": "3 15", "claude-3-opus@20240229": "15 75"},
		"google": {
			"gemini-2.0-flash": "0.1 0.4", "models/gemini-2.0-flash": "0.1 0.4", "gemini-2.0-flash-001": "0.1 0.4", "gemini-2.0-flash-lite": "0.075 0.3",
			"gemini-1.5-pro": "1.25 5", "gemini-1.5-pro-002": "1.25 5", "gemini-1.5-flash": "0.075 0.3", "gemini-1.5-flash-8b": "0.0375 0.15",
		},
		"mistral": {
			"mistral-large-latest": "0.5 1.5", "mistral-large-2411": "2 6", "mistral-small-latest": "0.15 0.6", "mistral-medium-latest": "1.5 7.5",
			"open-mistral-nemo": "0.15 0.15",
		},
	} {
		for model, want := range models {
			p, err := c.Lookup(provider, model, date("2026-11-23T00:00:00Z"))
			if err != nil {
				t.Errorf("%s: %v", model, err)
				continue
			}
			if got := perMillion(t, p, Usage{Input: 1000}) + " " + perMillion(t, p, Usage{Output: 1000}); got != want {
				t.Errorf("%s %s costs %s, want %s", provider, model, got, want)
			}
		}
	}
	for _, model := range []string{"gpt-4-unknown", "us-gov.anthropic.claude-3-5-sonnet-20240620-v1:0", "claude-3-9-sonnet-20990101"} {
		if p, err := c.Lookup("openai", model, date("2026-11-23T00:00:00Z")); err == nil {
			t.Errorf("%s has the price of %s", model, p.Model)
		}
	}
}

// perMillion returns the price of a million tokens in USD.
func perMillion(t *testing.T, p *Price, thousand Usage) string {
	t.Helper()
	n, err := p.Charge(thousand, Terms{})
	if err != nil {
		t.Fatal(err)
	}
	return formatDecimal(int64(n), 6)
}
