package guard

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/providers"
)

const identified = `{"model":"m","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3,"total_tokens":12}}`

// identifiersSent returns the identifiers that the provider receives for a request with
// these.
func identifiersSent(t *testing.T, r *rig, v *vendor, extra string) map[string]string {
	t.Helper()
	if _, _, err := r.run(t.Context(), prompt("m", "hello", extra)); err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(v.sent), &body); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range identifiers {
		out[name], _ = body[name].(string)
	}
	return out
}

// TestIdentifiersAreOfOneOrg checks that two orgs never send the same identifier, whatever
// they choose, and that one org always sends the same, within the provider's length limit.
func TestIdentifiersAreOfOneOrg(t *testing.T) {
	v := &vendor{status: 200, kind: "application/json", body: identified}
	r := vendorRig(t, v, func(p *providers.Provider) { p.IdentifierKey = []byte("key") })
	long := strings.Repeat("x", 64)
	const extra = `"cache_salt":"alice","prompt_cache_isolation_key":"alice","session_id":"alice",` +
		`"user":"alice","safety_identifier":"al\u0069ce","prompt_cache_key":"`
	acme := identifiersSent(t, r, v, extra+long+`"`)
	again := identifiersSent(t, r, v, extra+long+`"`)
	longer := identifiersSent(t, r, v, extra+long+`y"`)
	copied := identifiersSent(t, r, v, `"user":"`+acme["user"]+`"`)
	r.org.ID = "globex"
	globex := identifiersSent(t, r, v, extra+long+`"`)
	for _, name := range identifiers {
		if acme[name] == "" || acme[name] != again[name] || acme[name] == globex[name] || len(acme[name]) > identifierMost ||
			acme[name] == "alice" || strings.Contains(acme[name], "acme") {
			t.Errorf("%s: acme sends %q and %q, globex %q", name, acme[name], again[name], globex[name])
		}
	}
	if !strings.HasSuffix(acme["user"], "-alice") || acme["user"] != acme["safety_identifier"] {
		t.Errorf("short ones: %v", acme)
	}
	if longer["prompt_cache_key"] == acme["prompt_cache_key"] {
		t.Error("two long identifiers are one")
	}
	if copied["user"] == acme["user"] {
		t.Error("an identifier that has a prefix gets none")
	}
}

// TestIdentifiersAsSent checks that nothing changes without a key, with null, and with the
// org's own credential, and that a non-string is refused if it would have to be changed.
func TestIdentifiersAsSent(t *testing.T) {
	v := &vendor{status: 200, kind: "application/json", body: identified}
	r := vendorRig(t, v, nil)
	const extra = `"user":"alice","safety_identifier":null`
	if got := identifiersSent(t, r, v, extra); got["user"] != "alice" {
		t.Errorf("without a key: %v", got)
	}
	r.vendor(t, v, func(p *providers.Provider) { p.IdentifierKey = []byte("key") })
	if got := identifiersSent(t, r, v, extra); got["user"] == "alice" || !strings.Contains(v.sent, `"safety_identifier":null`) {
		t.Errorf("with a key: %v", got)
	}
	if _, err := r.prepare(prompt("m", "hello", `"user":7`)); err == nil {
		t.Error("a number was taken")
	}
	r.org.Credentials = map[string]Credential{"vendor": "its-own"}
	if got := identifiersSent(t, r, v, extra); got["user"] != "alice" {
		t.Errorf("with a credential of its own: %v", got)
	}
}

// TestIdentifiersOfForms checks that the members of a form that name end users get the
// org's prefix, wherever they are in the form, and that nothing else changes. They may
// appear neither twice nor in another spelling that the provider may accept.
func TestIdentifiersOfForms(t *testing.T) {
	v := &vendor{status: 200, kind: "application/json", body: identified}
	r := vendorRig(t, v, func(p *providers.Provider) { p.IdentifierKey = []byte("key") })
	part := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=" + name + "\r\n\r\n" + value + "\r\n"
	}
	sent := func(parts ...string) (string, error) {
		t.Helper()
		text := strings.Join(parts, "") + "--b--\r\n"
		req, err := wire.ScanForm(wire.ImageEdits, "", "multipart/form-data; boundary=b", strings.NewReader(text))
		if err != nil {
			return "", err
		}
		req.Form.Source = strings.NewReader(text)
		p, err := r.guard.Plans.Prepare(r.caller(), req)
		if err != nil {
			t.Fatal(err)
		}
		body := p.sent.Rewrite(p.edits...)
		all, err := io.ReadAll(body.Reader())
		if int64(len(all)) != body.Len() {
			t.Errorf("%d bytes of %d", len(all), body.Len())
		}
		return string(all), err
	}
	model, image, prompt := part(`"model"`, "m"), part(`"image"; filename="a.png"`, "picture"), part(`"prompt"`, "a cat")
	org := digest([]byte("key"), r.org.ID, prefixBytes) + "-"
	got, err := sent(part(`"user"`, "alice"), image, prompt, part(`"safety_identifier"`, "bob"), model)
	want := part(`"user"`, org+"alice") + image + prompt + part(`"safety_identifier"`, org+"bob") + model + "--b--\r\n"
	if err != nil || got != want {
		t.Errorf("sent %q, %v, want %q", got, err, want)
	}
	for _, twin := range []string{`"user"`, `"User"`, `"user[]"`} {
		if got, err := sent(model, image, prompt, part(`"user"`, "alice"), part(twin, "eve")); err == nil {
			t.Errorf("a user and %s: %q", twin, got)
		}
	}
}
