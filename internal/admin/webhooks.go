package admin

import (
	"errors"
	"slices"

	"github.com/llmguard/llmguard/internal/alert"
	"github.com/llmguard/llmguard/internal/webhook"
	"github.com/llmguard/llmguard/internal/wire"
)

type webhookHandler struct{ base }

// open makes a handler of one that needs the webhook sender.
func (h *webhookHandler) open(serve func(*call, *webhook.Sender) (any, error)) handler {
	return func(c *call) (any, error) {
		if h.opts.Webhooks == nil {
			return nil, noWork("webhooks")
		}
		hooks, err := h.opts.Webhooks()
		if err != nil {
			return nil, err
		}
		return serve(c, hooks)
	}
}

func (h *webhookHandler) listWebhooks(c *call, hooks *webhook.Sender) (any, error) {
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

func (h *webhookHandler) enableWebhook(c *call, hooks *webhook.Sender) (any, error) {
	ctx := c.r.Context()
	org := c.r.PathValue("org")
	id := c.r.PathValue("target")
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
		return nil, conflict("webhook_not_off", "The target is not disabled")
	}
	if err := hooks.SwitchOn(ctx, org, id); err != nil && !errors.Is(err, webhook.ErrNotOff) { // it is already on
		return nil, err
	}
	after := before
	after.Off = nil
	return after, h.audit.commit(c, c.entry(org, id), before, after)
}

type deadPage struct {
	page[webhook.DeadLetter]
	HasMore bool `json:"has_more"`
}

// hooked returns the orgs named in the query; without any, also the targets that receive the
// events of all orgs.
func (h *webhookHandler) hooked(c *call) ([]string, error) {
	orgs, err := h.dir.wantedOrgs(c)
	if c.r.URL.Query().Get("org") == "" {
		orgs = append(orgs, alert.Everyone)
	}
	return orgs, err
}

// listDeadWebhooks lists failed deliveries, newest first within each org.
func (h *webhookHandler) listDeadWebhooks(c *call, hooks *webhook.Sender) (any, error) {
	orgs, err := h.hooked(c)
	if err != nil {
		return nil, err
	}
	limit, err := c.most(100)
	if err != nil {
		return nil, err
	}
	out := deadPage{page: listOf[webhook.DeadLetter](nil)}
	for _, org := range orgs {
		list, err := hooks.Dead(c.r.Context(), org, limit)
		if err != nil {
			return nil, err
		}
		out.Data, out.HasMore = append(out.Data, list...), out.HasMore || len(list) == limit
	}
	return out, nil
}

func (h *webhookHandler) replayWebhook(c *call, hooks *webhook.Sender) (any, error) {
	orgs, err := h.hooked(c)
	if err != nil {
		return nil, err
	}
	id := c.r.PathValue("letter")
	for _, org := range orgs {
		letter, err := hooks.Replay(c.r.Context(), org, id)
		if errors.Is(err, webhook.ErrNotDead) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return letter, h.audit.commit(c, c.entry(org, id), letter, nil)
	}
	return nil, wire.NotFound("letter", "dead_letter_not_found",
		"There is no dead letter %.80q. `llmguard webhooks dead` lists them", id)
}
