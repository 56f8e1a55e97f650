package app

import (
	"fmt"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/diagnose"
)

// CheckBounds names the orgs and users whose calls no enforced limit of cost, tokens or requests and
// no spend cap counts. The configuration is one with the orgs in force.
func CheckBounds(cfg *config.Config, policy *guard.Policy, now time.Time) []diagnose.Finding {
	var out []diagnose.Finding
	for i := range cfg.Orgs {
		o := &cfg.Orgs[i]
		in := policy.Orgs[o.ID]
		if in == nil {
			continue
		}
		b := policy.Bound(in, o.CallerKeys(now), now)
		if !b.None {
			continue
		}
		out = append(out, diagnose.Finding{
			Area: "limits", Level: diagnose.Warning, What: b.Warning(o.ID), Fix: guard.BoundFix(o.ID),
			File: cfg.Name, Path: fmt.Sprintf("orgs[%d].id", i),
		})
	}
	return out
}
