package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
)

func reconcileCommand() *cobra.Command {
	var f usageFlags
	c := &cobra.Command{
		Use: "reconcile", Short: "List, book or drop charges that arrived too late to be booked automatically",
		Args: cobra.NoArgs,
		Long: "A charge that arrives more than an hour after its call may already be booked, so it waits here for your decision. \"booked\"\n" +
			"shows what the ledger has for the same call and attempt. If it is booked, drop the charge; otherwise, charge it.",
		Example: "  llmguard usage reconcile\n" +
			"  llmguard usage reconcile charge --call 01m7x425asv4hapb0hzey6k903 --reason 'proxy 3 was offline, ticket 90'",
		RunE: func(c *cobra.Command, _ []string) error { return showUnresolved(c.Context(), &f, c.OutOrStdout()) },
	}
	f.add(c, listFormats...)
	c.AddCommand(resolveCommand("charge", "Book a late charge", true),
		resolveCommand("drop", "Drop a late charge without booking it", false))
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
			_, err := fmt.Fprintln(w, "nothing to reconcile")
			return err
		}
		g := grid{
			head:    []string{"arrived (UTC)", "org", "user", "model", "call", "attempt", "cost", "", "booked"},
			numbers: []bool{false, false, false, false, false, true, true, false, false},
		}
		for _, u := range all {
			booked := "no"
			if u.Booked != nil {
				booked = fmt.Sprintf("yes, %s (%s)", quantityText(w, "nano_usd", u.Booked.Total), u.Booked.Kind)
			}
			g.add(u.At.UTC().Format("2006-01-02 15:04:05"), u.Org, u.User, escape.Text(u.Model), u.ID, whole(int64(u.Attempt)),
				usd(w, u.Cost), remark(u.Entry), booked)
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
		Example: "  llmguard usage reconcile " + use + " --call 01m7x425asv4hapb0hzey6k903 --reason 'ticket 90'",
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
	c.Flags().StringVar(&call, "call", "", "id of the call (required)")
	c.Flags().IntVar(&attempt, "attempt", 0, "the attempt, if the list has several of the call")
	_ = c.MarkFlagRequired("call")
	if charge {
		c.Flags().BoolVar(&again, "although-booked", false, "charge even if the ledger already has the call")
	} else {
		_ = c.Flags().MarkHidden("limits")
	}
	return c
}

// resolve books or drops a late charge.
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
			_, err := fmt.Fprintf(w, "dropped %s of user %s of org %s\n", quantityText(w, "nano_usd", done.Amount), done.User,
				org)
			return err
		}
		fmt.Fprintf(w, "charged %s to user %s of org %s\n", quantityText(w, "nano_usd", done.Amount), done.User, org)
		if body["limits"] == true {
			fmt.Fprintln(w, limitNames(done.Limits))
		}
		return runNames(w, done.Runs)
	})
}
