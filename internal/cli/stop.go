package cli

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
)

func stopCommand() *cobra.Command {
	var f adminFlags
	var org string
	c := &cobra.Command{
		Use: "stop", Short: "Stop all spending, of one org or of everybody", Args: cobra.NoArgs,
		Long: "In every process, within a second: new calls and connected callers that wait get 403 spending_stopped, workers start no\n" +
			"job, and no batch line is sent. Jobs and batches are kept, and run after `llmguard resume`; their deadlines continue.\n" +
			"Calls that already run finish. The stop is stored in Redis, so restarts keep it. It does not ask for confirmation.\n\n" +
			adminHelp,
		Example: "  llmguard stop --reason 'key leaked'\n  llmguard stop --org acme --reason 'runaway agent'",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			var s admin.Stop
			path := pathOf("orgs", stopOrg(org), "stop")
			if err := a.ask(c.Context(), http.MethodPut, path, map[string]any{"reason": f.reason}, &s); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "stopped all spending of %s at %s\nresume it with: llmguard resume%s\n",
				stoppedText(s.Org), s.Since.UTC().Format(time.RFC3339), orgArgument(org))
			return nil
		})
	}
	f.add(c)
	f.why(c)
	c.Flags().StringVar(&org, "org", "", "only this org")
	return c
}

func resumeCommand() *cobra.Command {
	var f adminFlags
	var org string
	c := &cobra.Command{
		Use: "resume", Short: "Resume spending that was stopped", Args: cobra.NoArgs,
		Long: "Without --org it ends the stop of everybody; orgs that were stopped by name stay stopped. Waiting jobs and batches start\n" +
			"within two seconds.\n\n" + adminHelp,
		Example: "  llmguard resume --reason 'key revoked'\n  llmguard resume --org acme",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			path := pathOf("orgs", stopOrg(org), "stop")
			if err := a.ask(c.Context(), http.MethodDelete, path, nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "resumed the spending of %s\n", stoppedText(stopOrg(org)))
			var left struct {
				Data []admin.Stop `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, "/stops", nil, &left); err != nil {
				return err
			}
			for _, s := range left.Data {
				fmt.Fprintf(c.OutOrStdout(), "still stopped: %s\n", stopText(s))
			}
			return nil
		})
	}
	f.add(c)
	f.why(c)
	c.Flags().StringVar(&org, "org", "", "only this org")
	return c
}

func stopOrg(org string) string {
	if org == "" {
		return everyOrg
	}
	return org
}

// orgArgument returns the flag that names an org, or nothing for all.
func orgArgument(org string) string {
	if org == "" {
		return ""
	}
	return " --org " + admin.ShellWord(org)
}

func stoppedText(org string) string {
	if org == everyOrg {
		return "all orgs"
	}
	return "org " + org
}

// stopText describes a stop in a line.
func stopText(s admin.Stop) string {
	text := stoppedText(s.Org)
	if s.Source == "file" {
		return text + ", by kill_switch: stop in the configuration file"
	}
	text += " since " + s.Since.UTC().Format(time.RFC3339) + " by " + s.By
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return text
}
