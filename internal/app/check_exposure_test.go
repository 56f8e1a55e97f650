package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/diagnose"
)

// TestExposure checks that check warns about what a configuration exposes unnecessarily,
// and about nothing else.
func TestExposure(t *testing.T) {
	t.Setenv("PROVIDER_KEY", "sk-1")
	const random = "5f1d8c0b7a96e342af04c19be8d2706f"
	provider := func(url, more string) string { return "providers: [{id: p, base_url: \"" + url + "\"" + more + "}]\n" }
	const fromEnv = `, api_key: "${PROVIDER_KEY}"`
	plain := provider("https://api.example.com/v1", fromEnv)
	for name, test := range map[string]struct {
		mode os.FileMode
		text string
		path string // of the one finding; empty: no finding
	}{
		"an ordinary one":                    {0o644, plain, ""},
		"a key over http to a public name":   {0o600, provider("http://api.example.com/v1", fromEnv), "providers[0].base_url"},
		"a key over http to a public IP":     {0o600, provider("http://203.0.113.5:8000/v1", fromEnv), "providers[0].base_url"},
		"a header over http, likewise":       {0o600, provider("http://api.example.com/v1", `, headers: {x-key: "${PROVIDER_KEY}"}`), "providers[0].base_url"},
		"no key over http":                   {0o600, provider("http://api.example.com/v1", ""), ""},
		"a key over http to a private IP":    {0o600, provider("http://10.0.0.7:8000/v1", fromEnv), ""},
		"a key over http to a private name":  {0o600, provider("http://vllm:8000/v1", fromEnv), ""},
		"a key over http in the cluster":     {0o600, provider("http://vllm.models.svc:8000/v1", fromEnv), ""},
		"a password over redis, public":      {0o600, plain + "redis: {url: \"redis://u:p@redis.example.com:6379/0\"}\n", "redis.url"},
		"the same by TLS":                    {0o600, plain + "redis: {url: \"rediss://u:p@redis.example.com:6379/0\"}\n", ""},
		"a password to a public address":     {0o600, plain + "redis: {addresses: [\"redis.example.com:6379\"], password: x}\n", "redis.addresses[0]"},
		"the same, private":                  {0o600, plain + "redis: {addresses: [\"redis:6379\"], password: x}\n", ""},
		"headers of traces over http":        {0o600, plain + "tracing: {endpoint: \"http://otel.example.com:4318\", headers: {x-token: abc}}\n", "tracing.endpoint"},
		"a literal key, readable by all":     {0o644, provider("https://api.example.com/v1", ", api_key: sk-1"), "providers[0].api_key"},
		"a literal key, readable by a group": {0o640, provider("https://api.example.com/v1", ", api_key: sk-1"), ""},
		"admin on every network":             {0o600, plain + "admin: {listen: \"0.0.0.0:9090\"}\n", "admin.listen"},
		"admin on every IPv6 network":        {0o600, plain + "admin: {listen: \"[::]:9090\"}\n", "admin.listen"},
		"admin on every network, unsaid":     {0o600, plain + "admin: {listen: \":9090\"}\n", "admin.listen"},
		"admin with TLS and a token":         {0o600, plain + "admin: {listen: \":9090\", tls: {cert_file: a, key_file: b}, metrics_token: " + random + "}\n", ""},
		"admin on an internal address":       {0o600, plain + "admin: {listen: \"10.0.0.1:9090\"}\n", ""},
		"everybody is a trusted proxy":       {0o600, plain + "trusted_proxies: [0.0.0.0/0]\n", "trusted_proxies[0]"},
		"likewise in IPv6":                   {0o600, plain + "trusted_proxies: [10.0.0.0/8, \"::/0\"]\n", "trusted_proxies[1]"},
		"half of everybody":                  {0o600, plain + "trusted_proxies: [128.0.0.0/1]\n", "trusted_proxies[0]"},
		"a private network of proxies":       {0o600, plain + "trusted_proxies: [10.0.0.0/8, \"fd00::/8\"]\n", ""},
		"a pepper of few characters":         {0o600, plain + "auth: {peppers: [{id: a, secret: abababababababababababab}]}\n", "auth.peppers[0].secret"},
		"a pepper that is short":             {0o600, plain + "auth: {peppers: [{id: a, secret: 0123456789abcdef}]}\n", "auth.peppers[0].secret"},
		"a pepper that is a phrase":          {0o600, plain + "auth: {peppers: [{id: a, secret: please-change-this-pepper}]}\n", "auth.peppers[0].secret"},
		"a random pepper":                    {0o600, plain + "auth: {peppers: [{id: a, secret: " + random + "}]}\n", ""},
		"a seal key that is a phrase":        {0o600, plain + "queue: {seal_keys: [{id: a, secret: this-is-a-secret-of-mine}]}\n", "queue.seal_keys[0].secret"},
		"a metrics token of few characters":  {0o600, plain + "admin: {metrics_token: aaaaaaaaaaaaaaaaaaaaaaaa}\n", "admin.metrics_token"},
	} {
		file := filepath.Join(t.TempDir(), "llmguard.yaml")
		if err := os.WriteFile(file, []byte(test.text+"orgs: [{id: acme}]\n"), test.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, test.mode); err != nil { // regardless of the umask
			t.Fatal(err)
		}
		cfg, err := config.Load(file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var paths []string
		for _, f := range app.CheckExposure(cfg) {
			paths = append(paths, f.Path)
			if f.Level != diagnose.Warning || f.Fix == "" || strings.Contains(f.What+f.Fix, "sk-1") {
				t.Errorf("%s: got %+v, want a warning with a fix and no secret", name, f)
			}
		}
		if got := strings.Join(paths, " "); got != test.path {
			t.Errorf("%s: got findings at %q, want %q", name, got, test.path)
		}
	}
}
