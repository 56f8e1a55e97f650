package app

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/keys"
	"github.com/llmguard/llmguard/wire"
)

// openAPI is the parts of the document that the tests look at.
type openAPI struct {
	Paths map[string]map[string]struct {
		OperationID string                     `json:"operationId"`
		RequestBody json.RawMessage            `json:"requestBody"`
		Responses   map[string]json.RawMessage `json:"responses"`
	}
}

func (o *operator) document() (doc openAPI, raw any) {
	o.t.Helper()
	text := o.ask(200, "GET", "/openapi.json", "", &doc)
	if err := json.Unmarshal([]byte(text), &raw); err != nil || len(doc.Paths) < 10 {
		o.t.Fatalf("the document: %v, %d paths", err, len(doc.Paths))
	}
	return doc, raw
}

// strangers has a request from another address each time, so that none is turned
// away for what others tried.
func strangers() func(method, path string) *http.Request {
	n := 0
	return func(method, path string) *http.Request {
		n++
		r := httptest.NewRequest(method, path, strings.NewReader("{}"))
		r.RemoteAddr = fmt.Sprintf("10.0.%d.%d:1", n/250, n%250+1)
		r.Header.Set("Content-Type", "application/json")
		return r
	}
}

// TestAdminIsShut walks every route of the document with everything that must not
// open it.
func TestAdminIsShut(t *testing.T) {
	r := start(t, Proxy, "")
	o := r.operator(t)
	doc, _ := o.document()
	api, err := Admin(t.Context(), r.Config(), r.rdb, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	req := strangers()("POST", "/admin/v1/admins")
	req.Body = http.NoBody
	req = httptest.NewRequest("POST", "/admin/v1/admins", strings.NewReader(`{"id":"viewer","read_only":true}`))
	req.Header.Set("Content-Type", "application/json")
	api.As("test").ServeHTTP(w, req)
	var viewer struct{ Secret string }
	if err := json.Unmarshal(w.Body.Bytes(), &viewer); err != nil || w.Code != 201 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	h, stranger := r.adminHandler(), strangers()
	try := func(want int, code, method, path string, change func(*http.Request)) {
		t.Helper()
		req := stranger(method, path)
		change(req)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		var e struct {
			Error struct{ Code, Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil && w.Body.Len() > 0 {
			t.Errorf("%s %s: %q", method, path, w.Body)
		}
		if w.Code != want || e.Error.Code != code {
			t.Errorf("%s %s: %d %s, want %d %s", method, path, w.Code, w.Body, want, code)
		}
		if strings.Contains(w.Body.String(), o.key) || strings.Contains(w.Body.String(), r.key) || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s %s tells too much: %s", method, path, w.Body)
		}
	}
	with := func(key string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+key) }
	}
	walked := 0
	for path, ops := range doc.Paths {
		path = strings.NewReplacer("{org}", "acme", "{user}", "alice", "{key}", "k1", "{limit}", "w", "{override}", "x", "{admin}", "ops", "{provider}", "openai").Replace(path)
		for method := range ops {
			method = strings.ToUpper(method)
			walked++
			shut := func(change func(*http.Request)) { try(401, "invalid_api_key", method, path, change) }
			shut(func(*http.Request) {})
			shut(with(r.key))
			shut(with(keys.New(keys.Admin)))
			shut(with(o.key[:len(o.key)-1]))
			shut(with(""))
			shut(func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer " + o.key, "Bearer " + o.key} })
			shut(func(r *http.Request) { r.Header.Set("Authorization", "Basic "+o.key) })
			shut(func(r *http.Request) { r.Header.Set("Api-Key", o.key) })
			shut(func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "key", Value: o.key}) })
			shut(func(r *http.Request) { r.URL.RawQuery = "key=" + o.key + "&api_key=" + o.key })
			for _, header := range [][2]string{{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}} {
				try(403, "cross_origin", method, path, func(r *http.Request) { with(o.key)(r); r.Header.Set(header[0], header[1]) })
			}
			switch {
			case method == "GET":
			case strings.HasPrefix(path, "/admin/v1/admins"):
				try(403, "local_only", method, path, with(o.key))
			default:
				try(403, "read_only", method, path, with(viewer.Secret))
				if method != "DELETE" && path != "/admin/v1/config/reload" { // which takes no body
					try(415, "unsupported_media_type", method, path, func(r *http.Request) { with(o.key)(r); r.Header.Set("Content-Type", "text/plain") })
				}
			}
		}
	}
	if walked < 25 {
		t.Errorf("only %d routes were walked", walked)
	}
	try(401, "invalid_api_key", "GET", "/admin/v1/nothing", func(*http.Request) {})
	try(404, "unknown_url", "GET", "/admin/v1/nothing", with(o.key))
	try(405, "method_not_allowed", "PUT", "/admin/v1/orgs", with(o.key))
	// An administrator's key calls no model, and no other listener has the API.
	for _, key := range []string{o.key, viewer.Secret} {
		if got := r.models(t, key); got != 401 {
			t.Errorf("an administrator's key at /v1: %d", got)
		}
	}
	if got := r.status(r.URL() + "/admin/v1/orgs"); got != 404 && got != 401 {
		t.Errorf("the callers' listener has the API: %d", got)
	}
	// Guessing is slowed down; a good key behind the same address still works.
	last := 0
	for range 30 {
		req := httptest.NewRequest("GET", "/admin/v1/orgs", nil)
		with(keys.New(keys.Admin))(req)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		last = w.Code
	}
	req = httptest.NewRequest("GET", "/admin/v1/orgs", nil)
	with(o.key)(req)
	w = httptest.NewRecorder()
	if h.ServeHTTP(w, req); last != 429 || w.Code != 200 {
		t.Errorf("after 30 wrong keys: %d, with the right one %d", last, w.Code)
	}
}

