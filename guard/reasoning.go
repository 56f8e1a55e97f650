package guard

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/providers/dialect"
)

// visible lists the model families whose entire output is in the answer. Any other model
// may spend hidden tokens before it writes: its streams cannot be billed by what arrived,
// and are read to their end.
var visible = []string{
	"gpt-4", "chatgpt-4o", "gpt-3.5", "gpt-35", "text-embedding", "llama", "meta-llama/",
	"mistral-large", "mistral-small", "mistral-embed", "codestral", "ministral", "command",
	"gemini-embedding", "moonshotai/kimi-k2-instruct",
}

// hidesOutput reports whether the call may be billed for output that is not text in its
// stream: reasoning, speech, images, rejected predictions, answers that were not the best.
func (p *Plan) hidesOutput() bool {
	r := p.Request
	if r.Creation != nil || p.hides {
		return true
	}
	if p.sent.Endpoint.Traits().Messages {
		asks := p.sent.Thinks || len(p.sent.Fallbacks) > 0
		return asks || p.unseen || !p.Request.Prediction.IsZero() || thinksUnasked(p.Target.Model)
	}
	asked := cmp.Or(p.sent.ReasoningEffort, r.ReasoningEffort)
	effort := asked != "" && asked != "none"
	notText := p.speaks() || p.draws()
	return effort || notText || p.unseen || !r.Prediction.IsZero() || r.BestOf > r.N || hidesOutput(p.Target.Model)
}

// thinksUnasked reports whether a Claude model may think although the request does not ask for it: unknown ones may.
func thinksUnasked(model string) bool {
	return !slices.ContainsFunc(claudeAsked, func(family string) bool { return strings.Contains(model, family) })
}

// claudeAsked are the families of Claude models that only think when asked.
var claudeAsked = []string{"claude-3", "claude-opus-4", "claude-sonnet-4", "claude-haiku-4"}

// hidesOutput reports whether a model may generate output tokens that are not in its
// stream. It returns true for unknown models.
func hidesOutput(model string) bool {
	name := strings.ToLower(strings.TrimPrefix(model, "ft:"))
	if strings.Contains(name, "reason") || strings.Contains(name, "think") {
		return true
	}
	return !slices.ContainsFunc(visible, func(family string) bool { return strings.HasPrefix(name, family) })
}

// thoughts returns how many tokens of reasoning the request asks for in addition to its
// output limit. A budget within the limit is assumed to be part of it, as with most
// providers. A larger one cannot be: a provider that accepts such a request bills both.
func (e *estimator) thoughts(limit int64) int64 {
	var most int64
	for _, name := range e.plan.Request.Unknown {
		if effect, _ := e.plan.Target.Provider.Effect(name); effect != dialect.Thinks {
			continue
		}
		var value any
		if json.Unmarshal(e.plan.Request.Member(name), &value) == nil {
			most = max(most, budgetIn(name, value))
		}
	}
	if most <= limit {
		return 0
	}
	return most
}

// budgetIn returns the largest number of tokens that a member sets.
func budgetIn(name string, value any) (most int64) {
	switch v := value.(type) {
	case float64:
		if strings.Contains(name, "budget") || strings.Contains(name, "tokens") {
			return int64(min(max(v, 0), math.MaxInt32))
		}
	case map[string]any:
		for inner, one := range v {
			most = max(most, budgetIn(inner, one))
		}
	}
	return most
}
