package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/pricing"
)

// adjustBill corrects a bill, and prints what changed besides.
func adjustBill(c *cobra.Command, o *operated, a *adminClient) error {
	return o.correct(c, a, func(w io.Writer, done *admin.Corrected) string {
		if done.Replayed {
			return fmt.Sprintf("adjustment %s was already made at %s; nothing changed", done.ID, figures.Second(done.At))
		}
		return fmt.Sprintf("adjusted the bill of user %s of org %s by %s (id %s, by %s)", done.User, done.Org,
			usd(w, pricing.Nano(done.Amount)), done.ID, done.By)
	})
}

// resolveCharge books a late charge, and prints what changed besides.
func resolveCharge(c *cobra.Command, o *operated, a *adminClient) error {
	return o.correct(c, a, func(w io.Writer, done *admin.Corrected) string {
		return fmt.Sprintf("charged %s to user %s of org %s", usd(w, pricing.Nano(done.Amount)), done.User, done.Org)
	})
}

// correct makes a correction and prints a line about it, the limits and the runs that it changed.
func (o *operated) correct(c *cobra.Command, a *adminClient, line func(io.Writer, *admin.Corrected) string) error {
	answer, err := o.ask(c, a)
	if err != nil {
		return err
	}
	done := answer.(*admin.Corrected)
	text := line(c.OutOrStdout(), done)
	switch {
	case done.Replayed || o.sent["limits"] != true:
	case len(done.Limits) == 0:
		text += "\nno cost limit applies, so no usage changed"
	default:
		text += "\nand the current usage of " + strings.Join(done.Limits, ", ")
	}
	if len(done.Runs) > 0 && !done.Replayed {
		text += "\nand what was spent by the runs " + strings.Join(done.Runs, ", ")
	}
	return o.say(c, done, text)
}
