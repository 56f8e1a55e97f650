package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/config"
)

func TestRedisMistakes(t *testing.T) {
	const form = "expected redis://user:password@host:6379/0, rediss://... or unix:///path"
	with := func(field string) string { return "redis:\n  url: redis://localhost:6379/0\n  " + field + "\n" }
	const said = "cannot be combined with url; use one of the two"
	checkWrong(t, []wrongFile{
		{
			"nothing named", "«redis»: {mode: single}\n", "redis",
			"addresses is missing; name the server (addresses: [127.0.0.1:6379]) or remove the section",
		},
		{
			"a name without sentinels", "redis:\n  addresses: [a:1]\n  master_name: «guard»\n", "redis.master_name",
			"has no effect without mode: sentinel",
		},
		{
			"a database of a cluster", "redis:\n  addresses: [a:1]\n  mode: cluster\n  db: «3»\n", "redis.db",
			"a cluster has only database 0",
		},
		{
			"encryption that is off", "redis:\n  addresses: [a:1]\n  tls: {server_name: «redis.internal»}\n", "redis.tls.server_name",
			"has no effect without enabled: true",
		},
		{
			"a certificate without its key",
			"redis:\n  addresses: [a:1]\n  tls: {enabled: true, cert_file: «c.pem»}\n", "redis.tls.cert_file",
			"has no effect without key_file",
		},
		{
			"a socket of a cluster", "redis:\n  mode: cluster\n  addresses: [«/run/redis.sock»]\n", "redis.addresses[0]",
			`expected host:port without scheme or path, got "/run/redis.sock"`,
		},
		{
			"a prefix with a brace", "redis: {addresses: [\"a:1\"], prefix: «\"a{b}\"»}\n", "redis.prefix",
			"cannot contain '{'; use letters, digits and _ - . : /",
		},
		{
			"a prefix with a space", "redis: {url: \"redis://a\", prefix: «a b»}\n", "redis.prefix",
			"cannot contain ' '; use letters, digits and _ - . : /",
		},
		{
			"a long prefix", "redis: {addresses: [\"a:1\"], prefix: «" + strings.Repeat("a", 33) + "»}\n", "redis.prefix",
			"has 33 characters; at most 32",
		},
		{
			"a prefix of other deployments", "redis: {addresses: [\"a:1\"], prefix: «\"lg:\"»}\n", "redis.prefix",
			"cannot begin with lg: or asynq:, as keys of deployments without a prefix do; choose another, such as `staging:`",
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
		{
			"a primary's name besides", with("master_name: «guard»"), "redis.master_name",
			"has no effect without mode: sentinel",
		},
	})
}

func TestProviderMistakes(t *testing.T) {
	provider := func(fields string) string {
		return "providers:\n  - id: openai\n    base_url: https://a.example/v1\n    " + fields + "\n"
	}
	base := func(url string) string { return "providers: [{id: openai, base_url: " + url + "}]\n" }
	const tooFar = "has too many path segments; end it with the version segment, such as https://api.openai.com/v1"
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
			`"gpt-*" is not a model name; an alias refers to one model`,
		},
		{
			"deployments elsewhere", provider("«deployments»: {gpt-4o: ours}"), "providers[0].deployments",
			"has no effect without kind: azure",
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
			"providers[0].models[0]", `no pool of the provider serves the model "gpt-4o"; add it to a pool's models`,
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

func TestFinanceMistakes(t *testing.T) {
	export := func(text string) string { return "finance: {export: {" + text + "}}" }
	checkWrong(t, []wrongFile{
		{
			"Parquet", export("every: day, to: /srv/focus, format: «parquet»"), "finance.export.format",
			"parquet was removed in 0.2.0; use csv, and convert it with DuckDB or pandas (docs/finance.md#parquet)",
		},
		{"no period", "finance: {«export»: {to: /srv/focus}}", "finance.export", "every is missing: set it to day or month"},
		{
			"no place", "finance: {«export»: {every: day}}", "finance.export",
			"to is missing: set it to a directory or s3://bucket/prefix?region=...",
		},
		{
			"another place", export(`every: day, to: «"https://example.com"»`), "finance.export.to",
			`expected a directory or s3://bucket/prefix?region=..., got "https://example.com"`,
		},
		{
			"another dimension", export("every: day, to: /srv/focus, «by»: [user, model]"), "finance.export.by",
			`expected user, key, endpoint and label:NAME, got "model"`,
		},
		{
			"another label", export("every: day, to: /srv/focus, «by»: [\"label:project\"]"), "finance.export.by",
			`there is no label "project"; configure it in labels`,
		},
	})
}

func TestQueueMistakes(t *testing.T) {
	checkWrong(t, []wrongFile{
		{
			"shares above all", "queue:\n  «shares»: {interactive: 60, async: 30, batch: 11}\n", "queue.shares",
			"add up to 101 percent, more than 100",
		},
		{
			"answers in files that there are not", "cache: {store: «files»}", "cache.store",
			"files needs files.store: set it to a directory or a bucket, or use redis",
		},
		{"an org's share", "queue: {org_share: «101»}", "queue.org_share", "must be from 1 to 100 percent, got 101; leave it out for 25"},
		{"a user's share", "queue: {user_share: «200»}", "queue.user_share", "must be from 1 to 100 percent, got 200; leave it out for 25"},
		{"memory", "queue: {memory_share: «1000»}", "queue.memory_share", "must be from 1 to 100 percent, got 1000; leave it out for 80"},
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
			"contains a user or password; use headers",
		},
		{
			"the port of gRPC", "tracing: {endpoint: «\"http://collector:4317\"»}", "tracing.endpoint",
			"port 4317 is for OTLP over gRPC; llmguard exports over HTTP, to port 4318 of the same collector",
		},
		{
			"pushed metrics", "tracing: {«metrics»: {interval: 60s}}", "tracing.metrics",
			"pushing metrics by OTLP was removed in 0.2.0; remove this section, and let Prometheus or a collector scrape " +
				"/metrics (docs/tracing.md#metrics)",
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

// TestTextMustBeUTF8: a file that is not text is refused with the first invalid line.
func TestTextMustBeUTF8(t *testing.T) {
	all := refusals(t, "log: {level: info}\nlisten: \"\xff\"\n")
	if len(all) != 1 || all[0].Line != 2 || all[0].Message != "the line is not valid UTF-8" {
		t.Errorf("got %v", all)
	}
}

// TestErrorsAreCutAtFifty: at most 50 errors are printed, and the last line has the total.
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

// TestErrorsAreInTheOrderOfLines: errors are in the order of lines, whichever check found them
// first.
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

// TestErrorsUnwrap: errors.As finds each single error.
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
		{"a certificate without its key", "tls: {cert_file: «c.pem»}\n", "tls.cert_file", "has no effect without key_file"},
		{"a key without its certificate", "admin:\n  tls: {key_file: «k.pem»}\n", "admin.tls.key_file", "has no effect without cert_file"},
		{
			"a token that can be tried out", "admin: {metrics_token: «tiny»}\n", "admin.metrics_token",
			"has 4 characters; at least 16 are needed (openssl rand -hex 32)",
		},
	})
}
