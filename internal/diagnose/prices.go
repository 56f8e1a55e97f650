package diagnose

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/pricing"
)

// OldPrices is the age in llmguard_pricing_age_seconds from which prices that nobody has checked are suspect.
const OldPrices = 90 * 24 * time.Hour

// Prices looks whether the models that orgs and keys are allowed by name lead
// anywhere and have a price, and how old prices are.
func Prices(cfg *config.Config, policy *guard.Policy, now time.Time) []Finding {
	var out []Finding
	said := map[string]bool{}
	look := func(where string, models, only []string) {
		for _, model := range models {
			if strings.Contains(model, "*") || said[model] {
				continue
			}
			target, err := policy.Providers.Resolve(model, only)
			if err != nil {
				said[model] = true
				out = append(out, Finding{Area: "models", Level: Warning, What: fmt.Sprintf("%s may use %s, which no provider's pool takes", where, model), Fix: "Add it to the models of a pool, or take it off the list."})
				continue
			}
			var unknown *pricing.UnknownModelError
			_, err = policy.Catalogue.Lookup(target.Provider.ID, target.Model, now)
			if errors.As(err, &unknown) && policy.UnknownPrice == nil {
				said[model] = true
				out = append(out, Finding{Area: "prices", Level: Error, What: fmt.Sprintf("%s may use %s, which has no price: calls are refused", where, model), Fix: "Add it under prices."})
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
	if age := policy.Catalogue.Age(now); age > OldPrices {
		out = append(out, Finding{
			Area: "prices", Level: Warning, What: fmt.Sprintf("the oldest price was checked %d days ago, on %s", age/(24*time.Hour), policy.Catalogue.AsOf().Format(time.DateOnly)),
			Fix: "Update llmguard, or run `llmguard prices update litellm`.",
		})
	}
	return out
}
