package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/top"
)

func topCommand() *cobra.Command {
	var f usageFlags
	var every time.Duration
	var once bool
	var rows int
	c := &cobra.Command{
		Use: "top", Short: "Show what happens now: spending against limits, who waits, pools and quota, slowest calls", Args: cobra.NoArgs,
		Long: "A live view in the terminal; ? lists its keys. With --once, or when the output is no terminal, it prints one sample.\n" +
			"It reads Redis alone, so it works while proxies are down. Last-minute values cover calls that ended in it.\n" +
			"Keys override a limit, disable a user or cancel their jobs, after a question; the audit has the reason.",
		Example: "  llmguard top\n  llmguard top --org acme --interval 5s\n  llmguard top --once -o json | jq '.orgs[] | select(any(.limits[]; .used > .amount * 0.9))'",
		RunE: func(c *cobra.Command, _ []string) error {
			if every < 500*time.Millisecond || every > time.Hour {
				return fmt.Errorf("--interval %s: expected 500ms to 1h", every)
			}
			if rows < 1 {
				return fmt.Errorf("--rows %d: expected 1 or more", rows)
			}
			o, err := f.openOffice(c.Context())
			if err != nil {
				return err
			}
			defer o.Close()
			s := f.sampler(o)
			if once || f.output != "table" || !terminal(c.InOrStdin()) || !terminal(c.OutOrStdout()) {
				snap, err := s.Sample(c.Context(), "")
				if err != nil {
					return err
				}
				return render(c.OutOrStdout(), f.output, snap, func(w io.Writer) error { return top.Print(w, snap, rows) })
			}
			m := top.NewModel(c.Context(), every, coloured(c.OutOrStdout()), s.Sample)
			m.Allow(func(ctx context.Context, order top.Order) (string, error) { return f.act(ctx, o, order) })
			_, err = tea.NewProgram(m, tea.WithContext(c.Context()), tea.WithInput(c.InOrStdin()), tea.WithOutput(behind(c.OutOrStdout()).(io.Writer))).Run()
			if errors.Is(err, tea.ErrInterrupted) || c.Context().Err() != nil {
				return nil // the way to leave it
			}
			return err
		},
	}
	f.direct(c)
	formatFlag(c, &f.output, plainFormats...)
	c.Flags().DurationVar(&every, "interval", 2*time.Second, "time between two samples, 500ms to 1h")
	c.Flags().BoolVar(&once, "once", false, "print one sample and end")
	c.Flags().IntVar(&rows, "rows", 10, "lines of each table that --once prints")
	return c
}

func terminal(v any) bool {
	f, ok := behind(v).(*os.File)
	return ok && term.IsTerminal(f.Fd())
}

// policyAge is how old the limits may be that top shows: changes of them, and
// raises, are read anew.
const policyAge = 10 * time.Second

func (f *usageFlags) sampler(o *office) *top.Sampler {
	var known map[string]*guard.Org
	var read time.Time
	orgs := func(ctx context.Context) (map[string]*guard.Org, error) {
		if time.Since(read) < policyAge {
			return known, nil
		}
		all, err := app.Orgs(ctx, o.cfg, o.rdb, slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, err
		}
		for id := range all {
			if len(o.orgs) != len(o.cfg.Orgs) && !slices.Contains(o.orgs, id) {
				delete(all, id)
			}
		}
		known, read = all, time.Now()
		return known, nil
	}
	books := budget.New(o.rdb, budget.Options{LedgerLength: app.LedgerLength(o.cfg.Ledger)})
	return top.NewSampler(top.Source{Books: books, Queue: o.Queue, Pools: o.pools, Orgs: orgs})
}
