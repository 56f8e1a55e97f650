package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/alert"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/top"
	"github.com/llmguard/llmguard/webhook"
)

func webhooksCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "webhooks", Short: "List and replay the webhook deliveries that were given up",
		Long: "Works on the deliveries in Redis itself, for operators. docs/webhooks.md says when one is given up.",
	}
	c.AddCommand(webhooksDeadCommand(), webhooksReplayCommand())
	return c
}

func webhooksDeadCommand() *cobra.Command {
	var limit int
	c := jobsSub("dead", "List the deliveries that were given up, the newest first",
		"  llmguard webhooks dead --org acme\n  llmguard webhooks dead -o json | jq -r '.[] | select(.reason == \"gone\") | .id'",
		cobra.NoArgs, listFormats, func(c *cobra.Command, f *usageFlags, o *office, _ []string) error {
			if limit < 1 || limit > 1000 {
				return fmt.Errorf("--limit %d: expected 1 to 1000", limit)
			}
			hooks, err := o.webhooks()
			if err != nil {
				return err
			}
			out := []webhook.DeadLetter{}
			for _, org := range o.hooked() {
				list, err := hooks.Dead(c.Context(), org, limit)
				if err != nil {
					return err
				}
				if len(list) == limit {
					fmt.Fprintf(c.ErrOrStderr(), "org %s has %d or more; --limit lists more\n", org, limit)
				}
				out = append(out, list...)
			}
			if len(out) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "no dead letters")
			}
			return render(c.OutOrStdout(), f.output, out, func(w io.Writer) error { return letterTable(w, out) })
		})
	c.Flags().IntVar(&limit, "limit", 100, "how many of an org, 1 to 1000")
	return c
}

func webhooksReplayCommand() *cobra.Command {
	return jobsSub("replay ID...", "Deliver again what was given up, with the same webhook-id",
		"  llmguard webhooks dead\n  llmguard webhooks dead --org acme -o json | jq -r '.[].id' | xargs llmguard webhooks replay --org acme",
		cobra.MinimumNArgs(1), listFormats, func(c *cobra.Command, f *usageFlags, o *office, args []string) error {
			hooks, err := o.webhooks()
			if err != nil {
				return err
			}
			out := []webhook.DeadLetter{}
			for _, id := range args {
				l, err := o.replayWebhook(c, hooks, id)
				if err != nil {
					return err
				}
				out = append(out, l)
			}
			return render(c.OutOrStdout(), f.output, out, func(w io.Writer) error { return letterTable(w, out) })
		})
}

// replayWebhook replays a dead letter of any of the orgs.
func (o *office) replayWebhook(c *cobra.Command, hooks *webhook.Sender, id string) (webhook.DeadLetter, error) {
	for _, org := range o.hooked() {
		l, err := hooks.Replay(c.Context(), org, id)
		if !errors.Is(err, webhook.ErrNotDead) {
			return l, err
		}
	}
	return webhook.DeadLetter{}, fmt.Errorf("no dead letter %s; `llmguard webhooks dead` lists them", top.Printable(id))
}

// hooked are the orgs asked for, and with all of them also who is told of all.
func (o *office) hooked() []string {
	if len(o.orgs) == len(o.cfg.Orgs) {
		return slices.Concat(o.orgs, []string{alert.Everyone})
	}
	return o.orgs
}

func (o *office) webhooks() (*webhook.Sender, error) {
	return app.Webhooks(o.cfg, o.rdb, slog.New(slog.DiscardHandler))
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
		g.add(l.ID, aged(time.Since(l.Died)), l.Org, l.Type, top.Printable(l.Object), top.Printable(l.Host), string(l.Reason), strconv.Itoa(l.Attempts), top.Printable(l.Error))
	}
	return g.write(w)
}
