package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/config"
)

const aHash = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// oneLimit is a file with one limit, of which fields are given.
func oneLimit(fields string) string {
	return "orgs:\n  - id: acme\n    limits:\n      - " + fields + "\n"
}

func TestLimitShapeMistakes(t *testing.T) {
	checkWrong(t, []wrongFile{
		{
			"a window without an amount", oneLimit("«{»name: a, window: 1h}"),
			"orgs[0].limits[0]", "amount is missing: how much per window",
		},
		{
			"a calendar without an amount", oneLimit("«{»name: a, calendar: day}"),
			"orgs[0].limits[0]", "amount is missing: how much per calendar",
		},
		{
			"concurrency without an amount", oneLimit("«{»name: a, metric: concurrency}"),
			"orgs[0].limits[0]", "amount is missing: how many calls may be open at once",
		},
		{
			"concurrency in a calendar", oneLimit("{name: a, metric: concurrency, amount: 3, calendar: «day»}"),
			"orgs[0].limits[0].calendar", "concurrency counts open calls; it takes amount alone",
		},
		{
			"concurrency of money", oneLimit("{name: a, metric: concurrency, amount: «$3»}"),
			"orgs[0].limits[0].amount", "metric concurrency is limited by a count, not by money; leave out the $ or set metric: cost",
		},
		{
			"requests of money", oneLimit("{name: a, metric: requests, amount: «$3», window: 1h}"),
			"orgs[0].limits[0].amount", "metric requests is limited by a count, not by money; leave out the $ or set metric: cost",
		},
		{
			"a bucket of tokens in dollars", oneLimit("{name: a, metric: tokens, bucket: {capacity: «$5»}}"),
			"orgs[0].limits[0].bucket.capacity", "metric tokens is limited by a count, not by money; leave out the $ or set metric: cost",
		},
		{
			"a bucket refilled by a count", oneLimit("{name: a, bucket: {capacity: $5, refill: «5/1h»}}"),
			"orgs[0].limits[0].bucket.refill", `metric cost is limited in money; did you mean "$5"?`,
		},
		{
			"a calendar and a bucket", oneLimit("{name: a, calendar: day, «bucket»: {capacity: $5}}"),
			"orgs[0].limits[0].bucket", "the limit already has a calendar; a limit has one shape, so write two limits",
		},
		{
			"an exact calendar", oneLimit("{name: a, amount: $5, calendar: day, exact: «true»}"),
			"orgs[0].limits[0].exact", "is for windows only",
		},
		{
			"an exact window of more than an hour", oneLimit("{name: a, amount: $5, window: 61m, exact: «true»}"),
			"orgs[0].limits[0].exact", "keeps one entry per call, so it is for windows up to 1h; leave it out here",
		},
		{
			"a window of less than a second", oneLimit("{name: a, amount: $5, window: «999ms»}"),
			"orgs[0].limits[0].window", "must be from 1s to 366d",
		},
		{
			"a window of more than a year", oneLimit("{name: a, amount: $5, window: «366d1s»}"),
			"orgs[0].limits[0].window", "must be from 1s to 366d",
		},
		{
			"a window of nothing", oneLimit("{name: a, amount: $5, window: «0s»}"),
			"orgs[0].limits[0].window", "must be above 0; leave it out for no bound",
		},
		{
			"a zone of a bucket", oneLimit("{name: a, bucket: {capacity: $5}, tz: «UTC»}"),
			"orgs[0].limits[0].tz", "is for calendar limits only",
		},
		{
			"the zone of the machine", oneLimit("{name: a, amount: $5, calendar: day, tz: «Local»}"),
			"orgs[0].limits[0].tz", `there is no time zone "Local"; names look like Europe/Berlin or UTC`,
		},
		{
			"no models at all", oneLimit("{name: a, amount: $5, window: 1h, «models»: []}"),
			"orgs[0].limits[0].models", "is empty; leave it out for all, or name what is allowed",
		},
		{
			"a model with a space", oneLimit("{name: a, amount: $5, window: 1h, models: [«gpt 5»]}"),
			"orgs[0].limits[0].models[0]", `expected a name or a pattern with * in it, got "gpt 5"`,
		},
		{
			"a regular expression", oneLimit(`{name: a, amount: $5, window: 1h, models: [«"gpt-[45]"»]}`),
			"orgs[0].limits[0].models[0]", `expected a name or a pattern with * in it, got "gpt-[45]"`,
		},
		{
			"a pattern that no endpoint has", oneLimit(`{name: a, amount: $5, window: 1h, endpoints: [«"*.foo"»]}`),
			"orgs[0].limits[0].endpoints[0]", `no endpoint is called "*.foo"; known: audio.speech, audio.transcriptions, ` +
				"audio.translations, chat.completions, completions, containers, embeddings, images.edits, images.generations, " +
				"images.variations, moderations, responses, responses.compact, responses.input_tokens, vector_stores",
		},
		{
			"a key that is not in the org", oneLimit("{name: a, subject: key, only: «laptop», amount: $5, window: 1h}"),
			"orgs[0].limits[0].only", `there is no key "laptop"`,
		},
	})
}

