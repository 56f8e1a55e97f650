package checks

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/redistest"
)

// TestList: a check has a name, an area and needs, and runs once in each command that meets them, and in no other.
func TestList(t *testing.T) {
	rdb := redistest.Start(t)
	read := func() *examination {
		return read(t, "redis: {addresses: [\""+rdb.Addr+"\"]}\n"+provider+bounded)
	}
	commands := map[string]func(*examination){
		"check":    func(e *examination) { e.file(t.Context(), false) },
		"live":     func(e *examination) { e.file(t.Context(), true) },
		"doctor":   func(e *examination) { e.deployment(t.Context()) },
		"overview": func(e *examination) { e.rdb = rdb.DB(); e.state(t.Context()) },
		"banner":   func(e *examination) { e.meet(t.Context(), needStops) },
	}
	// A new check of prices is one row.
	rows := append(list(), check{name: "new", area: "prices", needs: needModels})
	ran := map[string][]string{} // by name of the check
	for command, run := range commands {
		e := read()
		e.list = slices.Clone(rows)
		for i, c := range e.list {
			e.list[i].run = func(context.Context, *examination, *diagnose.Report) {
				if e.met&c.needs != c.needs {
					t.Errorf("%s runs %s without what it needs", command, c.name)
				}
				ran[c.name] = append(ran[c.name], command)
			}
		}
		run(e)
		for _, c := range rows {
			if slices.Contains(ran[c.name], command) != (e.met&c.needs == c.needs) {
				t.Errorf("%s meets %b and runs %s, which needs %b: %v", command, e.met, c.name, c.needs, ran[c.name])
			}
		}
	}
	for _, c := range rows {
		slices.Sort(ran[c.name])
		if c.name == "" || c.area == "" || c.needs == 0 || len(ran[c.name]) == 0 ||
			len(slices.Compact(slices.Clone(ran[c.name]))) != len(ran[c.name]) {
			t.Errorf("got %+v, which runs in %v, want a name, an area, needs and some commands, once each", c, ran[c.name])
		}
	}
	if want := []string{"check", "doctor", "live", "overview"}; !slices.Equal(ran["new"], want) || !slices.Equal(ran["old prices"], want) {
		t.Errorf("the checks of prices run in %v and %v, want %v", ran["new"], ran["old prices"], want)
	}
	if got := ran["running processes"]; !slices.Equal(got, []string{"doctor"}) {
		t.Errorf("the processes are checked in %v, want doctor", got)
	}
}

const (
	provider = "providers: [{id: p, base_url: https://api.openai.com/v1}]\n"
	limits   = "limits: [{name: month, amount: $5, calendar: month}]"
	bounded  = "orgs: [{id: acme, " + limits + "}]\n"
	local    = "listen: 127.0.0.1:0\nadmin: {listen: \"127.0.0.1:0\"}\n"
)

// read returns an examination of a file.
func read(t *testing.T, text string) *examination {
	t.Helper()
	if !strings.Contains(text, "listen: ") {
		text += local
	}
	path := t.TempDir() + "/llmguard.yaml"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, policy, err := app.Check(path, config.LoadOperator)
	if err != nil {
		t.Fatalf("%s\n%v", text, err)
	}
	e := examine(cfg, policy)
	e.lacking, e.running = diagnose.Warning, func(context.Context, string) bool { return false }
	return e
}

// problems returns the level and text of each finding but those that are OK, after checking what all have in common.
func problems(t *testing.T, found []diagnose.Finding) (out []string) {
	t.Helper()
	for _, f := range found {
		if f.Level == diagnose.OK {
			continue
		}
		out = append(out, string(f.Level)+" "+f.What)
		if f.Fix == "" && !strings.HasPrefix(f.What, "cannot be checked") || f.Area == "" || strings.Contains(f.What+f.Fix, "sk-1") {
			t.Errorf("got %+v, want a fix, an area and no secret", f)
		}
		if (f.Path != "") != (f.Line > 0 && strings.Contains(f.Excerpt, "^")) {
			t.Errorf("got %+v, want a line and a caret with a path", f)
		}
	}
	return out
}

