package tokenizer

import (
	"strings"
	"testing"
)

func TestEncodingFor(t *testing.T) {
	for enc, models := range map[Encoding]string{
		O200k: `gpt-4o gpt-4o-mini gpt-4o-2024-05-13 chatgpt-4o-latest gpt-4.1 gpt-4.1-nano-2025-04-14 gpt-4.5-preview
			gpt-5 gpt-5-mini gpt-5.1 gpt-5.4-nano gpt-5.5-pro gpt-5.6-sol gpt-6-astra gpt-6.1-sol o1 o1-mini o3 o3-mini o4-mini
			gpt-oss-120b openai/gpt-oss-20b openai/gpt-4o azure/openai/GPT-4o ft:gpt-4o-mini-2024-07-18:acme::abc ft:gpt-4.1
			claude-opus-5-5 gemini-3.8-flash meta-llama/Llama-3.3-70B-Instruct-Turbo something-new adamantium-1 curious`,
		CL100k: `gpt-4 gpt-4-0613 gpt-4-32k gpt-4-turbo gpt-4-1106-preview gpt-4-vision-preview gpt-3.5-turbo gpt-3.5-turbo-0125
			gpt-3.5-turbo-instruct gpt-35-turbo gpt-35-turbo-16k openai/gpt-4 ft:gpt-3.5-turbo:acme ft:gpt-4-0613:acme
			text-embedding-3-small text-embedding-3-large text-embedding-ada-002 davinci-002 babbage-002 ft:davinci-002:acme`,
		P50k: `text-davinci-003 text-davinci-002 text-davinci-edit-001 code-davinci-002 code-davinci-edit-001 code-cushman-001 davinci-codex cushman-codex`,
		R50k: `text-davinci-001 text-curie-001 text-babbage-001 text-ada-001 davinci curie babbage ada curie:ft-acme-2023 gpt2
			text-similarity-davinci-001 text-search-ada-doc-001 code-search-babbage-code-001`,
	} {
		for _, model := range strings.Fields(models) {
			if got := EncodingFor(model); got != enc {
				t.Errorf("EncodingFor(%q) = %v, want %v", model, got, enc)
			}
		}
	}
}

func TestMultiplier(t *testing.T) {
	for want, models := range map[[2]int]string{
		{1000, 1000}: "gpt-4o o3 gpt-6-sol text-embedding-3-small gpt-oss-120b chatgpt-4o-latest gpt-35-turbo davinci",
		{1160, 1500}: "claude-3-haiku-20240307 claude-3-5-sonnet-20241022 claude-opus-4-20250514 claude-sonnet-4-6 claude-haiku-4-5 anthropic/claude-opus-4.1 us.anthropic.claude-sonnet-4-5-20250929-v1:0 claude-2.1 anthropic.claude-v2",
		{1550, 1900}: "claude-opus-4-8 claude-opus-4.7 claude-sonnet-5 claude-sonnet-5-5 claude-fable-5-1 claude-haiku-5-5 claude-opus-4-8@20260501 claude-sonnet-latest",
		{1050, 1250}: "gemini-2.5-flash google/gemini-3.1-pro-preview gemma-3-27b",
		{1020, 1200}: "meta-llama/Llama-3.3-70B-Instruct-Turbo llama-3.1-8b-instant",
		{1150, 1600}: "mistral-large-2512 qwen/qwen3-32b grok-4.6 kimi-k3 something-new",
	} {
		for _, model := range strings.Fields(models) {
			mean, hold := Multiplier(model)
			if got := [2]int{mean, hold}; got != want {
				t.Errorf("Multiplier(%q) = %v, want %v", model, got, want)
			}
		}
	}
}

func TestEstimate(t *testing.T) {
	k := CountClasses(O200k, []byte("call 5551234567 or ٣٤"))
	if k.Digits != 12 || k.DigitGroups != 5 || k.NonASCII != 4 || k.Bytes != 23 {
		t.Fatalf("classes %+v", k)
	}
	for model, want := range map[string][2]int{
		"gpt-4o":           {k.Tokens, k.Tokens},
		"gemini-2.5-flash": {(k.Tokens+7)*1050/1000 + 1, (k.Tokens+7)*1250/1000 + 1},
	} {
		expected, hold := Estimate(model, k)
		if got := [2]int{expected, hold}; got != want {
			t.Errorf("Estimate(%q) = %v, want %v", model, got, want)
		}
	}
}
