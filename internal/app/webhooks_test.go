package app

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/webhook"
)

const hookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestConvertWebhooks(t *testing.T) {
	s, err := convert(read(t, `
providers: [{id: openai, base_url: https://api.example.com/v1/, api_key: sk-1}]
orgs:
  - id: acme
    webhooks:
      - {url: "https://hooks.acme.example/x", secrets: [`+hookSecret+`, whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX], events: [batch.*]}
      - {url: "http://inside.example:81/", secrets: [`+hookSecret+`]}
    request_webhooks: {hosts: ["*.acme.example"], secrets: [`+hookSecret+`]}
  - {id: quiet}
webhooks: {allow_networks: [10.1.0.0/16], allow_http: [inside.example], timeout: 1s, give_up: 2d}
`))
	if err != nil {
		t.Fatal(err)
	}
	o := s.webhooks
	want, err := webhook.ParseSecret(hookSecret)
	if err != nil {
		t.Fatal(err)
	}
	acme := o.Orgs["acme"]
	if len(acme.Endpoints) != 2 || acme.Endpoints[0].URL != "https://hooks.acme.example/x" || !slices.Equal(acme.Endpoints[0].Events, []string{"batch.*"}) ||
		len(acme.Endpoints[0].Secrets) != 2 || acme.Endpoints[1].Events != nil || !slices.Equal(acme.Hosts, []string{"*.acme.example"}) || len(acme.Secrets) != 1 {
		t.Errorf("%+v", acme)
	}
	if a, b := acme.Secrets[0], want; a.String() != b.String() || len(o.Orgs["quiet"].Endpoints) != 0 {
		t.Errorf("%+v", o.Orgs)
	}
	if !slices.Equal(o.AllowNetworks, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}) || !slices.Equal(o.AllowHTTP, []string{"inside.example"}) ||
		o.Timeout != time.Second || o.GiveUp != 48*time.Hour || o.RootCAs != nil {
		t.Errorf("%+v", o)
	}
	for name, text := range map[string]string{
		"loopback":   `{id: acme, webhooks: [{url: "https://127.0.0.1/", secrets: [` + hookSecret + `]}]}`,
		"no ca file": `{id: acme}` + "\nwebhooks: {ca_file: /nowhere}",
	} {
		if _, err := convert(read(t, "providers: [{id: openai, base_url: https://api.example.com/v1/, api_key: sk-1}]\norgs:\n  - "+text)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestEventTypesAgree checks that the configuration knows the same events as package
// webhook.
func TestEventTypesAgree(t *testing.T) {
	file := func(events string) string {
		return "providers: [{id: openai, base_url: https://api.example.com/v1/, api_key: sk-1}]\norgs: [{id: acme, webhooks: [{url: https://a.example, secrets: [" +
			hookSecret + "], events: [" + events + "]}]}]"
	}
	if _, err := config.Parse("x", []byte(file(strings.Join(webhook.Types(), ", "))), nil); err != nil {
		t.Error(err)
	}
	if _, err := config.Parse("x", []byte(file("job.exploded")), nil); err == nil || !strings.Contains(err.Error(), "job.exploded") {
		t.Error(err)
	}
}
