package config

import "github.com/llmguard/llmguard/internal/tenants/settings"

// Aliases of the types for orgs, which the file and the admin API share.
type (
	// Org is a tenant. Orgs cannot see each other.
	Org = settings.Org
	// User is a person or a program in an org.
	User = settings.User
	// Key is an API key, known by its hash only.
	Key = settings.Key
	// Limit limits one metric of one subject, in exactly one shape.
	Limit = settings.Limit
	// Bucket refills steadily up to its capacity.
	Bucket = settings.Bucket
	// Defaults apply to every org that does not override them.
	Defaults = settings.Defaults
	// Cache is the response cache of an org.
	Cache = settings.Cache
	// Runs bound the runs of an org.
	Runs = settings.Runs
	// RaiseRequests are requests of callers for more of a cost limit.
	RaiseRequests = settings.RaiseRequests
	// Alerts configure notifications when cost limits are nearly used up.
	Alerts = settings.Alerts
	// Webhook is a server that receives events.
	Webhook = settings.Webhook
	// RequestWebhooks are the targets that requests may name.
	RequestWebhooks = settings.RequestWebhooks
	// Secret is a text that is never printed; Reveal returns the text.
	Secret = settings.Secret
	// Percent is a percentage from 1 to 100.
	Percent = settings.Percent
	// Size is a number of bytes.
	Size = settings.Size
	// Quantity is an amount of money or a count; the zero value means not given.
	Quantity = settings.Quantity
	// Rate is a quantity per time; the zero value means not given.
	Rate = settings.Rate
)

// PercentOrOff is a percentage from 1 to 100, or 0 for off.
type PercentOrOff int

// MaxQuantity is the maximum quantity.
const MaxQuantity = settings.MaxQuantity

// Tenants returns the orgs of the configuration and the defaults for every org.
func (c *Config) Tenants() settings.Set { return settings.Set{Orgs: c.Orgs, Defaults: c.Defaults} }
