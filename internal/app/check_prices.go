package app

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/pricing"
)

// CheckPrices looks whether the models that orgs and keys are allowed by name lead
// anywhere and have a price, and how old prices are.
func CheckPrices(cfg *config.Config, policy *guard.Policy, now time.Time) []diagnose.Finding {
	var out []diagnose.Finding
	said := map[string]bool{}
	look := func(where string, models, only []string) {
		for _, model := range models {
			if strings.Contains(model, "*") || said[model] {
				continue
			}
			target, err := policy.Providers.Resolve(model, only)
			if err != nil {
				said[model] = true
				out = append(out, diagnose.Finding{
					Area: "models", Level: diagnose.Warning,
					What: fmt.Sprintf("%s may use %s, which no provider's pool takes", where, model),
					Fix:  "Add it to the models of a pool, or take it off the list.",
				})
				continue
			}
			var unknown *pricing.UnknownModelError
			_, err = policy.Catalogue.Lookup(target.Provider.ID, target.Model, now)
			if errors.As(err, &unknown) && policy.UnknownPrice == nil {
				said[model] = true
				out = append(out, diagnose.Finding{
					Area: "prices", Level: diagnose.Error,
					What: fmt.Sprintf("%s may use %s, which has no price: calls are refused", where, model),
					Fix:  "Add it under prices.",
				})
			}
		}
	}
	for _, o := range cfg.Orgs {
		look("org "+o.ID, o.Models, o.Providers)
		for _, u := range o.Users {
			for _, k := range u.Keys {
				look("key "+k.ID, k.Models, o.Providers)
			}
		}
	}
	if age := policy.Catalogue.Age(now); age > diagnose.OldPrices {
		out = append(out, diagnose.Finding{
			Area: "prices", Level: diagnose.Warning,
			What: fmt.Sprintf("the oldest price was checked %d days ago, on %s", age/(24*time.Hour),
				policy.Catalogue.AsOf().Format(time.DateOnly)),
			Fix: "Update llmguard, or run `llmguard prices update litellm`.",
		})
	}
	return out
}
