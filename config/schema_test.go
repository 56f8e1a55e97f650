package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

const aHash = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// schemaField is a scalar field of the file, as described by the schema.
type schemaField struct {
	name    string // providers.pools.rpm
	def     any    // default, nil for none
	choices []string
}

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

// part is a description in the schema.
type part struct {
	Ref        string          `json:"$ref"`
	Items      *part           `json:"items"`
	Default    any             `json:"default"`
	AnyOf      []part          `json:"anyOf"`
	Enum       []string        `json:"enum"`
	Properties map[string]part `json:"properties"`
	Defs       map[string]part `json:"$defs"`
}

// eachField calls fn for every scalar field, with a function that builds a file with a value of the
// field; nil leaves the field out.
func eachField(t *testing.T, fn func(f schemaField, file func(value any) string)) {
	t.Helper()
	var root part
	decoder := json.NewDecoder(bytes.NewReader(Schema()))
	decoder.UseNumber()
	err := decoder.Decode(&root)
	if err != nil {
		t.Fatal(err)
	}
	var walk func(at part, path string, wrap func(map[string]any) map[string]any)
	walk = func(at part, path string, wrap func(map[string]any) map[string]any) {
		for name, p := range at.Properties {
			ref, isList := p.Ref, false
			if p.Items != nil && p.Items.Ref != "" {
				ref, isList = p.Items.Ref, true
			}
			inner := strings.TrimPrefix(path+"."+name, ".")
			switch {
			case strings.HasSuffix(inner, "users.limits.subject"), strings.HasSuffix(inner, "plans.limits.subject"),
				strings.HasSuffix(inner, "groups.limits.subject"): // user or group there, when left out
				continue
			case ref == "":
				fn(newSchemaField(inner, p), func(value any) string { return fileWith(t, wrap, name, value) })
				continue
			}
			def := strings.TrimPrefix(ref, "#/$defs/")
			walk(root.Defs[def], inner, func(fields map[string]any) map[string]any {
				return wrap(map[string]any{name: section(def, fields, isList)})
			})
		}
	}
	walk(root, "", func(fields map[string]any) map[string]any { return fields })
}

func newSchemaField(name string, p part) schemaField {
	f := schemaField{name: name, def: p.Default}
	for _, one := range p.AnyOf {
		f.choices = append(f.choices, one.Enum...)
	}
	return f
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

// TestDefaultIsWhatLeftOutMeans: an omitted field has the default in the schema, so writing the
// default changes nothing.
func TestDefaultIsWhatLeftOutMeans(t *testing.T) {
	n := 0
	eachField(t, func(f schemaField, file func(any) string) {
		if f.def == nil {
			return
		}
		n++
		without, err := Parse("f.yaml", []byte(file(nil)), getenv)
		if err != nil {
			t.Errorf("%s: left out: %v", f.name, err)
			return
		}
		with, err := Parse("f.yaml", []byte(file(f.def)), getenv)
		if err != nil {
			t.Errorf("%s: %v: %v", f.name, f.def, err)
			return
		}
		with.Sum = without.Sum
		if !reflect.DeepEqual(with, without) {
			t.Errorf("%s: got %+v with the default %v, want %+v", f.name, with, f.def, without)
		}
	})
	if n < 60 {
		t.Errorf("got %d fields with a default, want 60 and more", n)
	}
}

// TestChoicesAreThoseOfTheSchema: a field accepts the choices in the schema; others are refused
// with the list.
func TestChoicesAreThoseOfTheSchema(t *testing.T) {
	n := 0
	eachField(t, func(f schemaField, file func(any) string) {
		if len(f.choices) == 0 {
			return
		}
		n++
		for _, choice := range f.choices {
			_, err := Parse("f.yaml", []byte(file(choice)), getenv)
			if err != nil && strings.Contains(err.Error(), "expected one of") {
				t.Errorf("%s: %s: got %v, want no error about the choice", f.name, choice, err)
			}
		}
		_, err := Parse("f.yaml", []byte(file("zzz")), getenv)
		want := fmt.Sprintf(`expected one of %s, got "zzz"`, strings.Join(f.choices, ", "))
		if len(f.choices) == 1 {
			want = `"zzz" is not supported; the only choice is ` + f.choices[0]
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", f.name, err, want)
		}
	})
	if n < 20 {
		t.Errorf("got %d fields with choices, want 20 and more", n)
	}
}

// TestEveryFieldMayComeFromTheEnvironment: a missing variable is reported with the path of its
// field.
func TestEveryFieldMayComeFromTheEnvironment(t *testing.T) {
	eachField(t, func(f schemaField, file func(any) string) {
		if f.def == nil {
			return
		}
		_, err := Parse("f.yaml", []byte(file("${NOT_SET}")), getenv)
		if err == nil || !strings.Contains(err.Error(), "the environment variable NOT_SET is not set") {
			t.Errorf("%s: got %v, want that NOT_SET is not set", f.name, err)
		}
		_, err = Parse("f.yaml", []byte(file(fmt.Sprintf("${NOT_SET:-%v}", f.def))), getenv)
		if err != nil {
			t.Errorf("%s: got %v, want its default from ${NOT_SET:-%v}", f.name, err, f.def)
		}
	})
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
