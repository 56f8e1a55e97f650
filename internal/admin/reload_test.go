package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// reloading is an API with this reload function.
func reloading(t *testing.T, reload func(context.Context) (*admin.Reloaded, error)) *deployment {
	t.Helper()
	d := deploy(t)
	file := func() admin.FileSettings {
		return admin.FileSettings{Hash: "before", Admins: map[string]tenants.Admin{
			"ops": {Hash: keys.Hash(keys.Pepper{}, opsKey)}, "viewer": {Hash: keys.Hash(keys.Pepper{}, viewerKey), ReadOnly: true},
		}}
	}
	effective := func() settings.Set { return settings.Set{} }
	store := tenants.New(redistest.DB(d.rdb), tenants.Options{})
	d.api = admin.New(admin.Options{Tenants: store, Budget: d.books, File: file, Effective: effective, Reload: reload})
	d.fileHash = "before"
	return d
}

func TestReload(t *testing.T) {
	times := 0
	d := reloading(t, func(context.Context) (*admin.Reloaded, error) {
		times++
		return &admin.Reloaded{Hash: "abc", Changed: []string{"orgs"}, NeedsRestart: []string{"listen"}}, nil
	})
	got := d.expect(200, "POST", "/config/reload", "", `{"hash":"abc"}`)
	text, _ := json.Marshal(got)
	if string(text) != `{"changed":["orgs"],"hash":"abc","needs_restart":["listen"]}` {
		t.Errorf("got %s, want what has changed and what needs a restart", text)
	}
	d.as(viewerKey).refused(403, "read_only", "", "POST", "/config/reload", "")
	d.recorded(`{"action":"config.reload","actor":"ops","before":{"hash":"` + d.fileHash + `"},"after":{"hash":"abc","changed":["orgs"],"needs_restart":["listen"]}}`)
	if times != 1 {
		t.Errorf("the file was read %d times, want once: a viewer may not", times)
	}
}

// A rejected file leaves the old one in effect, and the response says why.
func TestReloadOfARefusedFile(t *testing.T) {
	d := reloading(t, func(context.Context) (*admin.Reloaded, error) { return nil, errors.New("line 7: no such field") })
	w := d.send("POST", "/config/reload", "")
	if got := w.Body.String(); w.Code != 400 || !strings.Contains(got, "config_refused") || !strings.Contains(got, "line 7: no such field") {
		t.Errorf("got %d %s, want the reason", w.Code, got)
	}
	d.recorded(`{"action":"config.reload_refused","actor":"ops","before":{"hash":"` + d.fileHash + `"}}`)
}

func TestReloadWithoutAFile(t *testing.T) {
	deploy(t).refused(400, "no_config_file", "", "POST", "/config/reload", "")
}

// document is the part of the OpenAPI document that the tests read.
type document struct {
	OpenAPI    string `json:"openapi"`
	Security   []map[string]any
	Components struct {
		Schemas map[string]struct {
			Properties map[string]any
			Required   []string
			Additional *bool `json:"additionalProperties"`
		}
		SecuritySchemes map[string]struct{ Type, Scheme string }
	}
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Summary     string
		Parameters  []struct{ Name, In string }
		Responses   map[string]any
	}
}

// The document has every route once, with a summary, path parameters, a success response and an
// error response.
func TestOpenAPIDocument(t *testing.T) {
	d := deploy(t)
	var doc document
	err := json.Unmarshal(d.send("GET", "/openapi.json", "").Body.Bytes(), &doc)
	if err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" || doc.Components.SecuritySchemes["admin"].Scheme != "bearer" || len(doc.Security) != 1 {
		t.Errorf("got version %q and security %v, want 3.1.0 and a bearer key", doc.OpenAPI, doc.Components.SecuritySchemes)
	}
	seen := map[string]bool{}
	for path, operations := range doc.Paths {
		for method, op := range operations {
			if op.OperationID == "" || seen[op.OperationID] || op.Summary == "" {
				t.Errorf("%s %s: got operationId %q, summary %q; want both, the id once", method, path, op.OperationID, op.Summary)
			}
			seen[op.OperationID] = true
			inPath := 0
			for _, p := range op.Parameters {
				if p.In == "path" && strings.Contains(path, "{"+p.Name+"}") {
					inPath++
				}
			}
			if inPath != strings.Count(path, "{") {
				t.Errorf("%s %s: got %d arguments of the path, want %d", method, path, inPath, strings.Count(path, "{"))
			}
			if op.Responses["default"] == nil || len(op.Responses) != 2 {
				t.Errorf("%s %s: got the answers %v, want success and default", method, path, op.Responses)
			}
		}
	}
}

// No response schema has a field for a hash, except the declaration for administrators with
// write access. Secrets are only in responses to key creation.
func TestOpenAPISchemasHaveNoSecrets(t *testing.T) {
	d := deploy(t)
	var doc document
	err := json.Unmarshal(d.send("GET", "/openapi.json", "").Body.Bytes(), &doc)
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string]bool{"NewKey": true, "NewAdmin": true, "NewCredentialRequest": true}
	for name, schema := range doc.Components.Schemas {
		if schema.Additional == nil || *schema.Additional {
			t.Errorf("%s: got additionalProperties open, want closed: unknown names are refused", name)
		}
		if _, has := schema.Properties["hash"]; has && !strings.HasPrefix(name, "Reloaded") && !strings.HasPrefix(name, "DeclaredKey") {
			t.Errorf("the schema %s has the field hash", name)
		}
		if _, has := schema.Properties["secret"]; has != secrets[name] {
			t.Errorf("the schema %s: got a secret %v, want %v", name, has, secrets[name])
		}
	}
}
