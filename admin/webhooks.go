package admin

import (
	"errors"
	"slices"

	"github.com/llmguard/llmguard/webhook"
	"github.com/llmguard/llmguard/wire"
)

// webhooks opens the webhooks.
func (c *call) webhooks() (*webhook.Sender, error) {
	if c.o.Webhooks == nil {
		return nil, noWork("webhooks")
	}
	return c.o.Webhooks()
}

func (c *call) listWebhooks() (any, error) {
	hooks, err := c.webhooks()
	if err != nil {
		return nil, err
	}
	orgs := hooks.Orgs()
	if org := c.r.URL.Query().Get("org"); org != "" {
		orgs = []string{org}
	}
	var all []webhook.Target
	for _, org := range orgs {
		list, err := hooks.Targets(c.r.Context(), org)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return listOf(all), nil
}

// enableWebhook lets events go to a target again that was switched off.
func (c *call) enableWebhook() (any, error) {
	var order workOrder
	if err := c.read(&order); err != nil {
		return nil, err
	}
	hooks, err := c.webhooks()
	if err != nil {
		return nil, err
	}
	ctx, org, id := c.r.Context(), c.r.PathValue("org"), c.r.PathValue("target")
	list, err := hooks.Targets(ctx, org)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list, func(t webhook.Target) bool { return t.ID == id })
	if at < 0 {
		return nil, wire.NotFound("target", "webhook_not_found", "The org has no webhook target %.80q", id)
	}
	before := list[at]
	if before.Off == nil {
		return nil, conflict("webhook_not_off", "The target is not switched off")
	}
	if err := hooks.SwitchOn(ctx, org, id); err != nil && !errors.Is(err, webhook.ErrNotOff) { // another was faster
		return nil, err
	}
	after := before
	after.Off = nil
	e := c.entry("webhook.enable", org, id)
	e.Reason = order.Reason
	return after, c.commit(e, before, after)
}
