package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/pricing"
)

// didYouMean suggests model names similar to an unknown one, of one provider if given.
func didYouMean(model, provider string, list []pricing.Entry) string {
	type candidate struct {
		name  string
		score int
	}
	var near []candidate
	for _, e := range list {
		if provider != "" && e.Provider != provider {
			continue
		}
		for _, name := range append([]string{e.Model}, e.Names...) {
			if score := likeness(model, name); score >= 400 {
				near = append(near, candidate{name, score})
			}
		}
	}
	slices.SortFunc(near, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.name, b.name))
	})
	near = slices.Compact(near)
	if len(near) == 0 {
		return "; list known models with `llmguard prices list`"
	}
	var names []string
	for _, c := range near[:min(3, len(near))] {
		names = append(names, c.name)
	}
	return "; did you mean " + strings.Join(names, ", ") + "?"
}

// likeness is 1000 for names that differ only in case and punctuation, and 0 for names without
// a common pair of neighboring characters.
func likeness(a, b string) int {
	pairs := map[string]int{}
	a, b = letters(a), letters(b)
	if len(a) < 2 || len(b) < 2 {
		return 0
	}
	for i := range len(a) - 1 {
		pairs[a[i:i+2]]++
	}
	common := 0
	for i := range len(b) - 1 {
		if pair := b[i : i+2]; pairs[pair] > 0 {
			pairs[pair]--
			common++
		}
	}
	return 2000 * common / (len(a) + len(b) - 2)
}

// letters drops characters that people write differently, such as the dot in 4.5.
func letters(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("-._/: ", r) {
			return -1
		}
		return r
	}, strings.ToLower(name))
}
