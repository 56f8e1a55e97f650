package docs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// TestConfigSchema compares config/schema.json with the structs of package
// config; go generate writes it.
func TestConfigSchema(t *testing.T) {
	path := filepath.Join(root, "config", "schema.json")
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(newReference(t).schema()); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(out.Bytes(), []byte(read(t, path))) {
		t.Errorf("%s is not what package config says; run make generate", path)
	}
}

// object is a JSON object. Its members are written sorted by name.
type object = map[string]any

// fromEnv matches what every value except a name may be instead: text with an environment
// variable.
const fromEnv = `\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}`

// schema returns the JSON Schema of the file.
func (r *reference) schema() object {
	defs := object{}
	top := r.schemaOf("Config", defs)
	top["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	top["title"] = "llmguard configuration"
	top["patternProperties"] = object{"^x-": object{"description": "A place for YAML anchors."}}
	top["$defs"] = defs
	return top
}

// schemaOf returns the schema of one struct; those inside it are added to defs.
func (r *reference) schemaOf(name string, defs object) object {
	fields := fieldsOf(r.structs[name])
	properties, required := object{}, []string{}
	for i, f := range fields {
		p := r.valueSchema(f, defs)
		if text := f.describe(fields, i, r.texts[f.elem]); text != "" {
			p["description"] = text
		}
		if strings.HasSuffix(f.tag.Get("yaml"), ",required") {
			required = append(required, f.name)
		}
		properties[f.name] = p
	}
	out := object{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["type"], out["required"] = "object", required
	}
	return out
}

// describe returns a field's comment in plain words, or its type's comment, with its range.
func (f field) describe(all []field, i int, typed string) string {
	text := named(f.text, all)
	if bounds := f.bounds(); bounds != "" {
		text += " Range: " + bounds + "."
	}
	for k := i - 1; text == "" && k >= 0; k-- {
		if word(f.goName).MatchString(all[k].text) {
			text = named(all[k].text, all)
		}
	}
	if text == "" {
		text = predicate(named(typed, nil), f.elem)
	}
	if f.tag.Get("reload") == "restart" {
		text += " A change needs a restart."
	}
	return strings.TrimSpace(strings.NewReplacer("`", "", "&lt;", "<", `\*`, "*").Replace(text))
}

func (r *reference) valueSchema(f field, defs object) object {
	one := r.elementSchema(f, defs)
	switch {
	case f.list && f.elem != "Raw":
		out := object{"type": []string{"array", "null"}, "items": one}
		if low, high := f.ends(); low+high != "" {
			f.number(out, "minItems", low)
			f.number(out, "maxItems", high)
		}
		if f.tag.Get("kind") == "labels" {
			word := object{"type": "string", "pattern": "(^agents$)|" + fromEnv}
			out["items"] = object{"anyOf": []any{word, one}}
			return object{"anyOf": []any{word, out}}
		}
		return out
	case f.table:
		return object{"type": []string{"object", "null"}, "additionalProperties": one}
	}
	if def := f.tag.Get("default"); def != "" {
		one["default"] = def
		var plain any
		if json.Unmarshal([]byte(def), &plain) == nil && (f.elem == "bool" || f.elem == "int" || f.elem == "int64") {
			one["default"] = plain
		}
	}
	return one
}

// elementSchema returns the schema of one value.
func (r *reference) elementSchema(f field, defs object) object {
	text := func(pattern string) object {
		return object{"type": "string", "pattern": "(^" + pattern + "$)|" + fromEnv}
	}
	either := func(a ...any) object { return object{"anyOf": a} }
	const number = `[0-9][0-9_]*[kM]?`
	const money = `(\$ ?[0-9][0-9_,]*(\.[0-9]+)?|[0-9][0-9_,]*(\.[0-9]+)? ?USD)`
	const duration = `([0-9]+d)?([0-9.]+(ns|us|µs|ms|s|m|h))*`
	if choices := f.choices(); choices != nil {
		return either(object{"enum": choices}, object{"type": "string", "pattern": fromEnv})
	}
	least := 1
	if f.tag.Get("min") == "0" {
		least = 0
	}
	switch f.elem {
	case "Raw":
		if f.tag.Get("kind") == "list" {
			return object{"type": []string{"array", "null"}, "items": object{"type": "object"}}
		}
		return object{"type": []string{"object", "null"}}
	case "string":
		if f.tag.Get("kind") == "id" {
			return text(`[a-z0-9_-]{1,64}`)
		}
		if f.tag.Get("kind") == "subject" {
			name := object{"type": "string", "minLength": 1}
			return either(name, object{"type": "array", "items": name, "minItems": 1})
		}
		return object{"type": "string", "minLength": least}
	case "Secret", "Prefix", "Time":
		return object{"type": "string", "minLength": 1}
	case "bool":
		return either(object{"type": "boolean"}, object{"type": "string", "pattern": fromEnv})
	case "int", "int64":
		n := object{"type": "integer", "minimum": least}
		_, high := f.ends()
		f.number(n, "maximum", high)
		return either(n, text(number))
	case "Size":
		return either(object{"type": "integer", "minimum": least}, text(`[0-9]+ ?([KMG]i?B|B)?`))
	case "Percent":
		return text(`[0-9]{1,3} ?%`)
	case "PercentOrOff":
		return text(`([0-9]{1,3} ?%|off)`)
	case "Duration":
		return text(duration)
	case "Quantity":
		return either(object{"type": "integer", "minimum": 1}, text(`(`+number+`|`+money+`)`))
	case "Rate":
		return text(`(` + number + `|` + money + `) ?/ ?([0-9.]*[smhd])+`)
	}
	if _, done := defs[f.elem]; !done {
		defs[f.elem] = object{} // before its own fields, in case the type is recursive
		defs[f.elem] = r.schemaOf(f.elem, defs)
	}
	return object{"$ref": "#/$defs/" + f.elem}
}

// number sets a member to one end of the field's range.
func (f field) number(to object, member, end string) {
	if n, err := settings.ParseCount(end); err == nil {
		to[member] = n
	}
}

// TestSchemaAgrees checks valid files, and some whose errors a schema can detect, against the
// schema, as an editor does.
func TestSchemaAgrees(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(config.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	check := func(text string) error {
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			return err
		}
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			return err
		}
		return s.Validate(v)
	}
	right := []string{read(t, filepath.Join(root, "config", "testdata", "full.yaml"))}
	for _, path := range files(t, ".md") {
		for _, m := range fence.FindAllStringSubmatch(read(t, path), -1) {
			if m[1] == "yaml" && strings.Contains(m[2], "providers:\n") && strings.Contains(m[2], "orgs:\n") {
				right = append(right, m[2])
			}
		}
	}
	for _, text := range right {
		if err := check(text); err != nil {
			t.Errorf("the schema refuses what is right: %v\n%s", err, text)
		}
	}
	if len(right) < 4 {
		t.Errorf("only %d files that are right", len(right))
	}
	const good = "providers: [{id: openai, base_url: \"https://a.example/v1\"}]\norgs: [{id: acme}]\n"
	for _, more := range []string{"", "labels: agents\n", "labels: [agents, {name: a, default: b}]\n"} {
		if err := check(good + more); err != nil {
			t.Error(err)
		}
	}
	for what, text := range map[string]string{
		"an unknown field":     good + "listn: 127.0.0.1:1\n",
		"nothing required":     "listen: 127.0.0.1:1\n",
		"a wrong choice":       good + "kill_switch: on\n",
		"a wrong type":         good + "listen: [a]\n",
		"a duration as number": good + "timeouts: {idle: 5}\n",
		"an id in capitals":    strings.Replace(good, "id: acme", "id: ACME", 1),
		"an inner field":       strings.Replace(good, "id: acme", "id: acme, limit: []", 1),
		"a count above":        good + "queue: {org_share: 101}\n",
		"another word":         good + "labels: agent\n",
		"too many labels":      good + "labels: [" + strings.Repeat("{name: a, default: b},", 9) + "]\n",
		"a count of zero":      good + "queue: {max_attempts: 0}\n",
	} {
		if check(text) == nil {
			t.Errorf("the schema takes %s", what)
		}
	}
}