// only compares problems with parts of their texts.
func only(t *testing.T, name string, found []diagnose.Finding, want ...string) {
	t.Helper()
	got := problems(t, found)
	if !slices.EqualFunc(got, want, func(got, want string) bool {
		level, what, _ := strings.Cut(want, " ")
		return strings.HasPrefix(got, level+" ") && strings.Contains(got, what)
	}) {
		t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

// TestFile: a file's mistakes and what it exposes are found at their places, and nothing else.
func TestFile(t *testing.T) {
	t.Setenv("PROVIDER_KEY", "sk-1")
	const random = "5f1d8c0b7a96e342af04c19be8d2706f"
	at := func(url, more string) string {
		return "providers: [{id: p, base_url: \"" + url + "\"" + more + "}]\n" + bounded
	}
	const fromEnv = `, api_key: "${PROVIDER_KEY}"`
	pools := func(list string) string { return at("https://api.openai.com/v1", ", pools: ["+list+"]") }
	claude := func(quotas string) string {
		return at("https://api.anthropic.com/v1", ", kind: anthropic, pools: [{id: claude, "+quotas+"}]")
	}
	two := "providers: [{id: p, base_url: https://a.example/v1}, {id: q, base_url: https://b.example/v1}]\n"
	orgs := func(list string) string { return provider + "orgs: [" + list + "]\n" }
	user := func(id, ofKey, more string) string {
		return `{id: ` + id + `, keys: [{id: ` + id + `, hash: "sha256:` + strings.Repeat(id[:1], 64) + `"` + ofKey + "}]" + more + "}"
	}
	day := func(days int) string { return time.Now().AddDate(0, 0, days).Format(time.DateOnly) }
	expires := func(days int) string {
		return orgs("{id: acme, " + limits + ", users: [" + user("ada", ", expires: "+day(days), "") + "]}")
	}
	const own = ", limits: [{name: day, amount: $1, calendar: day}]"
	served := "providers: [{id: openai, base_url: \"https://a.example/v1\", pools: [{id: m, models: [\"gpt-*\", \"odd-*\"]}]}, " +
		"{id: second, base_url: \"https://b.example/v1\", pools: [{id: o, models: [\"second-*\"]}]}]\ndefaults: {" + limits + "}\n"
	good := provider + bounded
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"an ordinary file":             {good, nil},
		"a pool behind a catch-all":    {pools(`{id: all, models: ["*"]}, {id: gpt, models: ["gpt-*"]}`), []string{"warning providers[0].pools[1]: "}},
		"a pool behind a wider one":    {pools(`{id: gpt, models: ["gpt-*"]}, {id: mini, models: [gpt-4o-mini, "gpt-5*"]}`), []string{"warning providers[0].pools[1]: "}},
		"a pool without models first":  {pools(`{id: all}, {id: gpt, models: ["gpt-*"]}`), []string{"warning providers[0].pools[1]: "}},
		"the catch-all last":           {pools(`{id: gpt, models: ["gpt-*"]}, {id: all, models: ["*"]}`), nil},
		"a pool that is partly left":   {pools(`{id: gpt, models: ["gpt-*"]}, {id: more, models: [gpt-4o, o3]}`), nil},
		"one quota of Claude's tokens": {claude("tpm: 400k"), []string{"warning providers[0].pools[0].tpm: "}},
		"two quotas of tokens":         {claude("itpm: 400k, otpm: 80k"), nil},
		"a provider behind another":    {two + bounded, []string{"warning providers[1].id: "}},
		"one that an org goes to":      {two + "orgs: [{id: acme, providers: [q], " + limits + "}]\n", nil},
		"/v1/v1":                       {at("https://api.openai.com/v1/v1/", ""), []string{"warning providers[0].base_url: "}},
		"a host alone":                 {at("https://api.openai.com", ""), []string{"warning providers[0].base_url: "}},
		"/v1 of Azure":                 {at("https://n.openai.azure.com/v1", ", kind: azure"), []string{"warning providers[0].base_url: "}},
		"a gateway's path":             {at("https://gw.example/openai/v1", ""), nil},
		"a key expired last year":      {expires(-400), []string{"warning orgs[0].users[0].keys[0].expires: "}},
		"a key expired last week":      {expires(-7), nil},
		"a key that is good":           {expires(7), nil},
		"a downgrade without a price":  {orgs("{id: acme, " + limits + ", downgrade: {gpt-4o: never-heard-of}}"), []string{"error orgs[0].downgrade.gpt-4o: never-heard-of has no price"}},
		"a downgrade":                  {orgs("{id: acme, " + limits + ", downgrade: {gpt-4o: gpt-4o-mini}}"), nil},
		"a downgrade to no pool":       {served + "orgs: [{id: acme, downgrade: {gpt-4o: llama}}]\n", []string{"error orgs[0].downgrade.gpt-4o: no provider's pool serves llama"}},
		"an org called all":            {orgs("{id: all, " + limits + "}"), []string{"warning orgs[0].id: "}},

		"models with a price, and patterns": {served + "orgs: [{id: acme, models: [gpt-4o, \"second-*\"]}]\n", nil},
		"a pattern without a model":         {served + "orgs: [{id: acme, models: [\"nobody-*\"]}]\n", []string{"warning orgs[0].models[0]: no known model matches"}},
		"a model of no pool":                {served + "orgs: [{id: acme, models: [llama-3]}]\n", []string{"warning org acme may use llama-3, which no provider's pool serves"}},
		"a model without a price":           {served + "orgs: [{id: acme, models: [odd-1]}]\n", []string{"error org acme may use odd-1, which has no price"}},
		"a price for unknown models":        {served + "unknown_model_price: {max_output: 128000, prices: [{input: 15, output: 75}]}\norgs: [{id: acme, models: [odd-1]}]\n", nil},
		"a key's model":                     {served + "orgs: [{id: acme, users: [" + user("ada", ", models: [odd-2]", "") + "]}]\n", []string{"error key ada may use odd-2, which has no price"}},
		"one of each kind for a model": {
			served + "orgs: [{id: acme, providers: [second], models: [odd-1]}, {id: globex, models: [odd-1]}, {id: initech, models: [odd-1]}]\n",
			[]string{"warning org acme may use odd-1", "error org globex may use odd-1"},
		},

		"an org without a limit": {orgs("{id: acme, " + limits + "}, {id: open}"), []string{"warning org open"}},
		"a limit in shadow":      {orgs("{id: acme, limits: [{name: m, amount: $5, calendar: month, mode: shadow}]}"), []string{"warning org acme"}},
		"limits of every org":    {"defaults: {" + limits + "}\n" + orgs("{id: acme}, {id: open}"), nil},
		"a spend cap":            {"spend_caps: [{name: month, amount: $5, calendar: month}]\n" + orgs("{id: acme}"), nil},
		"the kill switch":        {"kill_switch: shadow\n" + good, []string{"warning org acme"}},
		"one user without one":   {orgs("{id: acme, users: [" + user("ada", "", own) + ", " + user("bob", "", "") + "]}"), []string{"warning 1 user of org acme can spend: bob"}},
		"users with their own":   {orgs("{id: acme, users: [" + user("ada", "", own) + ", " + user("bob", "", own) + "]}"), nil},
		"an org that is closed":  {orgs("{id: acme, disabled: true}"), nil},

		"a key over http to a public name":  {at("http://api.example.com/v1", fromEnv), []string{"warning providers[0].base_url: "}},
		"a key over http to a public IP":    {at("http://203.0.113.5:8000/v1", fromEnv), []string{"warning providers[0].base_url: "}},
		"a header over http, likewise":      {at("http://api.example.com/v1", `, headers: {x-key: "${PROVIDER_KEY}"}`), []string{"warning providers[0].base_url: "}},
		"no key over http":                  {at("http://api.example.com/v1", ""), nil},
		"a key over http to a private IP":   {at("http://10.0.0.7:8000/v1", fromEnv), nil},
		"a key over http to a private name": {at("http://vllm:8000/v1", fromEnv), nil},
		"a key over http in the cluster":    {at("http://vllm.models.svc:8000/v1", fromEnv), nil},
		"a password over redis, public":     {good + "redis: {url: \"redis://u:p@redis.example.com:6379/0\"}\n", []string{"warning redis.url: "}},
		"the same by TLS":                   {good + "redis: {url: \"rediss://u:p@redis.example.com:6379/0\"}\n", nil},
		"a password to a public address":    {good + "redis: {addresses: [\"redis.example.com:6379\"], password: x}\n", []string{"warning redis.addresses[0]: "}},
		"the same, private":                 {good + "redis: {addresses: [\"redis:6379\"], password: x}\n", nil},
		"headers of traces over http":       {good + "tracing: {endpoint: \"http://otel.example.com:4318\", headers: {x-token: abc}}\n", []string{"warning tracing.endpoint: "}},
		"a literal key":                     {at("https://api.example.com/v1", ", api_key: sk-1"), nil},
		"admin on every network":            {good + "listen: 127.0.0.1:0\nadmin: {listen: \"0.0.0.0:9090\"}\n", []string{"warning admin.listen: "}},
		"admin on every IPv6 network":       {good + "listen: 127.0.0.1:0\nadmin: {listen: \"[::]:9090\"}\n", []string{"warning admin.listen: "}},
		"admin on every network, unsaid":    {good + "listen: 127.0.0.1:0\nadmin: {listen: \":9090\"}\n", []string{"warning admin.listen: "}},
		"admin with TLS and a token":        {good + "listen: 127.0.0.1:0\nadmin: {listen: \":9090\", tls: {cert_file: a, key_file: b}, metrics_token: " + random + "}\n", nil},
		"admin on an internal address":      {good + "listen: 127.0.0.1:0\nadmin: {listen: \"10.0.0.1:9090\"}\n", nil},
		"everybody is a trusted proxy":      {good + "trusted_proxies: [0.0.0.0/0]\n", []string{"warning trusted_proxies[0]: "}},
		"likewise in IPv6":                  {good + "trusted_proxies: [10.0.0.0/8, \"::/0\"]\n", []string{"warning trusted_proxies[1]: "}},
		"half of everybody":                 {good + "trusted_proxies: [128.0.0.0/1]\n", []string{"warning trusted_proxies[0]: "}},
		"a private network of proxies":      {good + "trusted_proxies: [10.0.0.0/8, \"fd00::/8\"]\n", nil},
		"a pepper of few characters":        {good + "auth: {peppers: [{id: a, secret: abababababababababababab}]}\n", []string{"warning auth.peppers[0].secret: "}},
		"a pepper that is short":            {good + "auth: {peppers: [{id: a, secret: 0123456789abcdef}]}\n", []string{"warning auth.peppers[0].secret: "}},
		"a pepper that is a phrase":         {good + "auth: {peppers: [{id: a, secret: please-change-this-pepper}]}\n", []string{"warning auth.peppers[0].secret: "}},
		"a random pepper":                   {good + "auth: {peppers: [{id: a, secret: " + random + "}]}\n", nil},
		"a seal key that is a phrase":       {good + "queue: {seal_keys: [{id: a, secret: this-is-a-secret-of-mine}]}\n", []string{"warning queue.seal_keys[0].secret: "}},
		"a metrics token of few characters": {good + "listen: 127.0.0.1:0\nadmin: {listen: \"127.0.0.1:0\", metrics_token: aaaaaaaaaaaaaaaaaaaaaaaa}\n", []string{"warning admin.metrics_token: "}},
	} {
		e := read(t, tc.text)
		e.meet(t.Context(), needFile|needModels|needOrgs)
		e.locate()
		only(t, name, e.findings, tc.want...)
		for _, f := range e.findings {
			if f.Level != diagnose.OK && f.Path == "" && f.Area != "models" && f.Area != "prices" {
				t.Errorf("%s: got %+v, want its place", name, f)
			}
		}
	}
	e := read(t, at("https://api.example.com/v1", ", api_key: sk-1"))
	for mode, want := range map[os.FileMode][]string{0o640: nil, 0o644: {"warning providers[0].api_key: the file has mode 0644"}} {
		if err := os.Chmod(e.cfg.Name, mode); err != nil { // regardless of the umask
			t.Fatal(err)
		}
		e.met, e.findings = 0, nil
		e.meet(t.Context(), needFile)
		e.locate()
		only(t, fmt.Sprint("a literal key in a file of mode ", mode), e.findings, want...)
	}
}
