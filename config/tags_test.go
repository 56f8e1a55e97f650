package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// TestTags checks the struct tags: every field has a name, every default is one of its choices, conditions and kinds exist, and
// no two fields of a section have the same name.
func TestTags(t *testing.T) {
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		seen := map[string]bool{}
		for _, f := range fieldsOf(typ) {
			if f.Name == "" || seen[f.Name] {
				t.Errorf("%s.%s: no name or a second one", typ, typ.Field(f.Index).Name)
			}
			seen[f.Name] = true
			if f.Default != "" && len(f.Enum) > 0 && wrongDefault(f) {
				t.Errorf("%s.%s: default %s is none of %v", typ, f.Name, f.Default, f.Enum)
			}
			for _, c := range append(f.needs, f.excludes...) {
				name, value, valued := strings.Cut(c, "=")
				at := slices.IndexFunc(fieldsOf(typ), func(other field) bool { return other.Name == name })
				if at < 0 || valued && len(fieldsOf(typ)[at].Enum) > 0 && !slices.Contains(fieldsOf(typ)[at].Enum, value) {
					t.Errorf("%s.%s depends on %s, which is no field or no value", typ, f.Name, c)
				}
			}
			if form := f.Kind; form != "" && kinds[form] == nil && form != "list" && form != "mapping" && form != "subject" {
				t.Errorf("%s.%s has the unknown kind %s", typ, f.Name, form)
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