// Every shape that the reference describes is taken, to the ends of its range.
func TestLimitShapesThatAreTaken(t *testing.T) {
	for _, fields := range []string{
		"{name: a, amount: $5, window: 1s}",
		"{name: a, amount: $5, window: 366d}",
		"{name: a, amount: $5, window: 1h, exact: true}",
		"{name: a, metric: tokens, amount: 1M, calendar: minute}",
		"{name: a, metric: requests, amount: 10, calendar: hour, tz: Asia/Kathmandu}",
		"{name: a, amount: $5, calendar: week, tz: Europe/Berlin}",
		"{name: a, amount: $5, calendar: month}",
		"{name: a, bucket: {capacity: $5}}",
		"{name: a, metric: tokens, bucket: {capacity: 5k, refill: 100/s}}",
		"{name: a, metric: concurrency, amount: 3, subject: key}",
		"{name: a, subject: ip, only: 10.0.0.7, amount: $5, window: 1h}",
		"{name: a, subject: ip, only: 10.0.0.0/8, amount: $5, window: 1h}",
		"{name: a, amount: $5, window: 1h, endpoints: [\"*\"], models: [\"gpt-*-mini\"]}",
	} {
		cfg := read(t, oneLimit(fields))
		if n := len(cfg.Orgs[0].Limits); n != 1 {
			t.Errorf("%s: got %d limits, want 1", fields, n)
		}
	}
}

// An amount that is neither money nor a count is asked for as either, and the unit of an unknown metric is not judged.
func TestAmountMistakes(t *testing.T) {
	const both = `expected money such as "$5" or a whole number such as 1500, 150k or 2M, got `
	checkWrong(t, []wrongFile{
		{"another currency", "spend_caps: [{name: a, amount: «€5», window: 1h}]", "spend_caps[0].amount", both + `"€5"`},
		{"a unit", "spend_caps: [{name: a, amount: «5 tokens», window: 1h}]", "spend_caps[0].amount", both + `"5 tokens"`},
		{
			"money of an unknown metric", "spend_caps: [{name: a, metric: «dollars», amount: $5, window: 1h}]", "spend_caps[0].metric",
			`expected one of cost, tokens, requests, got "dollars"`,
		},
	})
}

// A spend cap is checked as a limit is, in both places where it may be.
func TestSpendCapMistakes(t *testing.T) {
	provider := "providers:\n  - id: openai\n    base_url: https://a.example/v1\n    spend_caps: "
	checkWrong(t, []wrongFile{
		{
			"no shape", "spend_caps: [«{»name: a, amount: $5}]", "spend_caps[0]",
			"amount of what time? add window: 1h (sliding), calendar: month (fixed), or use bucket",
		},
		{
			"a count", "spend_caps: [{name: a, amount: «5», window: 1h}]", "spend_caps[0].amount",
			`metric cost is limited in money; did you mean "$5"?`,
		},
		{
			"open calls", "spend_caps: [{name: a, metric: «concurrency», amount: 5}]", "spend_caps[0].metric",
			`expected one of cost, tokens, requests, got "concurrency"`,
		},
		{
			"a subject", "spend_caps: [{name: a, «subject»: org, amount: $5, window: 1h}]", "spend_caps[0]",
			`unknown field "subject" here; it belongs under defaults.limits[] or orgs[].limits[] or orgs[].users[].limits[]`,
		},
		{
			"twice", "spend_caps: [{name: a, amount: $5, window: 1h}, {name: «a», amount: $9, window: 1d}]",
			"spend_caps[1].name",
			`"a" is already used on line 1, by spend_caps[0].name`,
		},
		{
			"of a provider, twice", provider + "[{name: a, amount: $5, window: 1h}, {name: «a», amount: $9, window: 1d}]",
			"providers[0].spend_caps[1].name", `"a" is already used on line 4, by providers[0].spend_caps[0].name`,
		},
		{
			"of a provider, no shape", provider + "[«{»name: a}]", "providers[0].spend_caps[0]",
			`has no shape; add amount: "$5" and window: 1h, or amount and calendar, or bucket`,
		},
	})
}

