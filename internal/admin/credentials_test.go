package admin_test

import (
	"fmt"
	"strings"
	"testing"
)

// sealing configures a key that encrypts credentials.
const sealing = "queue: {seal_keys: [{id: s1, secret: 0123456789abcdef0123}]}\n"

// The secret appears in no response, no audit entry and no sealed record.
func TestCredentialIsNotShown(t *testing.T) {
	const secret = "sk-acme-0123456789"
	d := deploy(t, sealing)
	answer := d.send("PUT", "/orgs/acme/credentials/openai", `{"secret":"`+secret+`"}`).Body.String()
	dump, err := d.rdb.HGetAll(t.Context(), "lg:{identity:}:records").Result()
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"the answer": answer, "the list": d.send("GET", "/orgs/acme/credentials", "").Body.String(),
		"the audit": d.send("GET", "/audit", "").Body.String(), "Redis": fmt.Sprint(dump),
	} {
		if strings.Contains(text, secret) {
			t.Errorf("%s has the secret: %s", what, text)
		}
	}
}

func TestCredentialIsRefused(t *testing.T) {
	d := deploy(t, sealing)
	d.refused(404, "provider_not_found", "provider", "PUT", "/orgs/acme/credentials/nobody",
		`{"secret":"sk-acme-0123456789"}`)
	for name, secret := range map[string]string{
		"short": "sk-1234", "spaces": "sk acme 0123456789", "a line break": `sk-acme-0123456789\n`,
		"not ASCII": "sk-ächme-0123456789",
		"long":      strings.Repeat("a", 4097), "empty": "",
	} {
		before := d.changes()
		w := d.send("PUT", "/orgs/acme/credentials/openai", `{"secret":"`+secret+`"}`)
		if w.Code != 400 || !strings.Contains(w.Body.String(), `"param":"secret"`) || d.changes() != before {
			t.Errorf("%s: got %d %s, want 400 of secret, and no change", name, w.Code, w.Body)
		}
	}
	d.expect(200, "PUT", "/orgs/acme/credentials/openai", `{"secret":"`+strings.Repeat("a", 4096)+`"}`, "")
}
