package guard

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/llmguard/llmguard/providers"
)

// thoughts is how many tokens of reasoning the request asks for besides its output limit.
// A budget within the limit is taken to count in it, as most providers do. One beyond the
// limit cannot: who takes such a request bills both.
func (p *Plan) thoughts(limit int64) int64 {
	var most int64
	for _, name := range p.Request.Unknown {
		if effect, _ := p.Target.Provider.Effect(name); effect != providers.Thinks {
			continue
		}
		var value any
		if json.Unmarshal(p.Request.Member(name), &value) == nil {
			most = max(most, budgetIn(name, value))
		}
	}
	if most <= limit {
		return 0
	}
	return most
}

// budgetIn is the greatest number of tokens that a member names.
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
