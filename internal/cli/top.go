package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/internal/top"
	"github.com/llmguard/llmguard/queue"
)

func topCommand() *cobra.Command {
	var f usageFlags
	var every time.Duration
	var once bool
	var rows int
	var q top.Query
	c := &cobra.Command{
		Use: "top", Short: "Show live spending against limits, queues, pools, quotas and the slowest calls",
		Args: cobra.NoArgs,
		Long: "A live view in the terminal; press ? for its keys. With --once, or if the output is not a terminal, it prints one sample.\n" +
			"Last-minute values cover calls that ended in the last minute. With --config it works even if no proxy is running. Keys can\n" +
			"override a limit, disable a user or cancel their jobs; each asks for confirmation, and for a reason for the audit.\n\n" +
			adminHelp,
		Example: "  llmguard top\n" +
			"  llmguard top --by run --filter 'user=alice model=gpt-*'\n" +
			"  llmguard top --org acme --interval 5s\n" +
			"  llmguard top --once -o json | jq '.orgs[] | select(any(.limits[]; .used > .amount * 0.9))'",
		RunE: func(c *cobra.Command, _ []string) error {
			if every < 500*time.Millisecond || every > time.Hour {
				return misused("--interval %s: expected 500ms to 1h", every)
			}
			if rows < 1 {
				return misused("--rows %d: expected 1 or more", rows)
			}
			return f.run(c, func(a *adminClient) error {
				if once || f.output != "table" || !terminal(c.InOrStdin()) || !terminal(c.OutOrStdout()) {
					snap, err := a.sample(c.Context(), f.org, q)
					if err != nil {
						return err
					}
					return render(c.OutOrStdout(), f.output, snap, func(w io.Writer) error { return top.Print(w, snap, rows) })
				}
				return f.show(c, a, every, q)
			})
		},
	}
	f.add(c, plainFormats...)
	c.Flags().DurationVar(&every, "interval", 2*time.Second, "time between two samples, 500ms to 1h")
	c.Flags().BoolVar(&once, "once", false, "print one sample and exit")
	c.Flags().StringVar(&q.By, "by", "",
		"group calls by key, model, provider, endpoint, run or label:NAME (default: the first label, otherwise model)")
	c.Flags().StringVar(&q.Filter, "filter", "",
		"only calls of the last minute that meet conditions: 'run=nightly-7 model=gpt-* status>=400 cost>0.50'")
	c.Flags().IntVar(&rows, "rows", 10, "number of lines per table with --once")
	return c
}

// show runs the live view until the operator quits.
func (f *usageFlags) show(c *cobra.Command, a *adminClient, every time.Duration, start top.Query) error {
	m := top.NewModel(c.Context(), every, coloured(c.OutOrStdout()),
		func(ctx context.Context, q top.Query) (*top.Snapshot, error) {
			return a.sample(ctx, f.org, q)
		})
	m.Where(start.By, start.Filter)
	m.Allow(a.act)
	a.notes = nil // standard error is the screen
	_, err := tea.NewProgram(m, tea.WithContext(c.Context()), tea.WithInput(c.InOrStdin()),
		tea.WithOutput(behind(c.OutOrStdout()).(io.Writer))).Run()
	if errors.Is(err, tea.ErrInterrupted) || c.Context().Err() != nil {
		return nil // the operator quit
	}
	return err
}

func terminal(v any) bool {
	f, ok := behind(v).(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// sample fetches a snapshot of current activity, of all orgs if none is named.
func (a *adminClient) sample(ctx context.Context, orgs string, q top.Query) (*top.Snapshot, error) {
	var snap top.Snapshot
	path := "/top?" + query("org", orgs, "user", q.User, "by", q.By, "filter", q.Filter)
	return &snap, a.ask(ctx, http.MethodGet, path, nil, &snap)
}

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
