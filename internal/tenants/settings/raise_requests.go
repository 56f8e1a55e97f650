package settings

import (
	"cmp"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// RaiseRequests are requests of callers for more of a cost limit, which an administrator approves or denies.
type RaiseRequests struct {
	// Mode is whether callers may request more. Default: refuse; in an org, as in defaults.
	Mode string `yaml:"mode" enum:"allow,refuse"`
	// MaxAmount is the most that one request may add to a limit. Default: $50; in an org, as in defaults.
	MaxAmount Quantity `yaml:"max_amount" kind:"money"`
	// MaxFor is the longest time from the request. Default: 24h; in an org, as in defaults.
	MaxFor time.Duration `yaml:"max_for" range:"..30d"`
}

// Bounds that apply unless the configuration has others.
const (
	usualRaise    = 50 * pricing.NanoPerUSD
	usualRaiseFor = 24 * time.Hour
)

// RaiseRequestsOf returns the settings of an org, with the defaults where it has none.
func (d Defaults) RaiseRequestsOf(o *Org) RaiseRequests {
	own, all := o.RaiseRequests, d.RaiseRequests
	return RaiseRequests{
		Mode:      cmp.Or(own.Mode, all.Mode, "refuse"),
		MaxAmount: cmp.Or(own.MaxAmount, all.MaxAmount, Quantity{N: int64(usualRaise), Money: true}),
		MaxFor:    cmp.Or(own.MaxFor, all.MaxFor, usualRaiseFor),
	}
}