func TestOrgMistakes(t *testing.T) {
	org := func(fields string) string { return "orgs:\n  - id: acme\n    " + fields + "\n" }
	key := func(fields string) string {
		return org("users:\n      - id: ann\n        keys: [{id: k, hash: \"" + aHash + "\", " + fields + "}]")
	}
	checkWrong(t, []wrongFile{
		{
			"an id twice", "orgs:\n  - id: acme\n  - id: «acme»\n", "orgs[1].id",
			`"acme" is already used on line 2, by orgs[0].id`,
		},
		{
			"a user twice", org("users: [{id: ann}, {id: «ann»}]"), "orgs[0].users[1].id",
			`"ann" is already used on line 3, by orgs[0].users[0].id`,
		},
		{
			"a wait of an org that refuses", org("over_limit: refuse\n    max_wait: «5m»"), "orgs[0].max_wait",
			"has no effect with over_limit: refuse",
		},
		{
			"a step too small", org("hold: grow\n    grow_step: «19»"), "orgs[0].grow_step",
			"must be from 20 to 1000000 tokens",
		},
		{
			"a step too large", org("hold: grow\n    grow_step: «1000001»"), "orgs[0].grow_step",
			"must be from 20 to 1000000 tokens",
		},
		{
			"a downgrade to itself", org("downgrade: {gpt-5: «gpt-5»}"), "orgs[0].downgrade.gpt-5",
			`"gpt-5" is not the name of another model`,
		},
		{
			"a downgrade to a pattern", org(`downgrade: {gpt-5: «"gpt-*"»}`), "orgs[0].downgrade.gpt-5",
			`"gpt-*" is not the name of another model`,
		},
		{"no weight", org("weight: «0»"), "orgs[0].weight", "must be above 0; leave it out for the default, 100"},
		{
			"no provider", org("«providers»: []"), "orgs[0].providers",
			"is empty; leave it out for all, or name what is allowed",
		},
		{
			"calls kept nowhere", org("on_store_failure: «local»"), "orgs[0].on_store_failure",
			"local needs store.journal_dir, a directory on disk: calls are kept there until Redis can charge them",
		},
		{
			"a scope misspelt", key("scopes: [«embedding»]"), "orgs[0].users[0].keys[0].scopes[0]",
			`no scope is called "embedding"; did you mean "embeddings"?; there are calls, jobs, files, batches, usage, ` +
				"audio.speech, audio.transcriptions, audio.translations, chat.completions, completions, containers, embeddings, images.edits, " +
				"images.generations, images.variations, moderations, responses, responses.compact, responses.input_tokens, vector_stores",
		},
		{
			"a key without a model", key("«models»: []"), "orgs[0].users[0].keys[0].models",
			"is empty; leave it out for all, or name what is allowed",
		},
		{
			"a network with host bits", key("networks: [«10.1.2.3/8»]"), "orgs[0].users[0].keys[0].networks[0]",
			"10.1.2.3/8 is one address inside a range; the range is 10.0.0.0/8",
		},
		{
			"a key of no calls", key("concurrency: «0»"), "orgs[0].users[0].keys[0].concurrency",
			"must be above 0; leave it out for no bound",
		},
		{
			"somebody else's limit", org("users: [{id: ann, limits: [{name: a, only: «bob», amount: $5, window: 1h}]}, {id: bob}]"),
			"orgs[0].users[0].limits[0].only", "a limit under a user is for that user; leave only out",
		},
		{
			"a limit twice under a user",
			org("users: [{id: ann, limits: [{name: a, amount: $5, window: 1h}, {name: «a», amount: $5, window: 1d}]}]"),
			"orgs[0].users[0].limits[1].name", `"a" is already used on line 3, by orgs[0].users[0].limits[0].name`,
		},
		{
			"request webhooks for no host", org("«request_webhooks»: {secrets: [whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw]}"),
			"orgs[0].request_webhooks", "hosts is missing: whom requests may name",
		},
	})
}

