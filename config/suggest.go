package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// didYouMean returns the end of an error about an unknown name: the most similar known name, or all
// of them if none is similar.
func didYouMean(name string, known []string) string {
	if len(known) == 0 {
		return ""
	}
	best, bestDist := "", 1+max(1, (len(name)+1)/3)
	for _, k := range known {
		d := Distance(strings.ToLower(name), k)
		if d >= bestDist && len(name) >= 3 && len(k) >= 3 && (strings.Contains(k, name) || strings.Contains(name, k)) {
			d = bestDist - 1
		}
		if d < bestDist {
			best, bestDist = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	if len(known) > 20 {
		return ""
	}
	return "; known: " + strings.Join(known, ", ")
}

// Distance returns the number of single-character edits and swaps of adjacent characters between
// two names.
func Distance(a, b string) int {
	prev2, prev := []int(nil), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], prev2[j-2]+1)
			}
		}
		prev2, prev = prev, row
	}
	return prev[len(b)]
}

// homes lists where in the file a field with this name exists, as "providers[].pools[]".
func homes(name string) []string {
	var out []string
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		for _, f := range settings.FieldsOf(t) {
			if f.Name == name {
				out = append(out, path)
			}
			inner, at := f.Type, join(path, f.Name)
			if inner.Kind() == reflect.Slice {
				inner, at = inner.Elem(), at+"[]"
			}
			if settings.IsSection(inner) {
				walk(inner, at)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	slices.Sort(out)
	return slices.Compact(out)
}

// unknownField returns the message for a name that a section does not have.
func unknownField(name string, known []string) string {
	hint := didYouMean(name, known)
	near := slices.ContainsFunc(known, func(k string) bool { return Distance(name, k) < 3 })
	if strings.HasPrefix(hint, "; did") && (near || len(homes(name)) == 0) {
		return fmt.Sprintf("unknown field %q%s", name, hint)
	}
	switch at := homes(name); {
	case len(at) == 1 && at[0] == "":
		return fmt.Sprintf("unknown field %q here; it belongs at the top level", name)
	case len(at) > 0 && len(at) < 8:
		return fmt.Sprintf("unknown field %q here; it belongs under %s", name, strings.Join(at, " or "))
	}
	return fmt.Sprintf("unknown field %q%s", name, hint)
}
