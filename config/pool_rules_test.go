package config_test

import (
	"slices"
	"testing"
)

// A list of models that is left out means all; an empty one is a mistake and not
// all of them.
func TestPoolModels(t *testing.T) {
	const provider = "providers:\n  - {id: openai, base_url: \"https://a.example/v1\", pools: [{id: p"
	cfg := read(t, provider+"}]}")
	if got := cfg.Providers[0].Pools[0].Models; !slices.Equal(got, []string{"*"}) {
		t.Errorf("left out: got %q, want all", got)
	}
	checkWrong(t, []wrongFile{
		{
			"empty", provider + ", «models»: []}]}", "providers[0].pools[0].models",
			"is empty; leave it out for all, or name what is allowed",
		},
	})
}
