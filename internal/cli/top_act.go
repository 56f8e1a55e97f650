package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/queue"
	"github.com/llmguard/llmguard/top"
)

// act does what the operator ordered in the live view, through the administrators' API,
// and says what was done.
func (f *usageFlags) act(ctx context.Context, o *office, order top.Order) (string, error) {
	file, err := config.Load(f.path) // again: the API works on what is in force now
	if err != nil {
		return "", err
	}
	api, err := localClient(ctx, file, o.rdb)
	if err != nil {
		return "", err
	}
	switch order.Kind {
	case top.Override:
		return override(ctx, api, order)
	case top.Disable:
		path := pathOf("orgs", order.Org, "users", order.User) + "?" + url.Values{"reason": {order.Reason}}.Encode()
		err := api.ask(ctx, http.MethodPatch, path, map[string]any{"disabled": true}, nil)
		return fmt.Sprintf("disabled; to enable: llmguard users enable %s --org %s", order.User, order.Org), err
	}
	return o.cancelAll(ctx, api, order)
}

func override(ctx context.Context, api *adminClient, order top.Order) (string, error) {
	lasts, err := config.ParseDuration(strings.TrimSpace(order.For))
	if err != nil {
		return "", fmt.Errorf("for %s: %w", order.For, err)
	}
	until := time.Now().Add(lasts).UTC().Truncate(time.Second)
	body := map[string]any{"limit": order.Limit, "add": strings.TrimSpace(order.Add), "until": until, "reason": order.Reason}
	if order.User != "" {
		body["user"] = order.User
	}
	err = api.ask(ctx, http.MethodPost, pathOf("orgs", order.Org, "overrides"), body, nil)
	return fmt.Sprintf("%s changed by %s until %s UTC", order.Limit, order.Add, until.Format("15:04")), err
}

// cancelAll cancels a user's jobs that wait or run.
func (o *office) cancelAll(ctx context.Context, api *adminClient, order top.Order) (string, error) {
	n, more := 0, false
	for _, state := range []queue.State{queue.Queued, queue.Running} {
		page, err := o.List(ctx, order.Org, queue.Filter{User: order.User, State: state}, "", 1000)
		if err != nil {
			return "", err
		}
		more = more || page.More
		for _, j := range page.Jobs {
			if err := api.ask(ctx, http.MethodPost, pathOf("orgs", j.Org, "jobs", j.ID, "cancel"), map[string]any{"reason": order.Reason}, nil); err != nil {
				return "", fmt.Errorf("%d jobs were cancelled, then: %w", n, err)
			}
			n++
		}
	}
	if more {
		return fmt.Sprintf("%d jobs cancelled; there are more", n), nil
	}
	return fmt.Sprintf("%d jobs cancelled", n), nil
}
