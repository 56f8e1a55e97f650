package app

import (
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/diagnose"
)

// LocateFindings fills in where in the file findings are that name a path of the configuration. Without
// the file they have no place.
func LocateFindings(cfg *config.Config, list []diagnose.Finding) {
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
