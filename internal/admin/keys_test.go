package admin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/tenants"
)

// stored returns a field of a key's record in Redis.
func (d *deployment) stored(org, key, field string) any {
	d.t.Helper()
	record, err := d.rdb.HGet(d.t.Context(), "lg:{identity:}:records", "key "+org+" "+key).Result()
	if err != nil {
		d.t.Fatal(err)
	}
	return parse(d.t, record)[field]
}

// A key is shown once, when it is created.
func TestKeyIsShownOnce(t *testing.T) {
	d := deploy(t)
	secret := text(d.expect(201, "POST", "/orgs/acme/keys", `{"id":"b1","user":"bob"}`, "")["secret"])
	for _, path := range []string{"/orgs/acme/keys", "/orgs/acme/keys/b1", "/audit", "/orgs/acme"} {
		body := d.send("GET", path, "").Body.String()
		if strings.Contains(body, secret) || strings.Contains(body, "secret") || strings.Contains(body, "sha256:") {
			t.Errorf("GET %s has the key or its hash: %s", path, body)
		}
	}
	dump, err := d.rdb.HGetAll(t.Context(), "lg:{identity:}:records").Result()
	if err != nil || strings.Contains(fmt.Sprint(dump), secret) {
		t.Errorf("got the key in Redis: %v, %v", dump, err)
	}
}

func TestLastUseOfAKey(t *testing.T) {
	d := deploy(t)
	err := d.rdb.HSet(t.Context(), "lg:{identity:}:used", "acme k1", 1_800_000_000, "globex k1", 1).Err()
	if err != nil {
		t.Fatal(err)
	}
	d.expect(200, "GET", "/orgs/acme/keys/k1", "", `{"last_used_at":"2027-01-15T08:00:00Z"}`)
	got := d.list("/orgs/acme/keys")[0]["last_used_at"]
	if got != "2027-01-15T08:00:00Z" {
		t.Errorf("got last_used_at %v in the list, want the same", got)
	}
}

// The old key works until the overlap ends; 0s ends it immediately.
func TestRotateKey(t *testing.T) {
	for _, tc := range []struct {
		body string
		want time.Duration // 0: the old key stops working
	}{
		{`{}`, 24 * time.Hour},
		{`{"overlap":"7d"}`, 7 * 24 * time.Hour},
		{`{"overlap":"90d"}`, 90 * 24 * time.Hour},
		{`{"overlap":"0s"}`, 0},
	} {
		d := deploy(t)
		began := time.Now()
		got := d.expect(200, "POST", "/orgs/acme/keys/k1/rotate", tc.body,
			`{"id":"k1","user":"alice","status":"active","source":"both"}`)
		secret := text(got["secret"])
		class, err := keys.Check(secret)
		if err != nil || class != keys.Live || secret == callerKey {
			t.Errorf("%s: got the key %q, %v, want a new one", tc.body, class, err)
		}
		hash := d.stored("acme", "k1", "hash")
		if hash != keys.Hash(keys.Pepper{}, secret) {
			t.Errorf("%s: got the stored hash %v, want that of the new key", tc.body, hash)
		}
		d.overlaps(tc.body, got["old_key_until"], began, tc.want)
	}
}

// overlaps checks until when the file's key k1 works after a rotation.
func (d *deployment) overlaps(what string, got any, began time.Time, want time.Duration) {
	d.t.Helper()
	previous := d.stored("acme", "k1", "previous")
	if want == 0 {
		if got != nil || previous != nil {
			d.t.Errorf("%s: got the old key until %v, stored %v, want neither", what, got, previous)
		}
		return
	}
	until, err := time.Parse(time.RFC3339, text(got))
	if err != nil || until.Before(began.Add(want)) || until.After(time.Now().Add(want)) {
		d.t.Errorf("%s: got the old key until %v, %v, want %s from now", what, got, err, want)
	}
	if previous != keys.Hash(keys.Pepper{}, callerKey) {
		d.t.Errorf("%s: got the stored old hash %v, want that of the file's key", what, previous)
	}
}

// New keys are hashed with the first pepper; keys hashed with the others still work.
func TestPeppers(t *testing.T) {
	const peppers = "auth: {peppers: [{id: new, secret: 0123456789abcdef0123}, {id: old, secret: abcdefabcdefabcdef01}]}\n"
	d := deploy(t, peppers)
	made := d.expect(201, "POST", "/orgs/acme/keys", `{"id":"b1","user":"bob"}`, "")
	want := keys.Hash(keys.Pepper{ID: "new", Secret: "0123456789abcdef0123"}, text(made["secret"]))
	got := d.stored("acme", "b1", "hash")
	if got != want {
		t.Errorf("got the hash %v, want %v", got, want)
	}
	d.onMachine().expect(201, "POST", "/admins", `{"id":"ann"}`, "")
	d.expect(200, "GET", "/self", "", `{"id":"ops"}`) // the hash in the file has no pepper
	under := keys.New(keys.Admin)
	d.commit(tenants.Ref{Kind: tenants.KindAdmin, ID: "olga"}, tenants.Admin{
		Hash: keys.Hash(keys.Pepper{ID: "old", Secret: "abcdefabcdefabcdef01"}, under),
	})
	d.as(under).expect(200, "GET", "/self", "", `{"id":"olga"}`)
}

// TestUnknownModels: a name or pattern that matches no model is refused, and a warning of a plan, unless the org has it.
func TestUnknownModels(t *testing.T) {
	d := deploy(t, `  - id: tuned
    limits: [{name: day, amount: $1, window: 1d, models: ["mine:*"]}]
    users: [{id: ann, keys: [{id: ft, hash: "`+keys.Hash(keys.Pepper{}, keys.New(keys.Live))+`", models: ["ft:*"]}]}]
`)
	for _, tc := range []struct{ path, models, wrong string }{
		{"keys/ft", `["ft:*","gpt-4o"]`, ""},
		{"keys/ft", `["ft:*","gpt-4o-mni"]`, `"gpt-4o-mni"`},
		{"limits/day", `["mine:*","gpt-4o"]`, ""},
		{"limits/day", `["mine:*","gtp-*"]`, `"gtp-*"`},
		{"", `["ours:*"]`, `"ours:*"`},
	} {
		path, body := strings.TrimSuffix("/orgs/tuned/"+tc.path, "/"), `{"models":`+tc.models+`}`
		if tc.wrong == "" {
			d.expect(200, "PATCH", path, body, "")
			continue
		}
		message := d.refused(400, "invalid_value", "models", "PATCH", path, body)
		if !strings.Contains(message, "no known model matches "+tc.wrong) {
			t.Errorf("%s %s: got %q, want what is wrong with %s", path, body, message, tc.wrong)
		}
	}
	org := `{"dry_run":true,"org":{"id":"tuned","users":[{"id":"ann","keys":[{"id":"ft","models":[%s"ft:*"]}]}],` +
		`"limits":[{"name":"day","models":[%s"mine:*"]}]}}`
	for typed, want := range map[string]int{"": 0, `"gpt-4o-mni",`: 2} {
		plan := d.expect(200, "POST", "/orgs/tuned/apply", fmt.Sprintf(org, typed, typed), "")
		if warnings, _ := plan["warnings"].([]any); len(warnings) != want {
			t.Errorf("with models %s: got the warnings %v, want %d", typed, warnings, want)
		}
	}
}
