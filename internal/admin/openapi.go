package admin

import (
	"cmp"
	stdjson "encoding/json"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/wire"
)

// document returns the OpenAPI 3.1 document of the routes. It is generated from the route table
// and the Go types, so that it cannot disagree with them.
func document(routes []Operation) ([]byte, error) {
	s := schemas{}
	paths := map[string]map[string]any{}
	for _, r := range routes {
		if paths[prefix+r.Path] == nil {
			paths[prefix+r.Path] = map[string]any{}
		}
		paths[prefix+r.Path][strings.ToLower(r.Method)] = s.operation(r)
	}
	return stdjson.MarshalIndent(map[string]any{
		"openapi": "3.1.0",
		"info": map[string]any{
			"title": "llmguard admin API", "version": "1",
			"description": "Values set at runtime (in Redis) override the configuration file, field by field, by id.",
		},
		"paths": paths,
		"components": map[string]any{
			"schemas": s,
			"securitySchemes": map[string]any{"admin": map[string]any{
				"type": "http", "scheme": "bearer",
				"description": "An administrator's key, lg_admin_...",
			}},
		},
		"security": []any{map[string]any{"admin": []any{}}},
	}, "", "  ")
}

// schemas are the schemas of named types, by name.
type schemas map[string]any

// filesOf describes a body of one of these media types.
func filesOf(kinds []string) map[string]any {
	out := map[string]any{}
	for _, kind := range kinds {
		out[kind] = map[string]any{}
	}
	return out
}

func (s schemas) operation(r Operation) map[string]any {
	op := map[string]any{"operationId": r.Name, "summary": r.Summary}
	var parameters []any
	for _, m := range pathArgument.FindAllStringSubmatch(r.Path, -1) {
		parameters = append(parameters,
			map[string]any{"name": m[1], "in": "path", "required": true, "schema": map[string]any{"type": "string"}})
	}
	for _, p := range r.Query {
		parameters = append(parameters,
			map[string]any{"name": p.name, "in": "query", "description": p.text, "schema": map[string]any{"type": "string"}})
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	if r.Body != nil {
		op["requestBody"] = map[string]any{"required": true, "content": content(s.of(reflect.TypeOf(r.Body), true))}
	}
	failure := map[string]any{"description": "Refused", "content": content(s.of(reflect.TypeFor[failed](), false))}
	answers := map[string]any{"default": failure}
	switch {
	case r.Kinds != nil:
		answers["200"] = map[string]any{"description": http.StatusText(http.StatusOK), "content": filesOf(r.Kinds)}
	case r.Answer == nil:
		answers["204"] = map[string]any{"description": "Done"}
	default:
		status := max(r.Status, http.StatusOK)
		body := content(s.of(reflect.TypeOf(r.Answer), false))
		if r.Lines {
			body = map[string]any{"application/x-ndjson": body["application/json"]}
		}
		answers[strconv.Itoa(status)] = map[string]any{"description": http.StatusText(status), "content": body}
	}
	op["responses"] = answers
	return op
}

// failed is the body of every error response.
type failed struct {
	Error problem `json:"error"`
}

type problem struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func content(schema any) map[string]any {
	return map[string]any{"application/json": map[string]any{"schema": schema}}
}

// of returns the schema of a type. Request members are optional and nullable (in patches);
// response members are required.
func (s schemas) of(t reflect.Type, asked bool) any {
	switch t {
	case reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case reflect.TypeFor[stdjson.RawMessage]():
		return map[string]any{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return nullable(s.of(t.Elem(), asked))
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": s.of(t.Elem(), asked)}
	case reflect.Map:
		return map[string]any{"type": "object"}
	case reflect.Struct:
		return s.object(t, asked)
	}
	panic("admin: no schema for " + t.String())
}

// nullable returns the schema extended with null.
func nullable(schema any) any {
	m, ok := schema.(map[string]any)
	if kind, named := m["type"].(string); ok && named {
		m["type"] = []any{kind, "null"}
		return m
	}
	return map[string]any{"anyOf": []any{schema, map[string]any{"type": "null"}}}
}

func (s schemas) object(t reflect.Type, asked bool) any {
	name := schemaName(t)
	if asked && !strings.HasSuffix(name, "Patch") {
		name += "Request"
	}
	ref := map[string]any{"$ref": "#/components/schemas/" + name}
	if s[name] != nil {
		return ref
	}
	properties, required := map[string]any{}, []string{}
	object := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	s[name] = object
	for _, f := range fieldsOf(t) {
		properties[f.name] = s.of(f.typ, asked)
		if !f.optional {
			required = append(required, f.name)
		}
	}
	if len(required) > 0 {
		slices.Sort(required)
		object["required"] = required
	}
	return ref
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9]+`)

// schemaName returns the schema name of a type; page[...admin.Org] becomes OrgPage.
func schemaName(t reflect.Type) string {
	name := cmp.Or(t.Name(), settings.SectionName(t))
	if base, of, generic := strings.Cut(name, "["); generic {
		of = of[strings.LastIndexAny(of, "./")+1:]
		name = of + strings.ToUpper(base[:1]) + base[1:]
	}
	switch { // names that would clash with ours
	case strings.HasSuffix(t.PkgPath(), "/budget"):
		name = "Ledger" + name
	case strings.HasSuffix(t.PkgPath(), "/top"):
		name = "Top" + name
	}
	name = notInName.ReplaceAllString(name, "")
	return strings.ToUpper(name[:1]) + name[1:]
}

// jsonField is a member as it is in JSON, including those of embedded structs and the fields of settings.
type jsonField struct {
	name     string
	typ      reflect.Type
	optional bool
}

func fieldsOf(t reflect.Type) []jsonField {
	var out []jsonField
	for f := range t.Fields() {
		name, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case settings.SectionOf(f.Type) != nil:
			out = append(out, settingsIn(settings.SectionOf(f.Type), f.Tag.Get("fields") == "all")...)
		case f.Anonymous && name == "":
			out = append(out, fieldsOf(f.Type)...)
		case f.IsExported():
			out = append(out, jsonField{name, f.Type, strings.Contains(opts, "omit")})
		}
	}
	return out
}

// settingsIn returns the fields of a section that administrators can change; all is whether none is left out.
func settingsIn(section reflect.Type, all bool) []jsonField {
	var out []jsonField
	for _, f := range settings.RuntimeFields(section) {
		t := f.MemberType()
		if !all || f.Nullable() {
			t = reflect.PointerTo(t)
		}
		out = append(out, jsonField{f.Name, t, !all})
	}
	return out
}

// known rejects names that a specification does not have.
func known(spec any, name string) error {
	var names []string
	for _, f := range fieldsOf(reflect.TypeOf(spec).Elem()) {
		if f.name == name {
			return nil
		}
		names = append(names, f.name)
	}
	return wire.BadRequest(name, "unknown_field", "There is no field %q in this request%s", name,
		settings.DidYouMean(name, names))
}

// reset zeroes what a pointer points to, and returns the pointer.
func reset(spec any) any {
	reflect.ValueOf(spec).Elem().SetZero()
	return spec
}
