package config

import (
	"slices"
	"strings"
)

// Alerts say who is told when what was charged to a limit of money has passed a
// part of it: a limit of an org, or of one of its users, whichever its mode, once
// per limit, threshold and period. It is delivered as webhooks are, and to the
// same addresses only: see webhooks.allow_networks and webhooks.allow_http.
type Alerts struct {
	// URL is where alerts are posted, https. That of a chat is a secret itself.
	URL Secret `yaml:"url"`
	// Format is what is posted. slack: {"text": "..."}, as Slack, Mattermost,
	// Rocket.Chat and others take it. standard: an event alert.limit, signed as
	// webhooks are.
	Format string `yaml:"format" default:"slack" enum:"slack,standard"`
	// Secrets sign what is posted in format standard, as those of webhooks do.
	Secrets []Secret `yaml:"secrets"`
	// Thresholds are the parts of a limit: [50%, 80%, 100%], which is also what
	// is meant where they are left out.
	Thresholds []Percent `yaml:"thresholds"`
}

// Percents are the thresholds in force, in percent.
func (a Alerts) Percents() []int {
	if len(a.Thresholds) == 0 {
		return []int{50, 80, 100}
	}
	out := make([]int, len(a.Thresholds))
	for i, p := range a.Thresholds {
		out[i] = int(p)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// alerts checks who is told at a path.
func (d *document) alerts(path string, a Alerts, all Webhooks) {
	if !d.given(path) {
		return
	}
	if a.URL == "" {
		d.failAt(path, "url is missing: where alerts are posted")
		return
	}
	if text := a.URL.Reveal(); !strings.HasPrefix(text, "https://") && !strings.HasPrefix(text, "http://") {
		d.failAt(path+".url", "expected a URL that begins with https://") // what stands there instead may be a secret
	} else {
		d.webhookURL(path+".url", text, all.AllowHTTP)
	}
	switch {
	case a.Format == "standard":
		d.signers(path+".secrets", a.Secrets)
	case len(a.Secrets) > 0:
		d.failAt(path+".secrets", "sign nothing in format slack; set format: standard, or leave them out")
	}
}
