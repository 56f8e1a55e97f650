package config

import (
	"reflect"
	"testing"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// TestTags checks the struct tags: every field has a name, every default is one of its choices, and
// no two fields of a section have the same name.
func TestTags(t *testing.T) {
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		seen := map[string]bool{}
		for _, f := range settings.FieldsOf(typ) {
			if f.Name == "" || seen[f.Name] {
				t.Errorf("%s.%s: no name or a second one", typ, typ.Field(f.Index).Name)
			}
			seen[f.Name] = true
			if f.Default != "" && len(f.Enum) > 0 && wrongDefault(f) {
				t.Errorf("%s.%s: default %s is none of %v", typ, f.Name, f.Default, f.Enum)
			}
			inner := f.Type
			if inner.Kind() == reflect.Slice {
				inner = inner.Elem()
			}
			if settings.IsSection(inner) {
				walk(inner)
			}
		}
	}
	walk(reflect.TypeFor[Config]())
	setDefaults(reflect.ValueOf(&Config{}).Elem())
}

func wrongDefault(f field) bool {
	for _, choice := range f.Enum {
		if choice == f.Default {
			return false
		}
	}
	return true
}
