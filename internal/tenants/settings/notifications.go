package settings

import (
	"slices"
	"time"
)

// Alerts are messages about money limits of orgs and users that pass a threshold. See docs/webhooks.md.
type Alerts struct {
	// URL is where alerts are posted, https. A chat's address is a secret.
	URL Secret `yaml:"url"`
	// Format is what is posted. slack: {"text": "..."}, for Slack, Mattermost, Rocket.Chat and others. standard: a
	// signed event alert.limit.
	Format string `yaml:"format" default:"slack" enum:"slack,standard"`
	// Secrets sign alerts, like the secrets of webhooks.
	Secrets []Secret `yaml:"secrets" needs:"format=standard"`
	// Thresholds are the parts of a limit, by default [50%, 80%, 100%].
	Thresholds []Percent `yaml:"thresholds"`
	// Forecast also alerts when a limit will run out within this time, such as 1h, and before it resets, at its
	// recent rate. 0: off.
	Forecast time.Duration `yaml:"forecast" min:"0"`
	// PerHour is the most messages of one org in an hour. One more message counts the others.
	PerHour int `yaml:"per_hour" default:"20" range:"1..500"`
}

// Percents returns the effective thresholds, in percent.
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

// Webhook is a server to notify when jobs, batches and responses end.
type Webhook struct {
	// URL is where events are posted: https, any port.
	URL string `yaml:"url,required" unique:"list"`
	// Secrets sign every event: whsec_ and 24 to 64 bytes in base64. List two during a rotation.
	Secrets []Secret `yaml:"secrets,required"`
	// Events are patterns of event types. Default: all.
	Events []string `yaml:"events" range:"1.." kind:"event"`
}

// RequestWebhooks are the targets that requests and batches may name. Default: none.
type RequestWebhooks struct {
	// Hosts are host names, or *. and a domain for all names below it. With :port they are for that port, otherwise
	// for 443.
	Hosts   []string `yaml:"hosts" kind:"host"`
	Secrets []Secret `yaml:"secrets"`
}
