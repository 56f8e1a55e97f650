package finance

import (
	"strings"

	"github.com/llmguard/llmguard/providers"
)

// vendors are companies by the domain of their API.
var vendors = [][2]string{
	{"openai.com", "OpenAI"},
	{"azure.com", "Microsoft"},
	{"azure.us", "Microsoft"},
	{"mistral.ai", "Mistral AI"},
	{"googleapis.com", "Google"},
	{"anthropic.com", "Anthropic"},
	{"amazonaws.com", "Amazon Web Services"},
	{"groq.com", "Groq"},
	{"together.xyz", "Together AI"},
	{"together.ai", "Together AI"},
	{"fireworks.ai", "Fireworks AI"},
	{"openrouter.ai", "OpenRouter"},
	{"deepseek.com", "DeepSeek"},
	{"x.ai", "xAI"},
	{"perplexity.ai", "Perplexity"},
	{"cohere.com", "Cohere"},
	{"cohere.ai", "Cohere"},
	{"cerebras.ai", "Cerebras"},
	{"deepinfra.com", "DeepInfra"},
}

// Vendor returns the name of the company that serves a provider, by the host of its API. Unlisted
// ones, such as servers of your own, have the provider's id.
func Vendor(p *providers.Provider) string {
	if p.BaseURL != nil {
		host := p.BaseURL.Hostname()
		for _, v := range vendors {
			if host == v[0] || strings.HasSuffix(host, "."+v[0]) {
				return v[1]
			}
		}
	}
	return p.ID
}
