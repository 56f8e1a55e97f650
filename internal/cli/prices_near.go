package cli

import (
	"strings"

	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
)

// didYouMean suggests model names similar to an unknown one, of one provider if given.
func didYouMean(model, provider string, list []pricing.Entry) string {
	var names []string
	for _, e := range list {
		if provider == "" || e.Provider == provider {
			names = append(append(names, e.Model), e.Names...)
		}
	}
	near := settings.Near(model, names)
	if len(near) == 0 {
		return "; list known models with `llmguard prices list`"
	}
	return "; did you mean " + strings.Join(near, ", ") + "?"
}
