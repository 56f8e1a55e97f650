package config_test

import (
	"slices"
	"testing"
)

// TestPoolModels: an omitted list of models means all; an empty one is a mistake, not all models.
func TestPoolModels(t *testing.T) {
	const provider = "providers:\n  - {id: openai, base_url: \"https://a.example/v1\", pools: [{id: p"
	cfg := read(t, provider+"}]}")
	if got := cfg.Providers[0].Pools[0].Models; !slices.Equal(got, []string{"*"}) {
		t.Errorf("left out: got %q, want all", got)
	}
	checkWrong(t, []wrongFile{
		{
			"empty", provider + ", «models»: []}]}", "providers[0].pools[0].models",
			"is empty; remove it to allow all, or list what is allowed",
		},
	})
}
