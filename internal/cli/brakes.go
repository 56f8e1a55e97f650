package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
)

func brakesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "brakes", Short: "List brakes that fired, release them, and stop a run by hand",
		Long: "A brake stops the calls of one run, user, key or other subject that runs wild: see docs/agents.md. A release\n" +
			"and a stop take effect in all processes within a second, and restarts keep them.\n\n" + adminHelp,
		Example: "  llmguard brakes list\n" +
			"  llmguard brakes release --org acme --brake wild-run user=carol run=abc --reason 'long migration'",
	}
	c.AddCommand(brakesListCommand(), brakesChangeCommand(true), brakesChangeCommand(false))
	return c
}

func brakesListCommand() *cobra.Command {
	var f adminFlags
	var org string
	c := &cobra.Command{
		Use: "list", Short: "List brakes that fired or were released, with what they saw", Args: cobra.NoArgs,
		Long: adminHelp,
		Example: "  llmguard brakes list\n" +
			"  llmguard brakes list --org acme -o json | jq -r '.[] | select(.action == \"stop\") | .subject'",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data []admin.FiredBrake `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, "/brakes?"+query("org", org), nil, &l); err != nil {
				return err
			}
			if len(l.Data) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "no brake has fired")
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return brakeTable(w, l.Data) })
		})
	}
	f.add(c, listFormats...)
	c.Flags().StringVar(&org, "org", "", "only these orgs, separated by commas")
	return c
}

func brakeTable(w io.Writer, list []admin.FiredBrake) error {
	if len(list) == 0 {
		return nil
	}
	g := grid{
		head:    []string{"org", "brake", "subject", "action", "age", "until", "why"},
		numbers: []bool{false, false, false, false, true, false, false},
	}
	for i := range list {
		b := &list[i]
		until := "until released"
		if b.Until != nil {
			until = b.Until.UTC().Format(time.RFC3339)
		}
		g.add(b.Org, b.Brake, escape.Text(b.Subject), b.Action, figures.Age(time.Since(b.Since)), until,
			cmp.Or(b.Why, escape.Text(b.Reason)))
	}
	return g.write(w)
}

// brakesChangeCommand is release, or stop.
func brakesChangeCommand(release bool) *cobra.Command {
	var f adminFlags
	var org, brake, life string
	c := &cobra.Command{
		Use: "stop NAME=VALUE...", Short: "Stop the calls of a subject by hand, as if a brake had fired",
		Args: cobra.MinimumNArgs(1),
		Long: "New calls of the subject get 403 brake_stopped until `llmguard brakes release`, or until --for has passed.\n\n" +
			adminHelp,
		Example: "  llmguard brakes stop --org acme --brake wild-run run=abc --for 1h --reason 'being looked at'",
	}
	action, during := "stop", "how long the stop lasts, such as 1h; default: until it is released"
	if release {
		c.Use, c.Short = "release NAME=VALUE...", "Release a brake for a subject: its calls run again"
		c.Long = "The brake does not fire for the subject again for one window of the brake, or for --for. Its waiting\n" +
			"jobs run within a minute.\n\n" + adminHelp
		c.Example = "  llmguard brakes release --org acme --brake wild-run user=carol run=abc --reason 'long migration'\n" +
			"  llmguard brakes release --org acme --brake endless run-budget=run_k3v5hd7q2mzx4abc --for 12h"
		action, during = "release", "how long the brake does not fire again, such as 12h; default: its window"
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error {
			var b admin.FiredBrake
			body := map[string]any{"subject": strings.Join(args, ","), "for": life, "reason": f.reason}
			if err := a.ask(c.Context(), http.MethodPost, pathOf("orgs", org, "brakes", brake, action), body, &b); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, b, func(w io.Writer) error {
				return brakeTable(w, []admin.FiredBrake{b})
			})
		})
	}
	f.add(c, listFormats...)
	f.why(c)
	c.Flags().StringVar(&org, "org", "", "the org (required)")
	c.Flags().StringVar(&brake, "brake", "", "the brake's name (required)")
	c.Flags().StringVar(&life, "for", "", during)
	for _, name := range []string{"org", "brake"} {
		_ = c.MarkFlagRequired(name) // fails for unknown flags only
	}
	return c
}
