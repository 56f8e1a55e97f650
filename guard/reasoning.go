package guard

import "strings"

// visible lists the model families whose output is all in the answer. Every
// other model may spend tokens nobody sees before it writes: its streams
// cannot be billed by what came through, and are read to their end.
var visible = []string{
	"gpt-4", "chatgpt-4o", "gpt-3.5", "gpt-35", "text-embedding", "llama", "meta-llama/",
	"mistral-large", "mistral-small", "mistral-embed", "codestral", "ministral", "command",
	"gemini-embedding", "moonshotai/kimi-k2-instruct",
}

// hidesOutput reports whether the call may be billed for output that does not
// show as text in its stream: reasoning, speech, pictures, rejected predictions, answers
// that were not the best.
func (p *Plan) hidesOutput() bool {
	r := p.Request
	if r.Creation != nil {
		return true
	}
	effort := r.ReasoningEffort != "" && r.ReasoningEffort != "none"
	notText := p.speaks() || p.draws()
	return effort || notText || p.unseen || !r.Prediction.IsZero() || r.BestOf > r.N || hidesOutput(p.Target.Model)
}

// hidesOutput reports whether a model may produce output tokens that do not
// show in its stream. Unknown models do.
func hidesOutput(model string) bool {
	name := strings.ToLower(strings.TrimPrefix(model, "ft:"))
	if strings.Contains(name, "reason") || strings.Contains(name, "think") {
		return true
	}
	for _, family := range visible {
		if strings.HasPrefix(name, family) {
			return false
		}
	}
	return true
}
