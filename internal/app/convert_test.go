package app

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/auth/keys"
	tenancy "github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/quota"
)

func read(t *testing.T, text string) *config.Config {
	t.Helper()
	c, err := config.Parse("test", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// selected returns the names after a dot in the packages that may obey a setting: all but config, which also checks them.
func selected(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{"OnFailure": true} // package config copies it to orgs
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"../../config", "../../test", "../../bench", "../../.git"}, path):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err == nil {
			ast.Inspect(file, func(n ast.Node) bool {
				if at, ok := n.(*ast.SelectorExpr); ok {
					out[at.Sel.Name] = true
				}
				return true
			})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestEveryFieldIsObeyed checks that no setting is silently ignored: something reads each.
func TestEveryFieldIsObeyed(t *testing.T) {
	read := selected(t)
	var walk func(typ reflect.Type)
	walk = func(typ reflect.Type) {
		if typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if !tenancy.IsSection(typ) {
			return
		}
		for _, f := range reflect.VisibleFields(typ) {
			if f.IsExported() && !read[f.Name] {
				t.Errorf("nobody obeys %s.%s", typ, f.Name)
			}
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[config.Config]())
}

// everything sets most fields; %s is the hash of alice's key.
const everything = `
auth: {peppers: [{id: p1, secret: a-secret-of-16-characters}]}
providers:
  - id: openai
    base_url: https://api.example.com/v1/
    api_key: sk-1
    organization: org-1
    project: proj-1
    headers: {x-extra: "7"}
    identifiers: as_sent
    service_tier: priority
    document_tokens: 25
    allow_fields: [plugins, "x_*"]
    prompts: [{id: pmpt_1, model: gpt-4o, input_tokens: 30, orgs: [acme]}]
    output_limit_field: max_tokens
    reported_cost: ignore
    spend_caps: [{name: day, metric: tokens, amount: 20, calendar: week, starts: sunday, tz: Europe/Berlin, models: ["gpt-5*"], endpoints: [chat.completions], mode: shadow}]
    connect_timeout: 1s
    response_header_timeout: 2s
    idle_timeout: 3s
    models: [gpt-4.1-nano]
    model_map: {smart: gpt-4o}
    pools: [{id: big, models: ["gpt-4*"], rpm: 5, tpm: 6, tpm_counting: actual, learn_quota: false, concurrency: 7, max_jobs: 8, max_bytes: 9KB, max_age: 10s, max_pause: 30s, worker_concurrency: 11}, {id: rest, itpm: 12, otpm: 13}]
orgs:
  - id: acme
    models: ["gpt-*"]
    providers: [openai]
    default_output_limit: 12
    hold: grow
    grow_step: 21
    over_limit: wait
    max_wait: 13s
    on_disconnect: finish
    allow_builtin_tools: true
    retry_started_jobs: false
    batch_mode: provider
    weight: 200
    max_priority: high
    model_priority: {"gpt-*": low, "gpt-4*": high}
    limits:
      - {name: a, subject: org, metric: cost, amount: $5, window: 1h}
      - {name: b, subject: user, metric: tokens, amount: 14, window: 1m, exact: true, models: ["gpt-4*"], endpoints: [embeddings], mode: shadow}
      - {name: c, subject: key, metric: requests, amount: 15, calendar: year, starts: "04-06", tz: Europe/Berlin, only: k1}
      - {name: f, metric: requests, amount: 25, window: 5m, fixed: true}
      - {name: d, subject: ip, metric: cost, bucket: {capacity: $16, refill: $17/1h}, mode: "off"}
      - {name: e, subject: user, metric: concurrency, amount: 18}
    users:
      - {id: alice, keys: [{id: k1, hash: "%s", models: ["gpt-4o"], expires: 2030-01-31, disabled: true, scopes: [calls], networks: [10.0.0.0/8], concurrency: 3, priority: high}]}
      - {id: bob, disabled: true, weight: 50, priority: low, limits: [{name: b, metric: tokens, amount: 19, window: 1m}]}
queue: {result_ttl: 20s}
connections: {ipv6_prefix: 56}
request_limits:
  - {name: door, subject: ip, amount: 26, window: 1m}
  - {name: lists, subject: user, class: read, endpoints: [/v1/jobs], methods: [GET], bucket: {capacity: 27, refill: 28/1s}, mode: shadow}
spend_caps:
  - {name: hour, amount: $21, window: 1h}
  - {name: minute, metric: requests, amount: 22, window: 1m, exact: true}
  - {name: prepaid, bucket: {capacity: $23, refill: $24/1h}, mode: "off"}
`

var pepper = keys.Pepper{ID: "p1", Secret: "a-secret-of-16-characters"}

// convertAll converts everything and returns it with alice's key.
func convertAll(t *testing.T) (*settings, string) {
	t.Helper()
	key := keys.New(keys.Live)
	s, err := convert(read(t, fmt.Sprintf(everything, keys.Hash(pepper, key))))
	if err != nil {
		t.Fatal(err)
	}
	return s, key
}

func TestConvertProvider(t *testing.T) {
	s, _ := convertAll(t)
	up := s.policy.Providers.All()[0]
	if up.ID != "openai" || up.BaseURL.String() != "https://api.example.com/v1" || up.APIKey != "sk-1" || up.ConnectTimeout != time.Second || up.HeaderTimeout != 2*time.Second || up.IdleTimeout != 3*time.Second ||
		up.Headers.Get("OpenAI-Organization") != "org-1" || up.Headers.Get("OpenAI-Project") != "proj-1" || up.Headers.Get("X-Extra") != "7" ||
		up.ServiceTier != "priority" || !up.Allows("x_1") || up.Allows("models") || up.LimitField != "max_tokens" || up.ReportedCost != "ignore" || up.DocumentTokens != 25 ||
		up.Prompts["pmpt_1"].Model != "gpt-4o" || up.Prompts["pmpt_1"].InputTokens != 30 || up.Prompts["pmpt_1"].Orgs[0] != "acme" ||
		up.Aliases["smart"] != "gpt-4o" || up.Models[0] != "gpt-4.1-nano" || up.Pools[0].Models[0] != "gpt-4*" {
		t.Errorf("got provider %+v, want what the file says", up)
	}
}

func TestConvertPools(t *testing.T) {
	s, _ := convertAll(t)
	if p := s.pools[0]; p.ID != "big" || p.RPM != 5 || p.TPM != 6 || p.Concurrency != 7 || p.MaxJobs != 8 || p.MaxBytes != 9000 || p.MaxAge != 10*time.Second || p.MaxPause != 30*time.Second || p.ResultTTL != 20*time.Second || s.workers["big"] != 11 || !p.FixedQuota || !p.ActualTokens || s.pools[1].FixedQuota || s.pools[1].ActualTokens || len(s.pools) != 2 || p.Split || p.OTPM != 0 || s.pools[1].TPM != 12 || !s.pools[1].Split || s.pools[1].OTPM != 13 {
		t.Errorf("got pools %+v, want what the file says", s.pools)
	}
}

func TestConvertOrg(t *testing.T) {
	s, _ := convertAll(t)
	org := s.policy.Orgs["acme"]
	if org.Models[0] != "gpt-*" || org.Providers[0] != "openai" || org.DefaultOutputLimit != 12 || org.Hold != "grow" || org.GrowStep != 21 || org.RefusesOverLimit() || org.MaxWait != 13*time.Second || org.OnDisconnect != guard.Finish || !org.AllowBuiltinTools || !org.KeepStarted || org.BatchMode != guard.ByProvider || s.policy.Providers.All()[0].BatchMode != guard.ByQueue {
		t.Errorf("got org %+v, want what the file says", org)
	}
}

func TestConvertPriorities(t *testing.T) {
	s, _ := convertAll(t)
	got := s.policy.Orgs["acme"].Priorities
	want := guard.Priorities{
		Most: quota.High, Users: map[string]quota.Priority{"bob": quota.Low}, Keys: map[string]quota.Priority{"k1": quota.High},
		Models: []guard.ModelPriority{{Pattern: "gpt-4*", Priority: quota.High}, {Pattern: "gpt-*", Priority: quota.Low}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestConvertLimits(t *testing.T) {
	s, _ := convertAll(t)
	org := s.policy.Orgs["acme"]
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	want := []budget.Limit{
		{ID: "a", Subject: budget.Org, Metric: budget.Cost, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.Window, Amount: 5e9, Window: time.Hour}},
		{ID: "b", Subject: budget.User, Metric: budget.Tokens, Mode: budget.Shadow, Models: []string{"gpt-4*"}, Endpoints: []string{"embeddings"}, Shape: budget.Shape{Kind: budget.ExactWindow, Amount: 14, Window: time.Minute}},
		{ID: "c", Subject: budget.Key, Only: "k1", Metric: budget.Requests, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.Calendar, Amount: 15, Calendar: "year", Starts: "04-06", Location: berlin}},
		{ID: "f", Subject: budget.Org, Metric: budget.Requests, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.Fixed, Amount: 25, Window: 5 * time.Minute}},
		{ID: "d", Subject: budget.IP, IPv6Prefix: 56, Metric: budget.Cost, Mode: budget.Off, Shape: budget.Shape{Kind: budget.Bucket, Amount: 16e9, Refill: 17e9, Per: time.Hour}},
		{ID: "e", Subject: budget.User, Metric: budget.Concurrency, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.Concurrent, Amount: 18}},
	}
	if !reflect.DeepEqual(org.Limits, want) {
		t.Errorf("limits\n%+v\nwant\n%+v", org.Limits, want)
	}
}

func TestConvertCaps(t *testing.T) {
	s, _ := convertAll(t)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	want := []budget.Cap{
		{Provider: "openai", Limits: []budget.Limit{{
			ID: "day", Subject: budget.Org, Metric: budget.Tokens, Mode: budget.Shadow, Models: []string{"gpt-5*"}, Endpoints: []string{"chat.completions"},
			Shape: budget.Shape{Kind: budget.Calendar, Amount: 20, Calendar: "week", Starts: "sunday", Location: berlin},
		}}},
		{Limits: []budget.Limit{
			{ID: "hour", Subject: budget.Org, Metric: budget.Cost, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.Window, Amount: 21e9, Window: time.Hour}},
			{ID: "minute", Subject: budget.Org, Metric: budget.Requests, Mode: budget.Enforce, Shape: budget.Shape{Kind: budget.ExactWindow, Amount: 22, Window: time.Minute}},
			{ID: "prepaid", Subject: budget.Org, Metric: budget.Cost, Mode: budget.Off, Shape: budget.Shape{Kind: budget.Bucket, Amount: 23e9, Refill: 24e9, Per: time.Hour}},
		}},
	}
	if !reflect.DeepEqual(s.policy.Caps, want) {
		t.Errorf("caps\n%+v\nwant\n%+v", s.policy.Caps, want)
	}
}

func TestConvertRequestLimits(t *testing.T) {
	s, _ := convertAll(t)
	want := []guard.RequestLimit{
		{Limit: budget.Limit{
			ID: "door", Subject: budget.IP, IPv6Prefix: 56, Metric: budget.Requests, Mode: budget.Enforce,
			Shape: budget.Shape{Kind: budget.Window, Amount: 26, Window: time.Minute},
		}},
		{Limit: budget.Limit{
			ID: "lists", Subject: budget.User, Metric: budget.Requests, Mode: budget.Shadow, Endpoints: []string{"/v1/jobs"},
			Shape: budget.Shape{Kind: budget.Bucket, Amount: 27, Refill: 28, Per: time.Second},
		}, Class: guard.Reads, Methods: []string{"GET"}},
	}
	if !reflect.DeepEqual(s.policy.RequestLimits, want) {
		t.Errorf("request limits\n%+v\nwant\n%+v", s.policy.RequestLimits, want)
	}
}

func TestConvertUsers(t *testing.T) {
	s, _ := convertAll(t)
	org := s.policy.Orgs["acme"]
	bobs := org.UserLimits["bob"]
	if len(bobs) != 6 || bobs[1].Shape.Amount != 19 || bobs[1].Only != "bob" || len(org.UserLimits) != 1 {
		t.Errorf("bob's limits: got %+v, want 6, the second of 19 tokens", bobs)
	}
	if l := org.LimitsFor("alice", "k1"); len(l) != 7 || l[6].Shape.Amount != 3 || l[6].Only != "k1" || l[6].Metric != budget.Concurrency || len(org.LimitsFor("alice", "k2")) != 6 {
		t.Errorf("limits of the key: got %+v, want 7, the last of 3 calls at once", l)
	}
	if !org.DisabledUsers["bob"] || org.DisabledUsers["alice"] {
		t.Errorf("got disabled %v, want bob", org.DisabledUsers)
	}
	if want := map[string]int{"acme": 200, "acme bob": 50}; !reflect.DeepEqual(s.weights, want) {
		t.Errorf("weights %v, want %v", s.weights, want)
	}
}

func TestConvertKey(t *testing.T) {
	s, key := convertAll(t)
	org := s.policy.Orgs["acme"]
	p, ok := s.directory.ByHash[keys.Hash(pepper, key)]
	if !ok || p.Org != org || p.User != "alice" || p.Key != "k1" || p.Models[0] != "gpt-4o" || !p.Disabled || p.Expires.Year() != 2030 || s.directory.Peppers[0] != pepper ||
		p.Scopes[0] != "calls" || p.Networks[0].String() != "10.0.0.0/8" {
		t.Errorf("got key %+v, peppers %v; want what the file says", p, s.directory.Peppers)
	}
}

func TestKillSwitch(t *testing.T) {
	s, err := convert(read(t, `
kill_switch: shadow
spend_caps: [{name: a, amount: $5, window: 1h}]
request_limits: [{name: a, subject: ip, amount: 5, window: 1h}]
providers: [{id: p, base_url: "http://x/v1"}]
orgs: [{id: acme, over_limit: refuse, limits: [{name: a, amount: $5, window: 1h}, {name: b, amount: $5, window: 1h, mode: "off"}]}]
`))
	if err != nil {
		t.Fatal(err)
	}
	org := s.policy.Orgs["acme"]
	if org.Limits[0].Mode != budget.Shadow || org.Limits[1].Mode != budget.Off || !org.RefusesOverLimit() || s.policy.Caps[0].Limits[0].Mode != budget.Shadow || s.policy.RequestLimits[0].Mode != budget.Shadow {
		t.Errorf("limits %+v, caps %+v", org.Limits, s.policy.Caps)
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

func TestConvertRaiseRequests(t *testing.T) {
	usd := func(n int64) config.Quantity { return config.Quantity{N: n * 1e9, Money: true} }
	const head = "public_url: https://llm.example.com/\nproviders: [{id: openai, base_url: \"https://a.example/v1\"}]\n"
	for text, want := range map[string]tenancy.RaiseRequests{
		"orgs: [{id: acme}]": {Mode: "refuse", MaxAmount: usd(50), MaxFor: 24 * time.Hour},
		"orgs: [{id: acme, raise_requests: {mode: allow}}]": {Mode: "allow", MaxAmount: usd(50), MaxFor: 24 * time.Hour},
		"defaults: {raise_requests: {mode: allow, max_amount: $5, max_for: 2h}}\norgs: [{id: acme}]": {
			Mode: "allow", MaxAmount: usd(5), MaxFor: 2 * time.Hour,
		},
		"defaults: {raise_requests: {mode: allow, max_amount: $5}}\norgs: [{id: acme, raise_requests: {mode: refuse, max_for: 1h}}]": {
			Mode: "refuse", MaxAmount: usd(5), MaxFor: time.Hour,
		},
	} {
		s, err := convert(read(t, head+text))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.policy.Orgs["acme"].RaiseRequests; got != want {
			t.Errorf("%s: got %+v, want %+v", text, got, want)
		}
		if got := s.policy.PublicURL; got != "https://llm.example.com" {
			t.Errorf("public URL: got %q, want it without the slash", got)
		}
	}
}
