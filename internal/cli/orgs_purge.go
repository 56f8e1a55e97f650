package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
)

// purgeOrg deletes an org, or without --yes says what it would delete.
func purgeOrg(c *cobra.Command, o *operated, a *adminClient) error {
	yes, _ := c.Flags().GetBool("yes")
	org, ledger := o.values["org"], o.sent["ledger"] == true
	o.sent["dry_run"] = !yes
	resp, err := a.send(c.Context(), o.op.Method, o.path(), o.sent)
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
	what := fmt.Sprintf("%d records, %d jobs, %d batches, %d files, %d Redis keys", found.Records, found.Jobs,
		found.Batches, found.Files, found.Keys)
	text := fmt.Sprintf("deleted org %s: %s%s", org, what, kept)
	switch {
	case found == (admin.Purged{}):
		text = fmt.Sprintf("no data left of org %s%s", org, kept)
	case !yes:
		return fmt.Errorf("this permanently deletes org %s: %s%s. Confirm with --yes", org, what, kept)
	}
	return o.say(c, found, text)
}
