package cli

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/top"
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
