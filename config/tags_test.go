package config

import (
	"reflect"
	"testing"
)

// TestTags checks the struct tags: every field has a name, every default is one of its choices, and
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
