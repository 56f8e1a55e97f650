package cli

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
)

func orgsPurgeCommand() *cobra.Command {
	var f adminFlags
	var yes, ledger bool
	c := &cobra.Command{
		Use: "purge ORG", Short: "Delete all data of a disabled org", Args: cobra.ExactArgs(1),
		Long: "Deletes the org with its users, keys, limits, usage, overrides, credentials, jobs, batches, files and stored responses.\n" +
			"The ledger, daily sums and corrections are kept unless you use --ledger; audit entries are always kept. The org must be\n" +
			"disabled, absent from the configuration file, and have no running calls, jobs or batches.\n\n" +
			"Without --yes the command only shows what it would delete. If it is interrupted, run it again to finish. To keep a copy,\n" +
			"run `orgs export` first.\n\n" +
			adminHelp,
		Example: "  llmguard orgs disable acme\n" +
			"  llmguard orgs export acme --out acme.jsonl\n" +
			"  llmguard orgs purge acme --yes --reason 'contract ended'",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error { return a.purge(c, args[0], ledger, yes) })
	}
	f.add(c)
	f.why(c)
	c.Flags().BoolVar(&yes, "yes", false, "confirm")
	c.Flags().BoolVar(&ledger, "ledger", false, "also delete the ledger, daily sums and corrections")
	return c
}

func (a *adminClient) purge(c *cobra.Command, org string, ledger, yes bool) error {
	resp, err := a.send(c.Context(), http.MethodPost, pathOf("orgs", org, "purge"),
		map[string]any{"ledger": ledger, "dry_run": !yes})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var found admin.Purged
	if err := json.NewDecoder(resp.Body).Decode(&found); err != nil {
		return fmt.Errorf("the response was cut off, and the org may be only partly deleted; run the command again to "+
			"continue: %w", err)
	}
	kept := ""
	if !ledger {
		kept = "; its ledger is kept (delete it with --ledger)"
	}
	if found == (admin.Purged{}) {
		fmt.Fprintf(c.OutOrStdout(), "no data left of org %s%s\n", org, kept)
		return nil
	}
	what := fmt.Sprintf("%d records, %d jobs, %d batches, %d files, %d Redis keys", found.Records, found.Jobs,
		found.Batches, found.Files, found.Keys)
	if !yes {
		return fmt.Errorf("this permanently deletes org %s: %s%s. Confirm with --yes", org, what, kept)
	}
	fmt.Fprintf(c.OutOrStdout(), "deleted org %s: %s%s\n", org, what, kept)
	return nil
}
