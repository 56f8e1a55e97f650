package config

import "github.com/llmguard/llmguard/internal/tenants/settings"

// What the file has of orgs.
type (
	// Org is a tenant. Nothing of it is visible to another.
	Org = settings.Org
	// User is a person or a program in an org.
	User = settings.User
	// Key is an API key, known by its hash only.
	Key = settings.Key
	// Limit bounds one metric of one subject, in exactly one shape.
	Limit = settings.Limit
	// Bucket fills steadily up to its capacity and is drained by use.
	Bucket = settings.Bucket
	// Defaults are what every org has that does not say otherwise.
	Defaults = settings.Defaults
	// Alerts say who is told when a limit of money is nearly used up.
	Alerts = settings.Alerts
	// Webhook is a server that is told of what has ended.
	Webhook = settings.Webhook
	// RequestWebhooks are the targets that requests may name.
	RequestWebhooks = settings.RequestWebhooks
	// Secret is a text that is never printed; Reveal gives the text itself.
	Secret = settings.Secret
	// Percent is a part of something, 1 to 100.
	Percent = settings.Percent
	// Quantity is an amount of money or a count; the zero value means not given.
	Quantity = settings.Quantity
	// Rate is a quantity per time; the zero value means not given.
	Rate = settings.Rate
)

// MaxQuantity is the largest quantity there is.
const MaxQuantity = settings.MaxQuantity

// Tenants are the orgs of the configuration, with what every org has.
func (c *Config) Tenants() settings.Set { return settings.Set{Orgs: c.Orgs, Defaults: c.Defaults} }
