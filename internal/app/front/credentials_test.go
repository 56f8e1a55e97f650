package front_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/internal/app"
)

const ownSecret = "sk-acme-own-0123456789"

// sealed is an App whose org acme has a credential of its own.
func sealed(t *testing.T) (*running, *operator) {
	t.Helper()
	r := start(t, app.Proxy|app.Worker, "queue: {seal_keys: [{id: s1, secret: a-secret-of-16-characters}]}\n")
	o := r.operator(t)
	o.ask(200, "PUT", "/orgs/acme/credentials/openai", `{"secret":"`+ownSecret+`"}`, nil)
	return r, o
}

// wantStatus makes a call with a key and requires its status.
func (r *running) wantStatus(t *testing.T, want int, key string, header ...string) {
	t.Helper()
	got, err := r.chat(key, small, header...)
	if err != nil || got.status != want {
		t.Errorf("a call: got status %d, %s, %v; want %d", got.status, got.body, err, want)
	}
}

// withOwn counts the provider's requests that had the org's own credential.
func (r *running) withOwn() (n int) {
	for _, e := range r.fake.Log() {
		if e.Header.Get("Authorization") == "Bearer "+ownSecret {
			n++
		}
	}
	return n
}

// TestOwnCredential: an org's own credential is used for its calls and jobs, and for
// no other org's.
func TestOwnCredential(t *testing.T) {
	r, o := sealed(t)
	o.ask(201, "POST", "/orgs", `{"id":"globex"}`, nil)
	o.ask(201, "POST", "/orgs/globex/users", `{"id":"gus"}`, nil)
	var other struct{ Secret string }
	o.ask(201, "POST", "/orgs/globex/keys", `{"user":"gus"}`, &other)
	r.wantStatus(t, 200, r.key)
	if got := r.withOwn(); got != 1 {
		t.Errorf("after acme's call: %d requests with its credential, want 1", got)
	}
	r.wantStatus(t, 200, other.Secret)
	if got := r.withOwn(); got != 1 {
		t.Errorf("after globex's call: %d requests with acme's credential, want 1", got)
	}
	r.wantStatus(t, 202, r.key, "Prefer", "respond-async")
	await(t, "acme's job uses its credential", func() bool { return r.withOwn() == 2 })
}

// TestCredentialIsSealed: Redis never holds a credential in the clear.
func TestCredentialIsSealed(t *testing.T) {
	r, _ := sealed(t)
	rdb := r.redis.Client()
	kept := fmt.Sprint(rdb.HVals(t.Context(), "lg:{identity:}:records").Val(),
		rdb.XRange(t.Context(), "lg:{identity:}:audit", "-", "+").Val())
	for _, clear := range []string{ownSecret, base64.StdEncoding.EncodeToString([]byte(ownSecret))} {
		if strings.Contains(kept, clear) {
			t.Errorf("Redis has %q: %s", clear, kept)
		}
	}
	if !strings.Contains(kept, `"sealed"`) {
		t.Errorf("Redis has no sealed credential: %s", kept)
	}
}

// TestCredentialWithoutSealKey: a process that cannot open an org's credential does
// not use the deployment's own instead.
func TestCredentialWithoutSealKey(t *testing.T) {
	r, _ := sealed(t)
	without := *r.file
	without.Queue.SealKeys = nil
	without.Sum[0]++ // a file with other bytes
	r.file = &without
	_, err := r.Reload(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.wantStatus(t, 503, r.key)
	if got := len(r.fake.Log()); got != 0 {
		t.Errorf("%d requests reached the provider, want 0", got)
	}
}
