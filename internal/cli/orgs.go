package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/pricing"
)

func onOff(disabled bool) string {
	if disabled {
		return "disabled"
	}
	return "active"
}

// facts is a table of names and values.
func facts(w io.Writer, pairs ...string) error {
	return indentedFacts(w, "", pairs...)
}

func indentedFacts(w io.Writer, indent string, pairs ...string) error {
	g := grid{indent: indent, numbers: make([]bool, 2)}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			g.add(pair...)
		}
	}
	return g.write(w)
}

func boundOf(o *admin.Org) guard.Bound {
	b := guard.Bound{Hour: guard.Unlimited, None: o.Unbounded, Users: o.UnboundedUsers}
	if o.WorstHour != nil {
		b.Hour = pricing.Nano(*o.WorstHour)
	}
	return b
}

func all(list []string) string {
	if len(list) == 0 {
		return "all"
	}
	return escape.Text(strings.Join(list, ", "))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// createOrg warns about an org whose calls no limit bounds.
func createOrg(c *cobra.Command, o *operated, a *adminClient) error {
	answer, err := o.ask(c, a)
	if err != nil {
		return err
	}
	if made := answer.(*admin.Org); made.Unbounded {
		fmt.Fprintf(c.ErrOrStderr(), "warning: %s.\n%s\n", boundOf(made).Warning(made.ID), guard.BoundFix(made.ID))
	}
	return o.show(c, answer)
}

// setCredential reads the secret from standard input, because an argument would be visible to other users.
func setCredential(c *cobra.Command, o *operated, a *adminClient) error {
	secret, err := secretInput(c.InOrStdin(), "")
	if err != nil {
		return err
	}
	o.sent["secret"] = secret
	return o.submit(c, a)
}

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

// stopSpending prints how to resume what it stopped.
func stopSpending(c *cobra.Command, o *operated, a *adminClient) error {
	answer, err := o.ask(c, a)
	if err != nil {
		return err
	}
	s := answer.(*admin.Stop)
	resume := "llmguard resume"
	if org := o.values["org"]; org != "" && org != everyOrg {
		resume += " --org " + admin.ShellWord(org)
	}
	return o.say(c, s, fmt.Sprintf("stopped all spending of %s at %s\nresume it with: %s",
		stoppedText(s.Org), figures.Second(*s.Since), resume))
}

// resumeSpending also prints what is still stopped.
func resumeSpending(c *cobra.Command, o *operated, a *adminClient) error {
	if _, err := o.ask(c, a); err != nil {
		return err
	}
	fmt.Fprintf(c.OutOrStdout(), "resumed the spending of %s\n", stoppedText(o.values["org"]))
	left, err := list[admin.Stop](c.Context(), a, "/stops")
	if err != nil {
		return err
	}
	for _, s := range left {
		fmt.Fprintf(c.OutOrStdout(), "still stopped: %s\n", stopText(s))
	}
	return nil
}

func stoppedText(org string) string {
	if org == everyOrg {
		return "all orgs"
	}
	return "org " + org
}

func stopText(s admin.Stop) string {
	if s.Source == "file" {
		return stoppedText(s.Org) + ", by kill_switch: stop in the configuration file"
	}
	org := s.Org
	if org == everyOrg {
		org = tenants.AllOrgs
	}
	return (&tenants.Stop{Stamp: tenants.Stamp{Created: *s.Since}, By: s.By, Reason: s.Reason}).Text(org)
}
