package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/top"
)

func reconcileCommand() *cobra.Command {
	var f usageFlags
	c := &cobra.Command{
		Use: "reconcile", Short: "List charges that came too late to be booked by themselves, and book or drop them",
		Args: cobra.NoArgs,
		Long: "A charge that arrives more than an hour after its call cannot be told from one that was booked before, so it waits here.\n" +
			"\"booked\" is what the ledger has of the same call and attempt: if it has it, drop the charge; if it does not, charge it.",
		Example: "  llmguard usage reconcile\n" +
			"  llmguard usage reconcile charge --call 01m7x425asv4hapb0hzey6k903 --reason 'proxy 3 was cut off, ticket 90'",
		RunE: func(c *cobra.Command, _ []string) error { return showUnresolved(c.Context(), &f, c.OutOrStdout()) },
	}
	f.add(c, listFormats...)
	c.AddCommand(resolveCommand("charge", "Book a charge of the list", true),
		resolveCommand("drop", "Take a charge off the list and do not book it", false))
	return c
}

func showUnresolved(ctx context.Context, f *usageFlags, w io.Writer) error {
	l, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	all := []admin.Unresolved{}
	for _, org := range l.orgs {
		var list struct {
			Data []admin.Unresolved `json:"data"`
		}
		if err := l.ask(ctx, http.MethodGet, pathOf("orgs", org, "unresolved"), nil, &list); err != nil {
			return err
		}
		all = append(all, list.Data...)
	}
	return render(w, f.output, all, func(w io.Writer) error {
		if len(all) == 0 {
			_, err := fmt.Fprintln(w, "nothing is left to reconcile")
			return err
		}
		g := grid{
			head:    []string{"arrived (UTC)", "org", "user", "model", "call", "attempt", "cost", "", "booked"},
			numbers: []bool{false, false, false, false, false, true, true, false, false},
		}
		for _, u := range all {
			booked := "no"
			if u.Booked != nil {
				booked = fmt.Sprintf("yes, %s (%s)", nano(u.Booked.Total), u.Booked.Kind)
			}
			g.add(u.At.UTC().Format("2006-01-02 15:04:05"), u.Org, u.User, top.Printable(u.Model), u.ID, whole(int64(u.Attempt)),
				u.Cost.String(), remark(u.Entry), booked)
		}
		return g.write(w)
	})
}

func resolveCommand(use, short string, charge bool) *cobra.Command {
	var f usageFlags
	var by who
	var call string
	var attempt int
	var again bool
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			body := map[string]any{"action": use, "reason": by.reason, "limits": by.limits, "although_booked": again}
			if c.Flags().Changed("attempt") {
				body["attempt"] = attempt
			}
			if by.by != "" {
				body["by"] = by.by
			}
			return resolve(c.Context(), &f, call, body, c.OutOrStdout())
		},
	}
	f.add(c, listFormats...)
	by.add(c)
	c.Flags().StringVar(&call, "call", "", "the call's id; needed")
	c.Flags().IntVar(&attempt, "attempt", 0, "which attempt, if several of the call are on the list")
	_ = c.MarkFlagRequired("call")
	if charge {
		c.Flags().BoolVar(&again, "although-booked", false, "charge it although the ledger has the call already")
	} else {
		_ = c.Flags().MarkHidden("limits")
	}
	return c
}

// resolve books or drops a charge of the list.
func resolve(ctx context.Context, f *usageFlags, call string, body map[string]any, w io.Writer) error {
	l, org, err := f.openOne(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	var done admin.Corrected
	if err := l.ask(ctx, http.MethodPost, pathOf("orgs", org, "unresolved", call), body, &done); err != nil {
		return err
	}
	return render(w, f.output, done, func(w io.Writer) error {
		if body["action"] == "drop" {
			_, err := fmt.Fprintf(w, "dropped %s of user %s of org %s\n", nano(done.Amount), done.User, org)
			return err
		}
		fmt.Fprintf(w, "charged %s to user %s of org %s\n", nano(done.Amount), done.User, org)
		if body["limits"] == true {
			fmt.Fprintln(w, limitNames(done.Limits))
		}
		return nil
	})
}
