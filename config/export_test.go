package config

import (
	"reflect"
	"slices"
	"strings"
)

// RestartOnly lists the fields that a running process does not reload.
func RestartOnly() []string {
	var out []string
	var walk func(t reflect.Type, path string, fixed bool)
	walk = func(t reflect.Type, path string, fixed bool) {
		for _, f := range fieldsOf(t) {
			at, stays := join(path, f.name), fixed || f.restart
			switch {
			case isSection(f.typ):
				walk(f.typ, at, stays)
			case stays:
				out = append(out, at)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "", false)
	slices.SortFunc(out, strings.Compare)
	return out
}