func TestHashMistakes(t *testing.T) {
	key := func(hash string) string { return "admin:\n  keys:\n    - {id: root, hash: " + hash + "}\n" }
	form := `expected "sha256:" or "<pepper id>:" and 64 lower-case hex digits, got `
	upper := "sha256:" + strings.Repeat("AB", 32)
	short := "sha256:" + strings.Repeat("ab", 31)
	checkWrong(t, []wrongFile{
		{"no digits", key("«none»"), "admin.keys[0].hash", form + `"none"`},
		{"capitals", key("«" + upper + "»"), "admin.keys[0].hash", form + fmt.Sprintf("%q", upper[:60]+"…")},
		{"too short", key("«" + short + "»"), "admin.keys[0].hash", form + fmt.Sprintf("%q", short[:60]+"…")},
		{
			"an administrator twice", key(aHash) + "    - {id: «root», hash: sha256:" + strings.Repeat("cd", 32) + "}\n",
			"admin.keys[1].id", `"root" is already used on line 3, by admin.keys[0].id`,
		},
		{
			"a hash twice", key(aHash) + "    - {id: two, hash: «" + aHash + "»}\n",
			"admin.keys[1].hash", `"` + aHash + `" is already used on line 3, by admin.keys[0].hash`,
		},
		{
			"the id of hashes without a pepper", "auth:\n  peppers: [{id: «sha256», secret: \"${PEPPER}\"}]\n",
			"auth.peppers[0].id", `"sha256" marks hashes made without a pepper; choose another id`,
		},
	})
}

// A key in clear is never repeated, also when its checksum is wrong.
func TestDamagedKeyIsNotRepeated(t *testing.T) {
	const key = "lg_live_0123456789ABCDEFGHIJKLMNOPQRST1MiZzz"
	all := refusals(t, "admin: {keys: [{id: root, hash: "+key+"}]}")
	if got := all.Error(); strings.Contains(got, key) ||
		!strings.Contains(got, "this is a key, not its hash, and it is damaged: ") {
		t.Errorf("got\n%s", got)
	}
}

func TestRedisMistakes(t *testing.T) {
	const form = "expected redis://user:password@host:6379/0, rediss://... or unix:///path"
	with := func(field string) string { return "redis:\n  url: redis://localhost:6379/0\n  " + field + "\n" }
	const said = "cannot go with redis.url, which already says it; use url or the single fields"
	checkWrong(t, []wrongFile{
		{
			"nothing named", "«redis»: {mode: single}\n", "redis",
			"addresses is missing; name the server (addresses: [127.0.0.1:6379]) or remove the section",
		},
		{
			"a name without sentinels", "redis:\n  addresses: [a:1]\n  master_name: «guard»\n", "redis.master_name",
			"is for mode sentinel only; mode is single",
		},
		{
			"a database of a cluster", "redis:\n  addresses: [a:1]\n  mode: cluster\n  db: «3»\n", "redis.db",
			"a cluster has only database 0",
		},
		{
			"encryption that is off", "redis:\n  addresses: [a:1]\n  «tls»: {server_name: redis.internal}\n", "redis.tls",
			"has no effect without enabled: true",
		},
		{
			"a certificate without its key",
			"redis:\n  addresses: [a:1]\n  «tls»: {enabled: true, cert_file: c.pem}\n", "redis.tls",
			"cert_file and key_file go together; one is missing",
		},
		{
			"a socket of a cluster", "redis:\n  mode: cluster\n  addresses: [«/run/redis.sock»]\n", "redis.addresses[0]",
			`expected host:port without scheme or path, got "/run/redis.sock"`,
		},
		{
			"an address without a port", "redis:\n  addresses: [«redis.internal»]\n", "redis.addresses[0]",
			`expected host:port, got "redis.internal"; the port is missing`,
		},
		{"another scheme", "redis:\n  url: «http://localhost:6379»\n", "redis.url", form},
		{"a URL of nothing", "redis:\n  url: «redis://»\n", "redis.url", form},
		{"a URL of a cluster", with("mode: «cluster»"), "redis.mode", "mode cluster needs addresses instead of url"},
		{"addresses besides", with("«addresses»: [a:1]"), "redis.addresses", said},
		{"a user besides", with("username: «guard»"), "redis.username", said},
		{"a database besides", with("db: «1»"), "redis.db", said},
		{"encryption besides", with("«tls»: {enabled: true}"), "redis.tls", said},
		{"a primary's name besides", with("master_name: «guard»"), "redis.master_name", said},
	})
}