// TestAdminAnswers holds real answers of every route against the document.
func TestAdminAnswers(t *testing.T) {
	r := start(t, Proxy, "")
	o := r.operator(t)
	doc, raw := o.document()
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("mem:///openapi.json", raw); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	check := func(want int, method, pattern, path, body string) map[string]any {
		t.Helper()
		text := o.ask(want, method, path, body, nil)
		op, ok := doc.Paths["/admin/v1"+pattern][strings.ToLower(method)]
		if !ok {
			t.Fatalf("the document has no %s %s", method, pattern)
		}
		seen[method+" "+pattern] = true
		status := fmt.Sprint(want)
		if op.Responses[status] == nil {
			if status = "default"; want < 400 {
				t.Fatalf("%s %s: the document has no answer %d", method, pattern, want)
			}
		}
		if text == "" {
			return nil
		}
		pointer := strings.NewReplacer("~", "~0", "/", "~1").Replace("/admin/v1" + pattern)
		schema, err := compiler.Compile("mem:///openapi.json#/paths/" + pointer + "/" + strings.ToLower(method) + "/responses/" + status + "/content/application~1json/schema")
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			t.Errorf("%s %s: %s\n%v", method, path, text, err)
		}
		m, _ := v.(map[string]any)
		return m
	}
	org := "/orgs/{org}"
	check(201, "POST", "/orgs", "/orgs", `{"id":"globex","models":["gpt-*"],"max_wait":"10m","weight":150}`)
	check(400, "POST", "/orgs", "/orgs", `{"id":"Not Good"}`)
	check(400, "POST", "/orgs", "/orgs", `{"id":"other","modles":["gpt-*"]}`)
	check(400, "POST", "/orgs", "/orgs", `{"id":"other","ID":"else"}`)
	check(400, "POST", "/orgs", "/orgs", `{"id":"other","hold":"sometimes"}`)
	check(400, "POST", "/orgs", "/orgs", `{"id":"other","name":"${HOME}"}`)
	check(200, "GET", "/orgs", "/orgs", "")
	check(200, "GET", org, "/orgs/globex", "")
	check(404, "GET", org, "/orgs/nobody", "")
	check(200, "PATCH", org, "/orgs/globex", `{"weight":null,"name":"Globex"}`)
	check(201, "POST", org+"/users", "/orgs/globex/users", `{"id":"gus"}`)
	check(200, "GET", org+"/users", "/orgs/globex/users", "")
	check(200, "GET", org+"/users/{user}", "/orgs/globex/users/gus", "")
	check(200, "PATCH", org+"/users/{user}", "/orgs/globex/users/gus", `{"name":"Gus"}`)
	made := check(201, "POST", org+"/keys", "/orgs/globex/keys", `{"id":"g1","user":"gus","scopes":["calls"],"networks":["10.0.0.0/8"],"concurrency":2,"expires":"2099-01-01T00:00:00Z"}`)
	check(400, "POST", org+"/keys", "/orgs/globex/keys", `{"user":"gus","scopes":["everything"]}`)
	check(200, "GET", org+"/keys", "/orgs/globex/keys?user=gus", "")
	check(200, "GET", org+"/keys/{key}", "/orgs/globex/keys/g1", "")
	check(200, "PATCH", org+"/keys/{key}", "/orgs/globex/keys/g1", `{"networks":null}`)
	rotated := check(200, "POST", org+"/keys/{key}/rotate", "/orgs/globex/keys/g1/rotate", `{}`)
	check(200, "PATCH", org+"/limits/{limit}", "/orgs/globex/limits/daily", `{"subject":"user","amount":"$5","window":"24h"}`)
	check(400, "PATCH", org+"/limits/{limit}", "/orgs/globex/limits/other", `{"subject":"user","amount":"5","window":"24h"}`)
	check(200, "GET", org+"/limits", "/orgs/globex/limits?user=gus", "")
	check(200, "GET", org+"/limits", "/orgs/globex/limits", "")
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	over := check(201, "POST", org+"/overrides", "/orgs/globex/overrides", `{"limit":"daily","user":"gus","add":"$200","until":"`+until+`","reason":"launch"}`)
	check(400, "POST", org+"/overrides", "/orgs/globex/overrides", `{"limit":"daily","add":"200","until":"`+until+`","reason":"launch"}`)
	check(404, "POST", org+"/overrides", "/orgs/globex/overrides", `{"limit":"weekly","add":"$200","until":"`+until+`","reason":"launch"}`)
	check(200, "GET", org+"/overrides", "/orgs/globex/overrides", "")
	check(200, "POST", org+"/limits/{limit}/reset", "/orgs/globex/limits/daily/reset", `{"user":"gus","reason":"ours"}`)
	check(204, "DELETE", org+"/overrides/{override}", "/orgs/globex/overrides/"+over["id"].(string), "")
	check(204, "DELETE", org+"/limits/{limit}", "/orgs/globex/limits/daily", "")
	check(409, "PUT", org+"/credentials/{provider}", "/orgs/globex/credentials/openai", `{"secret":"sk-globex-0123456789"}`)
	check(404, "PUT", org+"/credentials/{provider}", "/orgs/globex/credentials/nobody", `{"secret":"sk-globex-0123456789","clear":true}`)
	check(200, "PUT", org+"/credentials/{provider}", "/orgs/globex/credentials/openai", `{"secret":"sk-globex-0123456789","clear":true}`)
	check(200, "GET", org+"/credentials", "/orgs/globex/credentials", "")
	check(204, "DELETE", org+"/credentials/{provider}", "/orgs/globex/credentials/openai", "")
	check(200, "GET", org+"/usage", "/orgs/acme/usage?by=day,user", "")
	check(204, "DELETE", org+"/keys/{key}", "/orgs/globex/keys/g1", "")
	check(204, "DELETE", org+"/users/{user}", "/orgs/globex/users/gus", "")
	check(204, "DELETE", org, "/orgs/globex?reason=gone", "")
	check(200, "GET", "/admins", "/admins", "")
	check(403, "POST", "/admins", "/admins", `{"id":"x"}`)
	check(403, "PATCH", "/admins/{admin}", "/admins/ops", `{}`)
	check(403, "DELETE", "/admins/{admin}", "/admins/ops", "")
	audit := check(200, "GET", "/audit", "/audit?org=globex&limit=1000", "")
	check(200, "GET", "/self", "/self", "")
	check(400, "POST", "/config/reload", "/config/reload", "") // this one was started without a file
	check(200, "GET", "/openapi.json", "/openapi.json", "")
	for path, ops := range doc.Paths {
		for method := range ops {
			if name := strings.ToUpper(method) + " " + strings.TrimPrefix(path, "/admin/v1"); !seen[name] {
				t.Errorf("no answer of %s was tried", name)
			}
		}
	}
	// The audit has every change, with who did it, and nothing that opens anything.
	text, err := json.Marshal(audit)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{made["secret"].(string), rotated["secret"].(string), "sk-globex", `"hash"`, "sha256:"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the audit has %q", secret)
		}
	}
	var actions []string
	for _, e := range audit["data"].([]any) {
		entry := e.(map[string]any)
		actions = append(actions, entry["action"].(string))
		if entry["actor"] != "ops" || entry["request_id"] == "" {
			t.Errorf("entry %v", entry)
		}
	}
	want := "org.delete user.delete key.delete credential.delete credential.set limit.unset limit.override.end limit.reset limit.override limit.set key.rotate key.update key.create user.update user.create org.update org.create"
	if got := strings.Join(actions, " "); got != want {
		t.Errorf("the audit has\n%s\nwant\n%s", got, want)
	}
}

