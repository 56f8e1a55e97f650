package openapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// document is the OpenAPI document served by a process.
type document struct {
	paths    map[string]map[string]struct{ Responses map[string]json.RawMessage }
	compiler *jsonschema.Compiler
}

const resource = "mem:///openapi.json"

func (p process) document(t *testing.T) *document {
	t.Helper()
	_, text := p.do(t, "GET", "/openapi.json", "")
	var raw any
	err := json.Unmarshal([]byte(text), &raw)
	if err != nil {
		t.Fatal(err)
	}
	d := &document{compiler: jsonschema.NewCompiler()}
	err = d.compiler.AddResource(resource, raw)
	if err != nil {
		t.Fatal(err)
	}
	parts := struct{ Paths any }{&d.paths}
	err = json.Unmarshal([]byte(text), &parts)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// operations lists the operations, such as "GET /orgs/{org}".
func (d *document) operations() (out []string) {
	for path, methods := range d.paths {
		for method := range methods {
			out = append(out, strings.ToUpper(method)+" "+strings.TrimPrefix(path, "/admin/v1"))
		}
	}
	return out
}

// validate validates a response against the schema for its status. Errors may be described by
// "default".
func (d *document) validate(t *testing.T, s step, answer string) {
	t.Helper()
	path, method, status := "/admin/v1"+s.pattern, strings.ToLower(s.method), fmt.Sprint(s.status)
	operation, ok := d.paths[path][method]
	if !ok {
		t.Fatalf("the document has no %s", s)
	}
	if operation.Responses[status] == nil && s.status >= 400 {
		status = "default"
	}
	if operation.Responses[status] == nil {
		t.Fatalf("%s: the document has no answer %s", s, status)
	}
	if answer == "" {
		return
	}
	if content := string(operation.Responses[status]); status == "200" && !strings.Contains(content, `"application/json"`) &&
		!strings.Contains(content, "x-ndjson") {
		return // a file, such as CSV
	}
	kind, parts := "json", []string{answer}
	if strings.Contains(string(operation.Responses[status]), "application/x-ndjson") {
		kind, parts = "x-ndjson", strings.Split(strings.TrimSpace(answer), "\n")
	}
	pointer := strings.NewReplacer("~", "~0", "/", "~1").Replace(path)
	schema, err := d.compiler.Compile(resource + "#/paths/" + pointer + "/" + method +
		"/responses/" + status + "/content/application~1" + kind + "/schema")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(part))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s: got %s, which is not what the document says: %v", s, part, err)
		}
	}
}
