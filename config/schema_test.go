package config

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

const aHash = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// around are the required fields of sections.
var around = map[string]map[string]any{
	"Brake":        {"name": "b", "by": "user", "when": map[string]any{"calls": map[string]any{"more_than": 5}}},
	"BrakeCalls":   {"more_than": 5},
	"BrakeRepeats": {"more_than": 5},
	"Label":        {"name": "a", "from": []string{"key"}},
	"Org":          {"id": "acme"},
	"User":         {"id": "ann"},
	"Key":          {"id": "k", "hash": aHash},
	"Group":        {"id": "g"},
	"Plan":         {"id": "p"},
	"AdminKey":     {"id": "k", "hash": aHash},
	"Limit":        {"name": "l", "amount": "$5", "window": "1h"},
	"RequestLimit": {"name": "l", "subject": "ip", "amount": 5, "window": "1h"},
	"SpendCap":     {"name": "l", "amount": "$5", "window": "1h"},
	"Provider":     {"id": "openai", "base_url": "https://a.example/v1"},
	"Pool":         {"id": "p"},
	"Alerts":       {"url": "https://a.example/x"},
	"Redis":        {"addresses": []string{"a:1"}},
	"RedisTLS":     {"enabled": true},
}

// eachField calls fn for every scalar field, with a function that builds a file with a value of the
// field; nil leaves the field out.
func eachField(t *testing.T, fn func(f field, path string, file func(value any) string)) {
	t.Helper()
	var walk func(at reflect.Type, path string, wrap func(map[string]any) map[string]any)
	walk = func(at reflect.Type, path string, wrap func(map[string]any) map[string]any) {
		for _, f := range fieldsOf(at) {
			inner, of := strings.TrimPrefix(path+"."+f.Name, "."), f.Type
			list := of.Kind() == reflect.Slice
			if list {
				of = of.Elem()
			}
			switch {
			case strings.HasSuffix(inner, "users.limits.subject"), strings.HasSuffix(inner, "plans.limits.subject"),
				strings.HasSuffix(inner, "groups.limits.subject"): // user or group there, when left out
			case !settings.IsSection(of):
				fn(f, inner, func(value any) string { return fileWith(t, wrap, f.Name, value) })
			default:
				walk(of, inner, func(fields map[string]any) map[string]any {
					return wrap(map[string]any{f.Name: section(of.Name(), fields, list)})
				})
			}
		}
	}
	walk(reflect.TypeFor[Config](), "", func(fields map[string]any) map[string]any { return fields })
}

// section returns a section with its required fields and the given ones.
func section(def string, fields map[string]any, isList bool) any {
	out := map[string]any{}
	for name, value := range around[def] {
		out[name] = value
	}
	for name, value := range fields {
		out[name] = value
	}
	if isList {
		return []any{out}
	}
	return out
}

// fileWith builds a file as JSON, which is also YAML.
func fileWith(t *testing.T, wrap func(map[string]any) map[string]any, name string, value any) string {
	t.Helper()
	fields := map[string]any{}
	if value != nil {
		fields[name] = value
	}
	if name == "grow_step" {
		fields["hold"] = "grow"
	}
	top := wrap(fields)
	for _, required := range []string{"providers", "orgs"} {
		if top[required] == nil {
			def := map[string]string{"providers": "Provider", "orgs": "Org"}[required]
			top[required] = section(def, nil, true)
		}
	}
	text, err := json.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDefaultsAndChoices: an omitted field has its default, so writing the default changes nothing. A field accepts its
// choices; others are refused with the list. Every field may come from the environment.
func TestDefaultsAndChoices(t *testing.T) {
	defaults, choices := 0, 0
	parse := func(text string) (*Config, error) { return Parse("f.yaml", []byte(text), getenv) }
	eachField(t, func(f field, path string, file func(any) string) {
		if f.Default != "" {
			defaults++
			without, err := parse(file(nil))
			if err != nil {
				t.Errorf("%s: left out: %v", path, err)
				return
			}
			for _, text := range []string{f.Default, "${NOT_SET:-" + f.Default + "}"} {
				with, err := parse(file(text))
				if err != nil {
					t.Errorf("%s: %s: %v", path, text, err)
					continue
				}
				with.Sum = without.Sum
				if !reflect.DeepEqual(with, without) {
					t.Errorf("%s: got %+v with %s, want %+v", path, with, text, without)
				}
			}
			if _, err := parse(file("${NOT_SET}")); err == nil || !strings.Contains(err.Error(), "the environment variable NOT_SET is not set") {
				t.Errorf("%s: got %v, want that NOT_SET is not set", path, err)
			}
		}
		if len(f.Enum) == 0 {
			return
		}
		choices++
		for _, choice := range f.Enum {
			if _, err := parse(file(choice)); err != nil && strings.Contains(err.Error(), "expected one of") {
				t.Errorf("%s: %s: got %v, want no error about the choice", path, choice, err)
			}
		}
		want := fmt.Sprintf(`expected one of %s, got "zzz"`, strings.Join(f.Enum, ", "))
		if len(f.Enum) == 1 {
			want = `"zzz" is not supported; the only choice is ` + f.Enum[0]
		}
		if _, err := parse(file("zzz")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	})
	if defaults < 60 || choices < 20 {
		t.Errorf("got %d fields with a default and %d with choices, want 60 and 20 and more", defaults, choices)
	}
}

// TestSchemaHead: the schema is valid JSON that names its dialect, and refuses unknown fields.
func TestSchemaHead(t *testing.T) {
	var head struct {
		Schema     string `json:"$schema"`
		Additional bool   `json:"additionalProperties"`
		Required   []string
	}
	err := json.Unmarshal(Schema(), &head)
	if err != nil {
		t.Fatal(err)
	}
	if head.Schema != "https://json-schema.org/draft/2020-12/schema" || head.Additional ||
		fmt.Sprint(head.Required) != "[providers orgs]" {
		t.Errorf("got %+v", head)
	}
}
