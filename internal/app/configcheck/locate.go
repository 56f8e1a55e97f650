// Package configcheck reads a configuration and reports what it should not say: secrets that
// others can read, models without a price, orgs without a bound, pools that no call reaches, and
// what this machine lacks.
package configcheck

import (
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/diagnose"
)

// Locate fills in where in the file findings are that name a path of the configuration. Without
// the file they have no place.
func Locate(cfg *config.Config, list []diagnose.Finding) {
	places, err := config.LoadPlaces(cfg.Name)
	for i := range list {
		f := &list[i]
		if f.Path == "" || f.File != cfg.Name || f.Line > 0 || err != nil {
			continue
		}
		at := places.At(f.Path, f.What)
		f.Line, f.Column, f.Excerpt = at.Line, at.Column, at.Excerpt()
	}
}
