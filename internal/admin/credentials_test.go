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

// The length of a secret is bounded.
func TestLongCredential(t *testing.T) {
	d := deploy(t, sealing)
	secret := func(n int) string { return `{"secret":"` + strings.Repeat("a", n) + `"}` }
	d.refused(400, "invalid_value", "secret", "PUT", "/orgs/acme/credentials/openai", secret(4097))
	d.expect(200, "PUT", "/orgs/acme/credentials/openai", secret(4096), "")
}
