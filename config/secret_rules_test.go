package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/llmguard/llmguard/config"
)

const hidden = "tango-uniform-victor-whiskey"

// TestSecretForms: a printed secret shows that it is set, but never its value.
func TestSecretForms(t *testing.T) {
	s := config.Secret(hidden)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", "secret", s, "struct", config.Pepper{ID: "p", Secret: s})
	asJSON, err := json.Marshal(map[string]any{"a": s, "b": []config.Secret{s}, "c": config.Pepper{Secret: s}})
	if err != nil {
		t.Fatal(err)
	}
	for form, got := range map[string]string{
		"String":   s.String(),
		"%v":       fmt.Sprintf("%v", s),
		"%s":       fmt.Sprintf("%s", any(s)),
		"%q":       fmt.Sprintf("%q", s),
		"%#v":      fmt.Sprintf("%#v", s),
		"%+v":      fmt.Sprintf("%+v", config.Pepper{ID: "p", Secret: s}),
		"in %#v":   fmt.Sprintf("%#v", []config.Secret{s}),
		"in a map": fmt.Sprint(map[string]config.Secret{"a": s}),
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
	if got := fmt.Sprintf("%v|%#v", config.Secret(""), config.Secret("")); got != `|""` {
		t.Errorf(`got %s, want |""`, got)
	}
}

// TestErrorsMaskSecrets: whatever is wrong with a line that contains a secret, the error shows the
// line without it.
func TestErrorsMaskSecrets(t *testing.T) {
	for name, text := range map[string]string{
		"a password of the wrong type": "redis:\n  addresses: [\"a:1\"]\n  password: [" + hidden + "]\n",
		"an unknown field beside":      "redis: {addresses: [\"a:1\"], pasword: " + hidden + "}\n",
		"a pepper with spaces":         "auth:\n  peppers:\n    - {id: P1, secret: \"" + hidden + "\"}\n",
		"an API key":                   "providers:\n  - {id: OPENAI, base_url: \"https://a.example/v1\", api_key: " + hidden + "}\n",
		"an API key that is misspelt":  "providers:\n  - id: openai\n    base_url: https://a.example/v1\n    apiKey: " + hidden + "\n",
		"a token among the headers":    "providers:\n  - id: openai\n    base_url: https://a.example/v1\n    headers: {\"x y-token\": " + hidden + "}\n",
		"a password in the URL":        "redis: {url: \"http://u:" + hidden + "@a\"}\n",
		"a password in the base URL": "providers: [{id: openai, base_url: \"https://u:" + hidden +
			"@a.example/v1\"}]\n",
		"a scheme that is none": "providers: [{id: openai, base_url: \"gopher://u:" + hidden +
			"@a.example/v1\"}]\n",
		"a collector with a password":  "tracing: {endpoint: \"http://u:" + hidden + "@c:4318\"}\n",
		"a chat's address":             "alerts: {url: \"hooks.slack.com/services/" + hidden + "\"}\n",
		"a key of OpenAI's":            "listen: sk-proj-" + hidden + "\n",
		"a key of OpenAI's for a name": "orgs: [{id: \"sk-" + hidden + "!\"}]\n",
		"a signing secret":             "orgs: [{id: acme, webhooks: [{url: \"https://a.example\", secrets: [whsec_" + hidden + "]}]}]\n",
		"a signing secret without form": "orgs: [{id: acme, webhooks: [{url: \"https://a.example\", secrets: [" +
			hidden + "]}]}]\n",
	} {
		if got := refusals(t, text).Error(); strings.Contains(got, hidden) {
			t.Errorf("%s: the error repeats the secret:\n%s", name, got)
		}
	}
}

// TestErrorsShowReferences: references to the environment or to a file are not secret and are
// shown, because they help to find the mistake.
func TestErrorsShowReferences(t *testing.T) {
	all := refusals(t, "redis:\n  addresses: [\"a:1\"]\n  password: ${NOT_SET}\n")
	if got := all[0].Source; got != "  password: ${NOT_SET}" {
		t.Errorf("got %q, want the reference", got)
	}
	all = refusals(t, "redis:\n  addresses: [\"a:1\"]\n  password: file:/nonexistent/password\n")
	if got := all[0].Source; got != "  password: file:/nonexistent/password" {
		t.Errorf("got %q, want the name of the file", got)
	}
}

// TestRedisPrefixForms: an empty prefix, such as that of an empty environment variable, is none.
func TestRedisPrefixForms(t *testing.T) {
	prefix := func(c *config.Config) string { return c.Redis.Prefix }
	checkValues(t, "redis: {url: \"redis://a\", prefix: VALUE}", prefix, []value[string]{
		{text: "staging:", want: "staging:"},
		{text: `""`, want: ""},
		{text: `"${EMPTY:-}"`, want: ""},
		{text: `"${NOT_SET:-}"`, want: ""},
		{text: `" "`, message: "has leading or trailing spaces"},
	})
}
