package settings

import "slices"

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

// Webhook is one such server.
type Webhook struct {
	// URL is where events are posted: https, with any port.
	URL string `yaml:"url,required"`
	// Secrets sign every event, each with a signature of its own: whsec_ and 24
	// to 64 bytes in base64, from the environment in production. Two while one
	// is replaced.
	Secrets []Secret `yaml:"secrets,required"`
	// Events are patterns of the types of events it is told. Left out: all.
	Events []string `yaml:"events"`
}

// RequestWebhooks are the targets that requests may name.
type RequestWebhooks struct {
	// Hosts are host names, or *. and a domain for all names below it. With
	// :port they are for that port alone, without for that of https.
	Hosts []string `yaml:"hosts"`
	// Secrets sign what goes there, as those of an org's webhooks do.
	Secrets []Secret `yaml:"secrets"`
}
