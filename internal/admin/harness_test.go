package admin_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/app/front"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/redistest"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/wire"
)

var shared *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.ForPackage(m, &shared)) }

// Keys of the administrators in the file.
var (
	opsKey     = keys.New(keys.Admin)
	viewerKey  = keys.New(keys.Admin)
	offKey     = keys.New(keys.Admin)
	expiredKey = keys.New(keys.Admin)
	callerKey  = keys.New(keys.Live)
)

// fileText is the configuration file: the org acme with the user alice and the key k1, two
// limits, and administrators of every kind.
func fileText() string {
	hash := func(key string) string { return keys.Hash(keys.Pepper{}, key) }
	return fmt.Sprintf(`
listen: 127.0.0.1:0
redis: {addresses: ["%s"]}
admin:
  listen: "127.0.0.1:0"
  keys:
    - {id: ops, hash: "%s"}
    - {id: viewer, hash: "%s", read_only: true}
    - {id: off, hash: "%s", disabled: true}
    - {id: gone, hash: "%s", expires: 2001-01-01}
providers: [{id: openai, base_url: "http://127.0.0.1:9/v1"}, {id: spare, base_url: "http://127.0.0.1:9/v1"}]
orgs:
  - id: acme
    name: Acme
    limits:
      - {name: month, amount: $100, calendar: month}
      - {name: daily, subject: user, amount: $10, window: 24h}
      - {name: rate, subject: user, metric: requests, amount: 60, window: 1m}
      - {name: burst, subject: key, metric: tokens, amount: 5000, window: 1m}
    users: [{id: alice, keys: [{id: k1, hash: "%s"}]}, {id: bob}]
`, shared.Addr, hash(opsKey), hash(viewerKey), hash(offKey), hash(expiredKey), hash(callerKey))
}

// deployment is the admin API on an empty Redis.
type deployment struct {
	t     *testing.T
	api   http.Handler
	local http.Handler // for local commands
	rdb   *redis.Client
	books *budget.Store
	key   string // sent with requests

	fileHash string
}

// deploy starts with an empty Redis and the file, with more appended to it.
func deploy(t *testing.T, more ...string) *deployment {
	t.Helper()
	rdb := shared.Client()
	err := rdb.FlushDB(t.Context()).Err()
	if err != nil {
		t.Fatal(err)
	}
	api := serve(t, fileText()+strings.Join(more, ""), rdb)
	return &deployment{
		t: t, api: api, local: api.As("root@host"), rdb: rdb, books: budget.New(redistest.DB(rdb), budget.Options{}),
		key: opsKey,
	}
}

