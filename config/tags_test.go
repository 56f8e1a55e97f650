package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestTags checks the struct tags: every field has a name, every default is one of its choices, conditions and kinds exist, and
// no two fields of a section have the same name.
func TestTags(t *testing.T) {
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		seen := map[string]bool{}
		for _, f := range fieldsOf(typ) {
			if f.name == "" || seen[f.name] {
				t.Errorf("%s.%s: no name or a second one", typ, typ.Field(f.index).Name)
			}
			seen[f.name] = true
			if f.def != "" && len(f.enum) > 0 && wrongDefault(f) {
				t.Errorf("%s.%s: default %s is none of %v", typ, f.name, f.def, f.enum)
			}
			for _, c := range append(f.needs, f.excludes...) {
				name, value, valued := strings.Cut(c, "=")
				at := slices.IndexFunc(fieldsOf(typ), func(other field) bool { return other.name == name })
				if at < 0 || valued && len(fieldsOf(typ)[at].enum) > 0 && !slices.Contains(fieldsOf(typ)[at].enum, value) {
					t.Errorf("%s.%s depends on %s, which is no field or no value", typ, f.name, c)
				}
			}
			if form := f.kind; form != "" && kinds[form] == nil && form != "list" && form != "mapping" && form != "subject" {
				t.Errorf("%s.%s has the unknown kind %s", typ, f.name, form)
			}
			inner := f.typ
			if inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			if isSection(inner) {
				walk(inner)
			}
		}
	}
	walk(reflect.TypeFor[Config]())
	setDefaults(reflect.ValueOf(&Config{}).Elem())
}

func wrongDefault(f field) bool {
	for _, choice := range f.enum {
		if choice == f.def {
			return false
		}
	}
	return true
}
