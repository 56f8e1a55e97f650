package cli

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/webhook"
)

func webhooksCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "webhooks", Short: "List webhook targets and failed deliveries, re-enable and replay them",
		Example: "  llmguard webhooks targets\n" +
			"  llmguard webhooks dead --org acme",
		Long: "For operators. See docs/webhooks.md for when a delivery counts as failed.\n\n" + adminHelp,
	}
	c.AddCommand(webhooksDeadCommand(), webhooksReplayCommand(), webhooksTargetsCommand(), webhooksEnableCommand())
	return c
}

func webhooksDeadCommand() *cobra.Command {
	var f usageFlags
	var limit int
	c := &cobra.Command{
		Use: "dead", Short: "List failed deliveries, newest first", Args: cobra.NoArgs,
		Long: adminHelp,
		Example: "  llmguard webhooks dead --org acme\n" +
			"  llmguard webhooks dead -o json | jq -r '.[] | select(.reason == \"gone\") | .id'",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		if limit < 1 || limit > 1000 {
			return misused("--limit %d: expected 1 to 1000", limit)
		}
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data    []webhook.DeadLetter `json:"data"`
				HasMore bool                 `json:"has_more"`
			}
			if err := a.ask(c.Context(), http.MethodGet, "/webhooks/dead?"+query("org", f.org, "limit", strconv.Itoa(limit)),
				nil, &l); err != nil {
				return err
			}
			if l.HasMore {
				fmt.Fprintf(c.ErrOrStderr(), "an org has %d or more; use --limit to list more\n", limit)
			}
			if len(l.Data) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "no dead letters")
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return letterTable(w, l.Data) })
		})
	}
	f.add(c, listFormats...)
	c.Flags().IntVar(&limit, "limit", 100, "maximum number of deliveries per org, 1 to 1000")
	return c
}

func webhooksReplayCommand() *cobra.Command {
	var f usageFlags
	c := &cobra.Command{
		Use: "replay ID...", Short: "Send failed deliveries again with the same webhook-id", Args: cobra.MinimumNArgs(1),
		Example: "  llmguard webhooks dead\n" +
			"  llmguard webhooks dead --org acme -o json | jq -r '.[].id' | xargs -r llmguard webhooks replay --org acme",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error {
			out := make([]webhook.DeadLetter, len(args))
			for i, id := range args {
				if err := a.ask(c.Context(), http.MethodPost, pathOf("webhooks", "dead", id, "replay")+"?"+query("org", f.org),
					map[string]any{}, &out[i]); err != nil {
					return err
				}
			}
			return render(c.OutOrStdout(), f.output, out, func(w io.Writer) error { return letterTable(w, out) })
		})
	}
	f.add(c, listFormats...)
	f.why(c)
	return c
}

func letterTable(w io.Writer, list []webhook.DeadLetter) error {
	if len(list) == 0 {
		return nil
	}
	g := grid{
		head:    []string{"id", "age", "org", "event", "of", "host", "reason", "tries", "last error"},
		numbers: []bool{false, true, false, false, false, false, false, true, false},
	}
	for i := range list {
		l := &list[i]
		g.add(l.ID, figures.Age(time.Since(l.Died)), l.Org, l.Type, escape.Text(l.Object), escape.Text(l.Host),
			string(l.Reason),
			strconv.Itoa(l.Attempts), escape.Text(l.Error))
	}
	return g.write(w)
}
