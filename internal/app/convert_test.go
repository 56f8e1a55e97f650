package app

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/keys"
)

func read(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("test", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// obeyed says, for every field of the configuration, who obeys it. A field that
// is new is missing here until somebody has thought of that.
var obeyed = map[string]string{
	"Listen": "New", "Admin.Listen": "New", "Name": "errors",
	"Redis.Addresses": "redisOptions", "Redis.URL": "redisOptions", "Redis.Mode": "Connect", "Redis.MasterName": "redisOptions",
	"Redis.Username": "redisOptions", "Redis.Password": "redisOptions", "Redis.DB": "redisOptions",
	"Redis.SentinelUsername": "redisOptions", "Redis.SentinelPassword": "redisOptions",
	"Redis.TLS.Enabled": "redisOptions", "Redis.TLS.CAFile": "tlsConfig", "Redis.TLS.CertFile": "tlsConfig",
	"Redis.TLS.KeyFile": "tlsConfig", "Redis.TLS.ServerName": "tlsConfig",
	"Auth.Peppers.ID": "convert", "Auth.Peppers.Secret": "convert", "TrustedProxies": "proxyOptions",
	"Requests.MaxBody": "proxyOptions", "Requests.MaxDepth": "scanLimits", "Requests.MaxJSONTokens": "scanLimits",
	"Timeouts.ReadHeader": "serveCalls", "Timeouts.ReadBody": "proxyOptions", "Timeouts.Write": "proxyOptions",
	"Timeouts.Idle": "serveCalls", "Timeouts.Drain": "serveCalls", "Timeouts.Shutdown": "serveCalls",
	"Store.OnFailure": "one choice", "Store.Deadline": "New, proxyOptions", "KillSwitch": "limits",
	"UnknownModelPrice": "ReadPrices", "Prices": "ReadPrices",
	"Providers.ID": "upstreams", "Providers.Kind": "one choice", "Providers.BaseURL": "upstreams", "Providers.APIKey": "upstreams",
	"Providers.Organization": "upstreams", "Providers.Project": "upstreams", "Providers.Headers": "upstreams",
	"Providers.ConnectTimeout": "upstreams", "Providers.HeaderTimeout": "upstreams", "Providers.IdleTimeout": "upstreams",
	"Providers.Models": "upstreams", "Providers.ModelMap": "upstreams",
	"Providers.Pools.ID": "addPools", "Providers.Pools.Models": "upstreams", "Providers.Pools.RPM": "addPools",
	"Providers.Pools.TPM": "addPools", "Providers.Pools.TPMCounting": "one choice", "Providers.Pools.Concurrency": "addPools",
	"Providers.Pools.MaxJobs": "addPools", "Providers.Pools.MaxBytes": "addPools", "Providers.Pools.MaxAge": "addPools",
	"Providers.Pools.WorkerConcurrency": "addPools",
	"Orgs.ID":                           "addOrg", "Orgs.Name": "for people", "Orgs.Models": "addOrg", "Orgs.Providers": "addOrg",
	"Orgs.DefaultOutputLimit": "addOrg", "Orgs.OverLimit": "addOrg", "Orgs.MaxWait": "addOrg", "Orgs.OnDisconnect": "addOrg",
	"Orgs.AllowBuiltinTools": "addOrg", "Orgs.RetryStartedJobs": "addOrg",
	"Orgs.Users.ID": "addOrg", "Orgs.Users.Keys.ID": "addOrg", "Orgs.Users.Keys.Hash": "addOrg",
	"Orgs.Users.Keys.Models": "addOrg", "Orgs.Users.Keys.Expires": "addOrg", "Orgs.Users.Keys.Disabled": "addOrg",
	"Limits.Name": "limits", "Limits.Subject": "limits", "Limits.Only": "limits", "Limits.Models": "limits",
	"Limits.Endpoints": "limits", "Limits.Metric": "limits", "Limits.Mode": "limits", "Limits.Amount": "shapeOf",
	"Limits.Window": "shapeOf", "Limits.Exact": "shapeOf", "Limits.Calendar": "shapeOf", "Limits.TZ": "shapeOf",
	"Limits.Bucket.Capacity": "shapeOf", "Limits.Bucket.Refill": "shapeOf",
	"Queue.ResultTTL": "addPools", "Queue.Lease": "New", "Queue.Shutdown": "New", "Queue.Hold": "proxyOptions", "Queue.KeepAlive": "proxyOptions",
	"Ledger.ExportDir": "exporter", "Ledger.MaxEntries": "LedgerLength",
	"Log.Level": "Logger", "Log.Format": "Logger",
}

// TestEveryFieldIsObeyed: nothing in the configuration is silently ignored.
func TestEveryFieldIsObeyed(t *testing.T) {
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		for typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.PkgPath() != reflect.TypeFor[config.Config]().PkgPath() || typ.Kind() != reflect.Struct || typ == reflect.TypeFor[config.Raw]() ||
			typ == reflect.TypeFor[config.Quantity]() || typ == reflect.TypeFor[config.Rate]() {
			if obeyed[path] == "" {
				t.Errorf("nobody obeys %s", path)
			}
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			name := f.Name
			if name != "Limits" && path != "" { // those of users and orgs are the same
				name = path + "." + f.Name
			}
			if f.IsExported() {
				walk(name, f.Type)
			}
		}
	}
	walk("", reflect.TypeFor[config.Config]())
}

func TestConvert(t *testing.T) {
	pepper := keys.Pepper{ID: "p1", Secret: "a-secret-of-16-characters"}
	key := keys.New(keys.Live)
	c := read(t, `
auth: {peppers: [{id: p1, secret: a-secret-of-16-characters}]}
providers:
  - id: openai
    base_url: https://api.example.com/v1/
    api_key: sk-1
    organization: org-1
    project: proj-1
    headers: {x-extra: "7"}
    connect_timeout: 1s
    response_header_timeout: 2s
    idle_timeout: 3s
    models: [listed]
    model_map: {smart: gpt-4o}
    pools: [{id: big, models: ["gpt-4*"], rpm: 5, tpm: 6, concurrency: 7, max_jobs: 8, max_bytes: 9KB, max_age: 10s, worker_concurrency: 11}, {id: rest}]
orgs:
  - id: acme
    models: ["gpt-*"]
    providers: [openai]
    default_output_limit: 12
    over_limit: wait
    max_wait: 13s
    on_disconnect: finish
    allow_builtin_tools: true
    retry_started_jobs: false
    limits:
      - {name: a, subject: org, metric: cost, amount: $5, window: 1h}
      - {name: b, subject: user, metric: tokens, amount: 14, window: 1m, exact: true, models: ["gpt-4*"], endpoints: [embeddings], mode: shadow}
      - {name: c, subject: key, metric: requests, amount: 15, calendar: day, tz: Europe/Berlin, only: k1}
      - {name: d, subject: ip, metric: cost, bucket: {capacity: $16, refill: $17/1h}, mode: "off"}
      - {name: e, subject: user, metric: concurrency, amount: 18}
    users:
      - {id: alice, keys: [{id: k1, hash: "`+keys.Hash(pepper, key)+`", models: ["gpt-4o"], expires: 2030-01-31, disabled: true}]}
      - {id: bob, limits: [{name: b, metric: tokens, amount: 19, window: 1m}]}
queue: {result_ttl: 20s}
`)
	s, err := convert(c)
	if err != nil {
		t.Fatal(err)
	}
	up := s.policy.Providers.All()[0]
	if up.ID != "openai" || up.BaseURL.String() != "https://api.example.com/v1" || up.APIKey != "sk-1" || up.ConnectTimeout != time.Second || up.HeaderTimeout != 2*time.Second || up.IdleTimeout != 3*time.Second ||
		up.Headers.Get("OpenAI-Organization") != "org-1" || up.Headers.Get("OpenAI-Project") != "proj-1" || up.Headers.Get("X-Extra") != "7" ||
		up.Aliases["smart"] != "gpt-4o" || up.Models[0] != "listed" || up.Pools[0].Models[0] != "gpt-4*" {
		t.Errorf("provider %+v", up)
	}
	if p := s.pools[0]; p.ID != "big" || p.RPM != 5 || p.TPM != 6 || p.Concurrency != 7 || p.MaxJobs != 8 || p.MaxBytes != 9000 || p.MaxAge != 10*time.Second || p.ResultTTL != 20*time.Second || s.workers["big"] != 11 || len(s.pools) != 2 {
		t.Errorf("pools %+v", s.pools)
	}
	org := s.policy.Orgs["acme"]
	if org.Models[0] != "gpt-*" || org.Providers[0] != "openai" || org.DefaultOutputLimit != 12 || org.RefuseOverLimit || org.MaxWait != 13*time.Second || org.OnDisconnect != guard.Finish || !org.AllowBuiltinTools || !org.KeepStarted {
		t.Errorf("org %+v", org)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	want := []budget.Limit{
		{ID: "a", Subject: budget.Org, Metric: budget.Cost, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.Window, Amount: 5e9, Window: time.Hour}},
		{ID: "b", Subject: budget.User, Metric: budget.Tokens, Mode: budget.Shadow, Models: []string{"gpt-4*"}, Endpoints: []string{"embeddings"}, Shape: budget.Shape{Kind: budget.ExactWindow, Amount: 14, Window: time.Minute}},
		{ID: "c", Subject: budget.Key, Only: "k1", Metric: budget.Requests, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.Calendar, Amount: 15, Calendar: "day", Location: berlin}},
		{ID: "d", Subject: budget.IP, Metric: budget.Cost, Mode: budget.Off, Shape: budget.Shape{Kind: budget.Bucket, Amount: 16e9, Refill: 17e9, Per: time.Hour}},
		{ID: "e", Subject: budget.User, Metric: budget.Concurrency, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.Concurrent, Amount: 18}},
	}
	if !reflect.DeepEqual(org.Limits, want) {
		t.Errorf("limits\n%+v\nwant\n%+v", org.Limits, want)
	}
	bobs := org.UserLimits["bob"]
	if len(bobs) != 5 || bobs[1].Shape.Amount != 19 || bobs[1].Only != "bob" || len(org.UserLimits) != 1 {
		t.Errorf("bob's limits %+v", bobs)
	}
	p, ok := s.directory.ByHash[keys.Hash(pepper, key)]
	if !ok || p.Org != org || p.User != "alice" || p.Key != "k1" || p.Models[0] != "gpt-4o" || !p.Disabled || p.Expires.Year() != 2030 || s.directory.Peppers[0] != pepper {
		t.Errorf("key %+v, peppers %v", p, s.directory.Peppers)
	}
}

func TestKillSwitch(t *testing.T) {
	s, err := convert(read(t, `
kill_switch: shadow
providers: [{id: p, base_url: "http://x/v1"}]
orgs: [{id: acme, over_limit: refuse, limits: [{name: a, amount: $5, window: 1h}, {name: b, amount: $5, window: 1h, mode: "off"}]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	org := s.policy.Orgs["acme"]
	if org.Limits[0].Mode != budget.Shadow || org.Limits[1].Mode != budget.Off || !org.RefuseOverLimit {
		t.Errorf("limits %+v", org.Limits)
	}
}

func TestConvertRefuses(t *testing.T) {
	for text, says := range map[string]string{
		`[{id: p, base_url: "http://x/v1", pools: [{id: a}]}, {id: q, base_url: "http://x/v1", pools: [{id: b}]}]`: "",
		"[{id: p, base_url: \"http://x/v1\"}]\nprices: [{model: x, prices: [{input: 1, inptu: 2}]}]":               "prices",
	} {
		c, err := config.Parse("test", []byte("providers: "+text+"\norgs: [{id: acme}]\n"), func(string) (string, bool) { return "", false })
		if err == nil {
			_, err = convert(c)
		}
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