func TestProviderMistakes(t *testing.T) {
	provider := func(fields string) string {
		return "providers:\n  - id: openai\n    base_url: https://a.example/v1\n    " + fields + "\n"
	}
	base := func(url string) string { return "providers: [{id: openai, base_url: " + url + "}]\n" }
	const tooFar = "goes too far; end it with the version segment, such as https://api.openai.com/v1"
	checkWrong(t, []wrongFile{
		{
			"another scheme", base(`«"ftp://a.example/v1"»`), "providers[0].base_url",
			`expected a URL such as https://api.openai.com/v1, got "ftp://a.example/v1"`,
		},
		{
			"a query", base(`«"https://a.example/v1?api-version=1"»`), "providers[0].base_url",
			"has a query or fragment; use headers for constant parameters",
		},
		{"embeddings", base(`«"https://a.example/v1/embeddings"»`), "providers[0].base_url", tooFar},
		{"responses", base(`«"https://a.example/v1/responses"»`), "providers[0].base_url", tooFar},
		{"chat, with a slash", base(`«"https://a.example/v1/chat/completions/"»`), "providers[0].base_url", tooFar},
		{
			"a header of the connection", provider("headers: {content-length: «\"5\"»}"),
			"providers[0].headers.content-length",
			"Content-Length is set by llmguard itself",
		},
		{
			"an alias with a star", provider(`model_map: {"gpt-*": «gpt-4o»}`), "providers[0].model_map.gpt-*",
			`"gpt-*" is not a model name; an alias stands for one model`,
		},
		{
			"deployments elsewhere", provider("«deployments»: {gpt-4o: ours}"), "providers[0].deployments",
			"is only for kind azure",
		},
		{
			"a batch API that Gemini lacks", provider("kind: gemini\n    batch_mode: «provider»"),
			"providers[0].batch_mode",
			"provider is only for kind openai",
		},
		{
			"a field within another", provider("allow_fields: [plugins, «\"models[]\"»]"), "providers[0].allow_fields[1]",
			`expected a name or a pattern with * in it, got "models[]"`,
		},
		{
			"a limit under no known name", provider("output_limit_field: «max_new_tokens»"), "providers[0].output_limit_field",
			`expected one of auto, max_tokens, max_completion_tokens, got "max_new_tokens"; did you mean "max_tokens"?`,
		},
		{
			"an alias that no pool takes", provider("models: [«fast»]\n    model_map: {fast: gpt-4o}\n    pools: [{id: p, models: [o3]}]"),
			"providers[0].models[0]", `no pool of the provider takes the model "gpt-4o"; add it to a pool's models`,
		},
		{
			"a pool like a provider without pools",
			"providers:\n  - {id: a, base_url: \"https://a.example/v1\", pools: [{id: b}]}\n  - «{»id: b, base_url: \"https://b.example/v1\"}\n",
			"providers[1].pools[0].id", `"b" is already used on line 2, by providers[0].pools[0].id`,
		},
		{
			"a tier", provider("service_tier: «fast»"), "providers[0].service_tier",
			`expected one of default, flex, priority, got "fast"`,
		},
	})
}

func TestQueueMistakes(t *testing.T) {
	checkWrong(t, []wrongFile{
		{
			"shares above all", "queue:\n  «shares»: {interactive: 60, async: 30, batch: 11}\n", "queue.shares",
			"are 101 percent together, more than 100",
		},
		{"an org's share", "queue: {org_share: «101»}", "queue.org_share", "is a percentage; 101 is more than 100"},
		{"a user's share", "queue: {user_share: «200»}", "queue.user_share", "is a percentage; 200 is more than 100"},
		{"memory", "queue: {memory_share: «1000»}", "queue.memory_share", "is a percentage; 1000 is more than 100"},
		{
			"no attempts", "queue: {max_attempts: «0»}", "queue.max_attempts",
			"must be above 0; leave it out for the default, 3",
		},
	})
}

