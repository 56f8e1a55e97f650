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

// CheckPrices checks whether the models that orgs and keys list by name are served and
// priced, and how old the prices are.
func CheckPrices(cfg *config.Config, policy *guard.Policy, now time.Time) []diagnose.Finding {
	var out []diagnose.Finding
	said := map[string]bool{} // by area and model: what several keys may use is reported once
	report := func(f diagnose.Finding, model string) {
		id := f.Area + " " + model
		if !said[id] {
			said[id] = true
			out = append(out, f)
		}
	}
	look := func(where string, models, only []string) {
		for _, model := range models {
			if strings.Contains(model, "*") {
				continue
			}
			target, err := policy.Providers.Resolve(model, only)
			if err != nil {
				report(diagnose.Finding{
					Area: "models", Level: diagnose.Warning,
					What: fmt.Sprintf("%s may use %s, which no provider's pool serves", where, model),
					Fix:  "Add it to the models of a pool, or remove it from the list.",
				}, model)
				continue
			}
			var unknown *pricing.UnknownModelError
			_, err = policy.Catalogue.Lookup(target.Provider.ID, target.Model, now)
			if errors.As(err, &unknown) && policy.UnknownPrice == nil {
				report(diagnose.Finding{
					Area: "prices", Level: diagnose.Error,
					What: fmt.Sprintf("%s may use %s, which has no price: calls are refused", where, model),
					Fix:  "Add it under prices.",
				}, model)
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
			What: fmt.Sprintf("the oldest price was last checked %d days ago, on %s", age/(24*time.Hour),
				policy.Catalogue.AsOf().Format(time.DateOnly)),
			Fix: "Update llmguard, or run `llmguard prices update litellm`.",
		})
	}
	return out
}
