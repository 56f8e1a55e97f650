package config

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

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
	near, at := settings.DidYouMean(name, known), homes(name)
	alike := slices.ContainsFunc(known, func(k string) bool { return settings.Close(name, k) })
	switch {
	case near != "" && (len(at) == 0 || alike):
		return fmt.Sprintf("unknown field %q%s", name, near)
	case len(at) == 1 && at[0] == "":
		return fmt.Sprintf("unknown field %q here; it belongs at the top level", name)
	case len(at) > 0 && len(at) < 8:
		return fmt.Sprintf("unknown field %q here; it belongs under %s", name, strings.Join(at, " or "))
	}
	const all = "; `llmguard config schema` lists all fields"
	return fmt.Sprintf("unknown field %q%s", name, cmp.Or(settings.Hint(name, known), all))
}