// TestOverrideInForce: an override opens a limit for its user at once, callers see
// it in answers and at /v1/limits, and taking it away shuts the limit again.
func TestOverrideInForce(t *testing.T) {
	r := start(t, Proxy, "")
	o := r.operator(t)
	o.ask(200, "PATCH", "/orgs/acme", `{"over_limit":"refuse"}`, nil)
	o.ask(200, "PATCH", "/orgs/acme/limits/daily", `{"subject":"user","amount":"$0.000000001","window":"24h"}`, nil)
	call := func() *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", r.URL()+"/v1/chat/completions",
			strings.NewReader(`{"model":"gpt-4o-mini","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+r.key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if got := call(); got.StatusCode != 429 {
		t.Fatalf("over the limit: %d", got.StatusCode)
	}
	until := time.Now().Add(time.Hour).UTC().Truncate(time.Second).Format(time.RFC3339)
	var over struct{ ID string }
	o.ask(201, "POST", "/orgs/acme/overrides", `{"limit":"daily","user":"alice","add":"$200","until":"`+until+`","reason":"launch"}`, &over)
	got := call()
	if h := got.Header.Get("X-Llmguard-Limits"); got.StatusCode != 200 || !strings.Contains(h, "daily;metric=cost;limit=200.000000001;") || !strings.Contains(h, "override_until="+until) {
		t.Errorf("with the override: %d, limits %q", got.StatusCode, h)
	}
	var own struct {
		Data []struct {
			Limit           string
			Amount, Used    int64
			Base            int64   `json:"base_amount"`
			Until           *string `json:"override_until"`
			Held, Remaining int64
			Reset           float64 `json:"reset_seconds"`
		}
	}
	ask := func(path string, out any) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "GET", r.URL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+r.key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%s: %d %v", path, resp.StatusCode, err)
		}
	}
	await(t, "the call to be settled", func() bool {
		ask("/v1/limits", &own)
		return len(own.Data) == 2 && own.Data[0].Held == 0 && own.Data[1].Held == 0
	})
	for _, l := range own.Data {
		if l.Limit == "daily" && (l.Amount != 200_000_000_001 || l.Base != 1 || l.Until == nil || l.Used <= 0 || l.Remaining != l.Amount-l.Used || l.Reset <= 0) {
			t.Errorf("the caller's limit %+v", l)
		}
	}
	// Another user of the org spends, which alice does not see.
	other := budget.Call{ID: wire.NewCallID(), Org: "acme", User: "alice2", Key: "k9", Model: "gpt-4o"}
	hold, err := r.store.Hold(t.Context(), nil, other, budget.Amounts{Cost: 7}, budget.Amounts{Cost: 7})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Settle(t.Context(), hold, budget.Settlement{Actual: budget.Amounts{Cost: 7}, Outcome: "completed", Status: 200}); err != nil {
		t.Fatal(err)
	}
	var usage struct {
		Data  []struct{ Model string }
		Total struct {
			Calls int64
			Cost  int64 `json:"cost_nano_usd"`
		}
	}
	yesterday := time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly) // midnight may pass
	ask("/v1/usage?from="+yesterday, &usage)
	if usage.Total.Calls != 1 || usage.Total.Cost <= 7 || len(usage.Data) != 1 || usage.Data[0].Model != "gpt-4o-mini" {
		t.Errorf("the caller's usage %+v", usage)
	}
	o.ask(204, "DELETE", "/orgs/acme/overrides/"+over.ID, "", nil)
	if got := call(); got.StatusCode != 429 {
		t.Errorf("after the override: %d", got.StatusCode)
	}
	// A new amount keeps what was used.
	o.ask(200, "PATCH", "/orgs/acme/limits/daily", `{"amount":"$100"}`, nil)
	ask("/v1/limits", &own)
	for _, l := range own.Data {
		if l.Limit == "daily" && (l.Amount != 100_000_000_000 || l.Used <= 0) {
			t.Errorf("after a new amount %+v", l)
		}
	}
}

// TestOwnCredential: an org's own credential is sealed in Redis, used for its calls
// and for nobody else's, and a process without the seal key does not fall back.
func TestOwnCredential(t *testing.T) {
	const secret = "sk-acme-own-0123456789"
	r := start(t, Proxy|Worker, "queue: {seal_keys: [{id: s1, secret: a-secret-of-16-characters}]}\n")
	o := r.operator(t)
	o.ask(201, "POST", "/orgs", `{"id":"globex"}`, nil)
	o.ask(201, "POST", "/orgs/globex/users", `{"id":"gus"}`, nil)
	var other struct{ Secret string }
	o.ask(201, "POST", "/orgs/globex/keys", `{"user":"gus"}`, &other)
	o.ask(200, "PUT", "/orgs/acme/credentials/openai", `{"secret":"`+secret+`"}`, nil)
	ask := func(key string, async bool) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), "POST", r.URL()+"/v1/chat/completions",
			strings.NewReader(`{"model":"gpt-4o-mini","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		if async {
			req.Header.Set("Prefer", "respond-async")
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	with := func(auth string) (n int) {
		for _, e := range r.fake.Log() {
			if e.Header.Get("Authorization") == "Bearer "+auth {
				n++
			}
		}
		return n
	}
	if got := ask(r.key, false); got != 200 || with(secret) != 1 {
		t.Errorf("a call with the org's own credential: %d, %d of them at the provider", got, with(secret))
	}
	if got := ask(other.Secret, false); got != 200 || with(secret) != 1 {
		t.Errorf("another org's call: %d, %d with the first one's credential", got, with(secret))
	}
	if got := ask(r.key, true); got != 202 {
		t.Errorf("a job: %d", got)
	}
	await(t, "the job with the org's own credential", func() bool { return with(secret) == 2 })
	rdb := r.redis.Client()
	kept := fmt.Sprint(rdb.HVals(t.Context(), "lg:{identity:}:records").Val(), rdb.XRange(t.Context(), "lg:{identity:}:audit", "-", "+").Val())
	if strings.Contains(kept, secret) || strings.Contains(kept, base64.StdEncoding.EncodeToString([]byte(secret))) || !strings.Contains(kept, `"sealed"`) {
		t.Errorf("Redis has the credential in the clear, or not at all: %s", kept)
	}
	i := r.ids
	i.mu.Lock()
	without := *i.base
	without.seal = nil
	i.mu.Unlock()
	i.setFile(r.Config(), &without)
	if got := ask(r.key, false); got != 503 || with(secret) != 2 {
		t.Errorf("a credential that cannot be opened: %d, %d at the provider", got, with(secret))
	}
}
