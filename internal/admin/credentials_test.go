package admin_test

import (
	"fmt"
	"strings"
	"testing"
)

// sealing configures a key that encrypts credentials.
const sealing = "queue: {seal_keys: [{id: s1, secret: 0123456789abcdef0123}]}\n"

func TestSetCredential(t *testing.T) {
	d := deploy(t, sealing)
	d.expect(200, "PUT", "/orgs/acme/credentials/openai?reason=own+account", `{"secret":"sk-acme-0123456789"}`,
		`{"provider":"openai","last4":"6789","sealed":true}`)
	d.audited(`{"action":"credential.set","org":"acme","target":"openai","reason":"own account"}`, "",
		`{"provider":"openai","last4":"6789"}`)
	first := d.list("/orgs/acme/credentials")[0]
	d.expect(200, "PUT", "/orgs/acme/credentials/openai", `{"secret":"sk-acme-abcdefghij"}`,
		`{"last4":"ghij","created_at":"`+text(first["created_at"])+`"}`)
	d.audited(`{"action":"credential.set"}`, `{"last4":"6789"}`, `{"last4":"ghij"}`)
	d.expect(200, "PUT", "/orgs/acme/credentials/spare", `{"secret":"sk-acme-spare"}`, "")
	got := d.names("/orgs/acme/credentials", "provider")
	if got != "openai spare" {
		t.Errorf("got the credentials %q, want both", got)
	}
}

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

// Without a seal key, a credential is rejected unless the request asks for plain storage.
func TestCredentialWithoutASealKey(t *testing.T) {
	d := deploy(t)
	d.refused(409, "no_seal_key", "", "PUT", "/orgs/acme/credentials/openai", `{"secret":"sk-acme-0123456789"}`)
	d.expect(200, "PUT", "/orgs/acme/credentials/openai", `{"secret":"sk-acme-0123456789","clear":true}`,
		`{"sealed":false,"last4":"6789"}`)
	d = deploy(t, sealing)
	d.expect(200, "PUT", "/orgs/acme/credentials/openai", `{"secret":"sk-acme-0123456789","clear":true}`,
		`{"sealed":true}`)
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

func TestDeleteCredential(t *testing.T) {
	d := deploy(t, sealing)
	d.refused(404, "credential_not_found", "provider", "DELETE", "/orgs/acme/credentials/openai", "")
	d.expect(200, "PUT", "/orgs/acme/credentials/openai", `{"secret":"sk-acme-0123456789"}`, "")
	d.expect(204, "DELETE", "/orgs/acme/credentials/openai?reason=moved", "", "")
	d.audited(`{"action":"credential.delete","org":"acme","target":"openai","reason":"moved"}`, `{"last4":"6789"}`, "")
	got := d.list("/orgs/acme/credentials")
	if len(got) > 0 {
		t.Errorf("got the credentials %v, want none", got)
	}
}
