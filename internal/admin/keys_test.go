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

func TestCreateKey(t *testing.T) {
	d := deploy(t)
	made := d.expect(201, "POST", "/orgs/acme/keys",
		`{"id":"b1","user":"bob","name":"ci","models":["gpt-4o*"],"scopes":["calls"],"networks":["10.0.0.0/8"],
		"concurrency":2,"expires":"2099-01-01T00:00:00Z"}`,
		`{"id":"b1","org":"acme","user":"bob","name":"ci","status":"active","disabled":false,"models":["gpt-4o*"],
		"scopes":["calls"],
		"networks":["10.0.0.0/8"],"concurrency":2,"expires":"2099-01-01T00:00:00Z","old_key_until":null,"last_used_at":null,
		"source":"redis"}`)
	secret := text(made["secret"])
	class, err := keys.Check(secret)
	if err != nil || class != keys.Live {
		t.Errorf("got a key of class %q, %v, want live", class, err)
	}
	if made["last4"] != keys.Last4(secret) {
		t.Errorf("got last4 %v of %s", made["last4"], secret)
	}
	got, want := d.stored("acme", "b1", "hash"), keys.Hash(keys.Pepper{}, secret)
	if got != want {
		t.Errorf("got the stored hash %v, want %v", got, want)
	}
	d.audited(`{"action":"key.create","org":"acme","target":"b1"}`, "",
		`{"user":"bob","name":"ci","last4":"`+keys.Last4(secret)+`"}`)
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

func TestKeyIDsAreMadeUp(t *testing.T) {
	d := deploy(t)
	seen := map[string]bool{}
	for range 5 {
		id := text(d.expect(201, "POST", "/orgs/acme/keys", `{"user":"bob"}`, "")["id"])
		if !strings.HasPrefix(id, "key-") || seen[id] {
			t.Errorf("got the id %q, want a new one that begins with key-", id)
		}
		seen[id] = true
	}
}

func TestKeyForTests(t *testing.T) {
	d := deploy(t)
	made := d.expect(201, "POST", "/orgs/acme/keys", `{"id":"t1","user":"bob","test":true}`, "")
	rotated := d.expect(200, "POST", "/orgs/acme/keys/t1/rotate", `{}`, "")
	for what, o := range map[string]object{"made": made, "rotated": rotated} {
		class, err := keys.Check(text(o["secret"]))
		if err != nil || class != keys.Test {
			t.Errorf("%s: got class %q, %v, want test", what, class, err)
		}
	}
}

func TestCreateKeyIsRefused(t *testing.T) {
	d := deploy(t)
	for _, tc := range []struct {
		status            int
		code, param, body string
	}{
		{404, "user_not_found", "user", `{}`},
		{404, "user_not_found", "user", `{"user":"nobody"}`},
		{409, "key_exists", "id", `{"user":"bob","id":"k1"}`},
		{400, "invalid_value", "id", `{"user":"bob","id":"K1"}`},
		{400, "invalid_value", "scopes", `{"user":"bob","scopes":["everything"]}`},
		{400, "invalid_value", "networks", `{"user":"bob","networks":["10.0.0.0/40"]}`},
		{400, "invalid_value", "concurrency", `{"user":"bob","concurrency":-1}`},
		{400, "invalid_value", "expires", `{"user":"bob","expires":"tomorrow"}`},
		{400, "unknown_field", "secret", `{"user":"bob","secret":"lg_live_mine"}`},
		{400, "unknown_field", "hash", `{"user":"bob","hash":"sha256:00"}`},
	} {
		d.refused(tc.status, tc.code, tc.param, "POST", "/orgs/acme/keys", tc.body)
	}
}

func TestListKeys(t *testing.T) {
	d := deploy(t)
	d.expect(201, "POST", "/orgs/acme/keys", `{"id":"b1","user":"bob"}`, "")
	for path, want := range map[string]string{
		"/orgs/acme/keys": "k1 b1", "/orgs/acme/keys?user=alice": "k1", "/orgs/acme/keys?user=bob": "b1",
	} {
		got := d.names(path, "id")
		if got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	d.refused(404, "user_not_found", "user", "GET", "/orgs/acme/keys?user=nobody", "")
	d.refused(404, "key_not_found", "key", "GET", "/orgs/acme/keys/nothing", "")
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

// A key of the file can be disabled immediately, without editing the file.
func TestUpdateKey(t *testing.T) {
	d := deploy(t)
	d.expect(200, "GET", "/orgs/acme/keys/k1", "",
		`{"status":"active","source":"file","user":"alice","last4":"","networks":[],"scopes":[],"expires":null}`)
	d.expect(200, "PATCH", "/orgs/acme/keys/k1?reason=lost+laptop", `{"disabled":true,"name":"laptop"}`,
		`{"status":"disabled","disabled":true,"name":"laptop","source":"both"}`)
	d.audited(`{"action":"key.update","org":"acme","target":"k1","reason":"lost laptop"}`, "",
		`{"disabled":true,"name":"laptop","user":"alice"}`)
	d.expect(200, "PATCH", "/orgs/acme/keys/k1", `{"disabled":null}`, `{"status":"active","name":"laptop"}`)
	d.audited(`{"action":"key.update"}`, `{"disabled":true}`, `{"name":"laptop"}`)
	d.expect(200, "PATCH", "/orgs/acme/keys/k1", `{"expires":"2001-01-01T00:00:00Z"}`, `{"status":"expired"}`)
	d.expect(200, "PATCH", "/orgs/acme/keys/k1", `{"expires":null,"networks":["192.168.0.0/16","::1/128"]}`,
		`{"status":"active","expires":null,"networks":["192.168.0.0/16","::1/128"]}`)
	for param, body := range map[string]string{
		"scopes": `{"scopes":["nothing"]}`, "networks": `{"networks":["here"]}`, "concurrency": `{"concurrency":-2}`,
	} {
		d.refused(400, "invalid_value", param, "PATCH", "/orgs/acme/keys/k1", body)
	}
	d.refused(404, "key_not_found", "key", "PATCH", "/orgs/acme/keys/nothing", `{}`)
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

func TestRotateKeyIsAudited(t *testing.T) {
	d := deploy(t)
	d.expect(201, "POST", "/orgs/acme/keys", `{"id":"b1","user":"bob","name":"ci"}`, "")
	before := d.stored("acme", "b1", "last4")
	after := d.expect(200, "POST", "/orgs/acme/keys/b1/rotate", `{"overlap":"1h","reason":"quarterly"}`, `{"name":"ci"}`)
	d.audited(`{"action":"key.rotate","org":"acme","target":"b1","reason":"quarterly"}`,
		fmt.Sprintf(`{"last4":%q}`, before), fmt.Sprintf(`{"last4":%q,"name":"ci"}`, after["last4"]))
}

func TestRotateKeyIsRefused(t *testing.T) {
	d := deploy(t)
	for _, overlap := range []string{"soon", "-1h", "91d", "2160h1s"} {
		d.refused(400, "invalid_value", "overlap", "POST", "/orgs/acme/keys/k1/rotate", `{"overlap":"`+overlap+`"}`)
	}
	d.refused(400, "invalid_value", "reason", "POST", "/orgs/acme/keys/k1/rotate", `{"reason":"a\nb"}`)
	d.refused(404, "key_not_found", "key", "POST", "/orgs/acme/keys/nothing/rotate", `{}`)
}

func TestDeleteKey(t *testing.T) {
	d := deploy(t)
	d.expect(201, "POST", "/orgs/acme/keys", `{"id":"b1","user":"bob","name":"ci"}`, "")
	d.expect(204, "DELETE", "/orgs/acme/keys/b1?reason=leak", "", "")
	d.audited(`{"action":"key.delete","org":"acme","target":"b1","reason":"leak"}`, `{"user":"bob","name":"ci"}`, "")
	d.refused(404, "key_not_found", "key", "DELETE", "/orgs/acme/keys/b1", "")
	d.refused(409, "declared_in_file", "", "DELETE", "/orgs/acme/keys/k1", "")
	d.expect(200, "POST", "/orgs/acme/keys/k1/rotate", `{}`, "")
	d.expect(204, "DELETE", "/orgs/acme/keys/k1", "", "")
	d.expect(200, "GET", "/orgs/acme/keys/k1", "", `{"source":"file","old_key_until":null}`)
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
