package config

import (
	"reflect"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// RestartOnly lists the fields that a running process does not reload.
func RestartOnly() []string {
	var out []string
	var walk func(t reflect.Type, path string, fixed bool)
	walk = func(t reflect.Type, path string, fixed bool) {
		for _, f := range settings.FieldsOf(t) {
			at, stays := join(path, f.Name), fixed || f.Restart
			switch {
			case settings.IsSection(f.Type):
				walk(f.Type, at, stays)
			case stays:
				out = append(out, at)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "", false)
	slices.SortFunc(out, strings.Compare)
	return out
}
