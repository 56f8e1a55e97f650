package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/top"
	"github.com/llmguard/llmguard/queue"
)

// act carries out an order from the live view and returns what was done.
func (a *adminClient) act(ctx context.Context, order top.Order) (string, error) {
	switch order.Kind {
	case top.Override:
		return a.override(ctx, order)
	case top.Disable:
		path := pathOf("orgs", order.Org, "users", order.User) + "?" + url.Values{"reason": {order.Reason}}.Encode()
		err := a.ask(ctx, http.MethodPatch, path, map[string]any{"disabled": true}, nil)
		return fmt.Sprintf("disabled; enable again with: llmguard users enable %s --org %s", order.User, order.Org), err
	}
	return a.cancelAll(ctx, order)
}

func (a *adminClient) override(ctx context.Context, order top.Order) (string, error) {
	lasts, err := settings.ParseDuration(strings.TrimSpace(order.For))
	if err != nil {
		return "", fmt.Errorf("for %s: %w", order.For, err)
	}
	until := time.Now().Add(lasts).UTC().Truncate(time.Second)
	body := map[string]any{
		"limit": order.Limit, "add": strings.TrimSpace(order.Add), "until": until,
		"reason": order.Reason,
	}
	if order.User != "" {
		body["user"] = order.User
	}
	err = a.ask(ctx, http.MethodPost, pathOf("orgs", order.Org, "overrides"), body, nil)
	return fmt.Sprintf("%s changed by %s until %s", order.Limit, order.Add, figures.Minute(until)), err
}

// cancelAll cancels a user's waiting and running jobs.
func (a *adminClient) cancelAll(ctx context.Context, order top.Order) (string, error) {
	n, more := 0, false
	for _, state := range []queue.State{queue.Queued, queue.Running} {
		path := "/jobs?" + query("org", order.Org, "user", order.User, "status", string(state), "limit", "1000")
		l, err := get[lists[jobLine]](ctx, a, path)
		if err != nil {
			return "", err
		}
		more = more || l.HasMore
		for _, j := range l.Data {
			if err := a.ask(ctx, http.MethodPost, pathOf("orgs", j.Org, "jobs", j.ID, "cancel"),
				map[string]any{"reason": order.Reason}, nil); err != nil {
				return "", fmt.Errorf("%d jobs cancelled, then failed: %w", n, err)
			}
			n++
		}
	}
	if more {
		return fmt.Sprintf("%d jobs cancelled; there are more", n), nil
	}
	return fmt.Sprintf("%d jobs cancelled", n), nil
}