// serve returns the API that another process with this file would serve.
func serve(t *testing.T, text string, rdb *redis.Client) *admin.Server {
	t.Helper()
	cfg, err := config.Parse("llmguard.yaml", []byte(text), os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	api, err := front.Admin(t.Context(), cfg, redistest.DB(rdb), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// as returns the same deployment with another key.
func (d *deployment) as(key string) *deployment {
	other := *d
	other.key = key
	return &other
}

// onMachine returns the same deployment as used by a local command.
func (d *deployment) onMachine() *deployment {
	other := *d
	other.api, other.key = d.local, ""
	return &other
}

// request builds an administrator's request.
func (d *deployment) request(method, path, body string) *http.Request {
	r := httptest.NewRequestWithContext(d.t.Context(), method, "/admin/v1"+path, strings.NewReader(body))
	if d.key != "" {
		r.Header.Set("Authorization", "Bearer "+d.key)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// send sends a request, after applying change.
func (d *deployment) send(method, path, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	d.t.Helper()
	r := d.request(method, path, body)
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	d.api.ServeHTTP(w, r)
	return w
}

// object is a JSON object.
type object map[string]any

func parse(t *testing.T, text string) object {
	t.Helper()
	var o object
	err := json.Unmarshal([]byte(text), &o)
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return o
}

// expect sends a request and checks the status and the given fields of the response.
func (d *deployment) expect(status int, method, path, body, fields string) object {
	d.t.Helper()
	w := d.send(method, path, body)
	if w.Code != status {
		d.t.Fatalf("%s %s: got %d %s, want %d", method, path, w.Code, w.Body, status)
	}
	if status == http.StatusNoContent {
		if w.Body.Len() > 0 {
			d.t.Errorf("%s %s: got the body %q with status 204", method, path, w.Body)
		}
		return nil
	}
	got := parse(d.t, w.Body.String())
	d.has(method+" "+path, got, fields)
	return got
}

// has checks that an object contains these fields.
func (d *deployment) has(what string, got object, fields string) {
	d.t.Helper()
	if fields == "" {
		return
	}
	for name, want := range parse(d.t, fields) {
		value, there := got[name]
		if !there || !reflect.DeepEqual(value, want) {
			d.t.Errorf("%s: got %s = %v, want %v", what, name, value, want)
		}
	}
}

// refused sends a request and checks that it is rejected and changes nothing.
func (d *deployment) refused(status int, code, param, method, path, body string) string {
	d.t.Helper()
	before := d.changes()
	w := d.send(method, path, body)
	e, _ := parse(d.t, w.Body.String())["error"].(map[string]any)
	if w.Code != status || text(e["code"]) != code || text(e["param"]) != param || text(e["type"]) == "" ||
		text(e["message"]) == "" {
		d.t.Errorf("%s %s %s: got %d %s, want %d %s of %q", method, path, body, w.Code, w.Body, status, code, param)
	}
	now := d.changes()
	if now != before {
		d.t.Errorf("%s %s %s: got %d changes in the audit, want %d: it was refused", method, path, body, now, before)
	}
	return text(e["message"])
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// changes returns the number of audit entries.
func (d *deployment) changes() int64 {
	d.t.Helper()
	n, err := d.rdb.XLen(d.t.Context(), "lg:{identity:}:audit").Result()
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// list returns the objects in a list.
func (d *deployment) list(path string) []object {
	d.t.Helper()
	answer := d.expect(200, "GET", path, "", `{"object":"list"}`)
	data, ok := answer["data"].([]any)
	if !ok {
		d.t.Fatalf("GET %s: got data = %v, want a list", path, answer["data"])
	}
	out := make([]object, len(data))
	for i := range data {
		out[i], _ = data[i].(map[string]any)
	}
	return out
}

// names returns one field of each object in a list.
func (d *deployment) names(path, field string) string {
	d.t.Helper()
	var out []string
	for _, o := range d.list(path) {
		out = append(out, text(o[field]))
	}
	return strings.Join(out, " ")
}

// audited checks the newest audit entry; an empty before or after must be absent.
func (d *deployment) audited(fields, before, after string) {
	d.t.Helper()
	list := d.list("/audit?limit=1")
	if len(list) == 0 {
		d.t.Fatal("got an empty audit")
	}
	d.has("the audit", list[0], fields)
	for side, want := range map[string]string{"before": before, "after": after} {
		got, there := list[0][side].(map[string]any)
		if there != (want != "") {
			d.t.Errorf("the audit of %s: got %s = %v, want %s", fields, side, list[0][side], want)
			continue
		}
		d.has("the audit's "+side, got, want)
	}
	for _, secret := range []string{"sha256:", `"hash"`, `"previous"`, `"sealed"`, "lg_live_"} {
		if text := fmt.Sprint(list[0]); strings.Contains(text, secret) {
			d.t.Errorf("the audit has %s: %s", secret, text)
		}
	}
}

// spend charges a user's call to limits.
func (d *deployment) spend(call ledger.Call, st budget.Settlement, limits ...budget.Limit) {
	d.t.Helper()
	call.ID = wire.NewCallID()
	h, err := d.books.Hold(d.t.Context(), budget.Terms{Limits: limits, Call: call, Max: st.Actual, Expected: st.Actual})
	if err == nil {
		_, err = d.books.Settle(d.t.Context(), h, st)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// commit stores a record as another process would.
func (d *deployment) commit(ref tenants.Ref, record any) {
	d.t.Helper()
	other := tenants.New(redistest.DB(d.rdb), tenants.Options{})
	err := other.Commit(d.t.Context(), tenants.AuditEntry{Action: "test"}, tenants.Change{Ref: ref, New: record})
	if err != nil {
		d.t.Fatal(err)
	}
}