func TestTracingMistakes(t *testing.T) {
	checkWrong(t, []wrongFile{
		{
			"no scheme", "tracing: {endpoint: «\"collector:4318\"»}", "tracing.endpoint",
			`expected a URL such as http://otel-collector:4318, got "collector:4318"`,
		},
		{
			"a password", "tracing: {endpoint: «\"http://me:pw@collector:4318\"»}", "tracing.endpoint",
			"has a user or password in it; use headers",
		},
		{
			"the port of gRPC", "tracing: {endpoint: «\"http://collector:4317\"»}", "tracing.endpoint",
			"port 4317 is that of OTLP over gRPC; spans go by HTTP, to port 4318 of the same collector",
		},
	})
}

func TestYAMLMistakes(t *testing.T) {
	checkWrong(t, []wrongFile{
		{"a quote", "listen: «'127.0.0.1:8080»\n", "", "the quote that opens here is never closed"},
		{"a reserved sign", "listen: «@»here\n", "", "the character has a meaning in YAML; put the text in quotes"},
		{"a percent sign", "listen: «%»here\n", "", "a value that begins with % needs quotes"},
		{"a list for a name", "? [a]\n«:» b\n", "", "not valid YAML: found an invalid key for this map"},
		{
			"a null in a list", "trusted_proxies: [«~»]\n", "trusted_proxies[0]",
			"has no value; give it one or remove the line",
		},
		{"a number for a section", "log: «5»\n", "log", `expected "name: value" lines, got the number 5`},
		{
			"true for a list", "trusted_proxies: «true»\n", "trusted_proxies",
			`expected a list, got true; begin each element with "- "`,
		},
	})
}

// A file that is no text is refused with the line at which it ends to be one.
func TestTextMustBeUTF8(t *testing.T) {
	all := refusals(t, "log: {level: info}\nlisten: \"\xff\"\n")
	if len(all) != 1 || all[0].Line != 2 || all[0].Message != "the line is not valid UTF-8" {
		t.Errorf("got %v", all)
	}
}

// At most 50 errors are written, and the last line counts all.
func TestErrorsAreCutAtFifty(t *testing.T) {
	var b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&b, "unknown-%d: 1\n", i)
	}
	all := refusals(t, b.String())
	text := all.Error()
	if got := strings.Count(text, "unknown field"); got != 50 || len(all) != 60 {
		t.Errorf("got %d errors, %d written, want 60 and 50", len(all), got)
	}
	if want := "... and 10 more\n60 errors in f.yaml"; !strings.HasSuffix(text, want) {
		t.Errorf("got end %q, want %q", text[len(text)-60:], want)
	}
}

// Errors are in the order of the lines, whatever found them first.
func TestErrorsAreInTheOrderOfLines(t *testing.T) {
	all := refusals(t, "orgs: [{id: ACME}]\nqueue: {org_share: 101, user_share: 101}\nlog: {levell: info}\nlisten: x\n")
	var got []string
	for _, e := range all {
		got = append(got, fmt.Sprintf("%d:%d", e.Line, e.Column))
	}
	if want := "1:13 2:20 2:37 3:7 4:9"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, " "), want)
	}
}

// errors.As reaches each single error.
func TestErrorsUnwrap(t *testing.T) {
	_, err := config.Parse("f.yaml", []byte(whole("listn: x\nlevell: y\n")), lookup)
	first, ok := errors.AsType[*config.Error](err)
	if !ok || first.Line != 1 || first.File != "f.yaml" {
		t.Errorf("got %+v, %v, want the error of line 1", first, ok)
	}
	if all, _ := errors.AsType[config.Errors](err); len(all.Unwrap()) != 2 {
		t.Errorf("got %d single errors, want 2", len(all.Unwrap()))
	}
}

func TestListenerMistakes(t *testing.T) {
	checkWrong(t, []wrongFile{
		{"a certificate without its key", "«tls»: {cert_file: c.pem}\n", "tls", "cert_file and key_file go together; one is missing"},
		{"a key without its certificate", "admin:\n  «tls»: {key_file: k.pem}\n", "admin.tls", "cert_file and key_file go together; one is missing"},
		{
			"a token that can be tried out", "admin: {metrics_token: «tiny»}\n", "admin.metrics_token",
			"has 4 characters; at least 16 are needed (openssl rand -hex 32)",
		},
	})
}
