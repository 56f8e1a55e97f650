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
		Use: "purge ORG", Short: "Remove everything that is kept of a disabled org", Args: cobra.ExactArgs(1),
		Long: "Removes the org's users, keys, limits with their use, overrides and credentials, its jobs, batches, files and stored\n" +
			"responses, and the org itself. Its ledger, daily sums and corrections stay, unless --ledger is said; what administrators\n" +
			"did with it stays in the audit. It is refused while the org stands in the configuration file or is not disabled, and while\n" +
			"calls, jobs or batches of it have not ended. Cut off in the middle it is finished by the same command. Without --yes it\n" +
			"only says what there is. `orgs export` first keeps what goes.\n\n" +
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
	c.Flags().BoolVar(&yes, "yes", false, "really")
	c.Flags().BoolVar(&ledger, "ledger", false, "the ledger, daily sums and corrections too")
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
		return fmt.Errorf("the answer broke off, and perhaps the removal with it; the same command continues it: %w", err)
	}
	kept := ""
	if !ledger {
		kept = "; what there is of its ledger stays (--ledger)"
	}
	if found == (admin.Purged{}) {
		fmt.Fprintf(c.OutOrStdout(), "nothing is left of org %s%s\n", org, kept)
		return nil
	}
	what := fmt.Sprintf("%d records, %d jobs, %d batches, %d files, %d keys of Redis", found.Records, found.Jobs,
		found.Batches, found.Files, found.Keys)
	if !yes {
		return fmt.Errorf("this removes org %s for good: %s%s; say --yes if you mean it", org, what, kept)
	}
	fmt.Fprintf(c.OutOrStdout(), "removed org %s: %s%s\n", org, what, kept)
	return nil
}
