package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const hidden = "tango-uniform-victor-whiskey"

// TestSecretForms: a printed secret shows that it is set, but never its value.
func TestSecretForms(t *testing.T) {
	s := Secret(hidden)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "secret", s, "struct", Pepper{ID: "p", Secret: s})
	asJSON, err := json.Marshal(map[string]any{"a": s, "b": []Secret{s}, "c": Pepper{Secret: s}})
	if err != nil {
		t.Fatal(err)
	}
	for form, got := range map[string]string{
		"String":   s.String(),
		"%v":       fmt.Sprintf("%v", s),
		"%s":       fmt.Sprintf("%s", any(s)),
		"%q":       fmt.Sprintf("%q", s),
		"%#v":      fmt.Sprintf("%#v", s),
		"%+v":      fmt.Sprintf("%+v", Pepper{ID: "p", Secret: s}),
		"in %#v":   fmt.Sprintf("%#v", []Secret{s}),
		"in a map": fmt.Sprint(map[string]Secret{"a": s}),
		"error":    fmt.Errorf("failed with %v", s).Error(),
		"JSON":     string(asJSON),
		"log":      log.String(),
	} {
		if strings.Contains(got, hidden) || !strings.Contains(got, "[secret]") {
			t.Errorf("%s: got %s, want [secret]", form, got)
		}
	}
	if s.Reveal() != hidden {
		t.Errorf("Reveal: got %q", s.Reveal())
	}
}

// TestEmptySecretIsEmpty: an empty secret prints as nothing, so that logs show that none is set.
func TestEmptySecretIsEmpty(t *testing.T) {
	if got := fmt.Sprintf("%v|%#v", Secret(""), Secret("")); got != `|""` {
		t.Errorf(`got %s, want |""`, got)
	}
}

// TestPatchReadsNoFiles: a patch sent by an administrator does not read files of this machine.
func TestPatchReadsNoFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := Org{ID: "acme"}
	err := Patch(&o, []byte(`{"webhooks": [{"url": "https://a.example", "secrets": ["file:`+path+`"]}]}`))
	if err == nil || !strings.Contains(err.Error(), "works only in the configuration file") {
		t.Error(err)
	}
}

func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "llmguard.yaml")
	text := strings.Replace(minimal, "/v1\"}", "/v1\", api_key: \"file:KEY\"}", 1)
	f := func(value, content, want, wrong string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "key"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := Parse(path, []byte(strings.Replace(text, "file:KEY", value, 1)), func(string) (string, bool) { return dir, true })
		switch {
		case wrong == "" && err != nil:
			t.Errorf("%s: %v", value, err)
		case wrong == "" && cfg.Providers[0].APIKey.Reveal() != want:
			t.Errorf("%s: got %q", value, cfg.Providers[0].APIKey.Reveal())
		case wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong) || !strings.Contains(err.Error(), "providers[0].api_key")):
			t.Errorf("%s: %v", value, err)
		}
		if err != nil && strings.Contains(err.Error(), "sk-content") {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
	f("file:key", "sk-content\n", "sk-content", "")
	f("file:key", "sk-content\r\n", "sk-content", "")
	f("file:"+filepath.Join(dir, "key"), "sk-content", "sk-content", "")
	f("file:${DIR}/key", "sk-content", "sk-content", "")
	f("sk-file:key", "", "sk-file:key", "")
	f("file:", "", "", "has no path")
	f("file:nothing", "", "", "there is no file "+filepath.Join(dir, "nothing"))
	f("file:.", "", "", "cannot read the secret")
	f("file:key", "\n", "", "is empty")
	f("file:key", " sk-content\n", "", "leading or trailing spaces")
	f("file:key", "sk-content\xff", "", "is not text")
	f("file:key", strings.Repeat("x", maxSecret+1), "", "at most")
}

// TestOperatorsNeedNoSecretsOfCalls: operators' commands run without the secrets of providers, traces and alerts, and
// need all other variables, because they store and compare these values.
func TestOperatorsNeedNoSecretsOfCalls(t *testing.T) {
	file := filepath.Join(t.TempDir(), "llmguard.yaml")
	load := func(pool, url string) (*Config, error) {
		text := fmt.Sprintf(`
redis: {addresses: ["127.0.0.1:1"]}
alerts: {url: "${CHAT_NOT_SET}"}
tracing: {endpoint: "http://127.0.0.1:1", headers: {x-token: "${TOKEN_NOT_SET}"}}
providers: [{id: p, base_url: "%s", api_key: "${KEY_NOT_SET}", headers: {x-team: "${TEAM_NOT_SET}"}, pools: [{id: %s, models: [gpt-4o]}]},
  {id: q, base_url: "https://q.example/v1", api_key: your-key}]
orgs: [{id: acme}]
`, url, pool)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return LoadOperator(file)
	}
	cfg, err := load("main", "https://p.example/v1")
	if err != nil || len(cfg.Unset) != 4 || len(cfg.Unusable) != 1 {
		t.Errorf("got %v, want no error, 4 secrets that are not set, and one that is a placeholder", err)
	}
	for _, one := range [][2]string{{`"${POOL_NOT_SET}"`, "https://p.example/v1"}, {"main", "${URL_NOT_SET}"}} {
		if _, err := load(one[0], one[1]); err == nil || !strings.Contains(err.Error(), "NOT_SET is not set") {
			t.Errorf("%s: got %v, want that the variable is not set", one, err)
		}
	}
}
