package config

import (
	"encoding/base64"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Webhooks is how events are delivered to orgs' servers.
type Webhooks struct {
	// AllowNetworks are the private addresses (10.1.0.7 or 10.1.0.0/16) that events may be sent to. Other private,
	// loopback and link-local addresses are never contacted.
	AllowNetworks []netip.Prefix `yaml:"allow_networks"`
	// AllowHTTP are host names, without port, that may be contacted without TLS.
	AllowHTTP []string `yaml:"allow_http" kind:"host name"`
	// CAFile is a PEM file of authorities, in place of the system's.
	CAFile string `yaml:"ca_file"`
	// Timeout is for one attempt, including the answer.
	Timeout time.Duration `yaml:"timeout" default:"15s"`
	// GiveUp is how long delivery is retried.
	GiveUp time.Duration `yaml:"give_up" default:"3d" range:"..30d"`
}

// eventTypes are all types of events.
var eventTypes = []string{
	"batch.completed", "batch.failed", "batch.expired", "batch.cancelled",
	"response.completed", "response.failed", "response.cancelled", "response.incomplete",
	"job.succeeded", "job.failed", "job.cancelled", "job.expired", "alert.limit", "brake.fired",
	"limit_request.created", "limit_request.decided", "run.budget_reached",
}

// checkWebhooks checks an org's webhooks.
func checkWebhooks(m *mistakes, path string, o *Org, all Webhooks) {
	for i, w := range o.Webhooks {
		at := element(path+".webhooks", i)
		checkWebhookURL(m, at+".url", w.URL, all.AllowHTTP)
		checkSigners(m, at+".secrets", w.Secrets)
	}
	at, r := path+".request_webhooks", o.RequestWebhooks
	if !m.given(at) {
		return
	}
	if len(r.Hosts) == 0 {
		m.failAt(at, "hosts is missing: list the hosts that requests may name")
	}
	checkSigners(m, at+".secrets", r.Secrets)
}

// checkSigners checks secrets; at least one is required, because receivers verify our events with
// them.
func checkSigners(m *mistakes, path string, list []Secret) {
	if len(list) == 0 {
		at := path
		if !m.given(path) {
			at = path[:strings.LastIndexByte(path, '.')]
		}
		m.failAt(at, "secrets needs at least one entry: receivers verify events with it (echo whsec_$(openssl rand "+
			"-base64 32))")
	}
	for i, s := range list {
		text, ok := strings.CutPrefix(s.Reveal(), "whsec_")
		key, err := base64.StdEncoding.DecodeString(text)
		if !ok || err != nil || len(key) < 24 || len(key) > 64 {
			m.failAt(path, "entry %d is not whsec_ followed by 24 to 64 bytes in base64 (echo whsec_$(openssl rand -base64 "+
				"32))", i+1)
		}
	}
}

func checkWebhookURL(m *mistakes, path, text string, plain []string) {
	u, err := url.Parse(text)
	switch {
	case text == "": // required
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		m.failAt(path, "expected a URL such as https://hooks.example.com/llmguard, got %s", mask(quote(text)))
	case u.Scheme == "http" && !slices.Contains(plain, strings.ToLower(u.Hostname())):
		m.failAt(path, "is not encrypted; use https, or name %s in webhooks.allow_http", u.Hostname())
	case u.User != nil || u.Fragment != "":
		m.failAt(path, "must not have a user, a password or a fragment")
	}
}

// checkAlerts checks the alert settings at a path.
func checkAlerts(m *mistakes, path string, a Alerts, all Webhooks) {
	if !m.given(path) {
		return
	}
	if a.URL == "" {
		m.failAt(path, "url is missing: set the URL to post alerts to")
		return
	}
	if text := a.URL.Reveal(); !strings.HasPrefix(text, "https://") && !strings.HasPrefix(text, "http://") {
		m.failAt(path+".url", "expected a URL that begins with https://") // the value may be a secret
	} else {
		checkWebhookURL(m, path+".url", text, all.AllowHTTP)
	}
	if a.Format == "standard" {
		checkSigners(m, path+".secrets", a.Secrets)
	}
}
