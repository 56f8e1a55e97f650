package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants"
)

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

// stopText describes a stop in a line.
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
