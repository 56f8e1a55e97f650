package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
)

// who holds the flags for the author of a correction and the reason.
type who struct {
	by, reason string
	limits     bool
}

func (f *who) add(c *cobra.Command) {
	c.Flags().StringVar(&f.reason, "reason", "", "the reason, one line, recorded in the ledger and the audit (required)")
	c.Flags().StringVar(&f.by, "by", "",
		"with --config: who makes the change (default: your OS user); otherwise the administrator")
	c.Flags().BoolVar(&f.limits, "limits", false, "also change the current usage of cost limits, not only the bill")
	_ = c.MarkFlagRequired("reason")
}

// name returns the author, by default the OS user.
func (f *who) name() string {
	if f.by != "" {
		return f.by
	}
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

type adjustFlags struct {
	usageFlags
	who
	amount, id, call, user, key, model string
}

func adjustCommand() *cobra.Command {
	var f adjustFlags
	c := &cobra.Command{
		Use: "adjust", Short: "Correct a bill", Args: cobra.NoArgs,
		Long: "Adds an entry of kind adjust to the ledger and to today's sums, and records it in the audit. Existing entries never\n" +
			"change. With --call, the user, key and model are those of the call. Repeating the command with the same --id has no effect\n" +
			"for at least 64 days; without --id, every run is a new adjustment.",
		Example: "  llmguard usage adjust --org acme --user alice --amount '-$1.20' --reason 'provider refund, ticket 81'\n" +
			"  llmguard usage adjust --org acme --call 01m7x425asv4hapb0hzey6k903 --amount '-$0.40' --limits --reason 'billed twice'",
		RunE: func(c *cobra.Command, _ []string) error { return adjust(c.Context(), &f, c.OutOrStdout()) },
	}
	f.usageFlags.add(c, listFormats...)
	f.who.add(c)
	fl := c.Flags()
	fl.StringVar(&f.amount, "amount", "", "amount to add to the bill, such as '-$1.20' or -1.20 for a refund (required)")
	fl.StringVar(&f.user, "user", "", "the user to bill (required without --call)")
	fl.StringVar(&f.key, "key", "", "the key to bill")
	fl.StringVar(&f.model, "model", "", "the model")
	fl.StringVar(&f.call, "call", "", "id of the call to correct")
	fl.StringVar(&f.id, "id", "", "idempotency id: up to 64 letters, digits, dots, dashes and underscores")
	_ = c.MarkFlagRequired("amount")
	return c
}

func adjust(ctx context.Context, f *adjustFlags, w io.Writer) error {
	if f.call == "" && f.user == "" {
		return misused("--user or --call is required")
	}
	if err := emptied(f.command, "amount"); err != nil {
		return err
	}
	l, org, err := f.openOne(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	body := map[string]any{"amount": f.amount, "reason": f.who.reason, "limits": f.limits}
	for name, value := range map[string]string{
		"id": f.id, "call": f.call, "user": f.user, "key": f.key, "model": f.model,
		"by": f.by,
	} {
		if value != "" {
			body[name] = value
		}
	}
	var done admin.Corrected
	if err := l.ask(ctx, http.MethodPost, pathOf("orgs", org, "corrections"), body, &done); err != nil {
		return err
	}
	return render(w, f.output, done, func(w io.Writer) error {
		if done.Replayed {
			_, err := fmt.Fprintf(w, "adjustment %s was already made at %s UTC; nothing changed\n", done.ID,
				done.At.UTC().Format("2006-01-02 15:04:05"))
			return err
		}
		fmt.Fprintf(w, "adjusted the bill of user %s of org %s by %s (id %s, by %s)\n", done.User, org,
			quantityText(w, "nano_usd", done.Amount),
			done.ID, done.By)
		if f.limits {
			fmt.Fprintln(w, limitNames(done.Limits))
		}
		return runNames(w, done.Runs)
	})
}

// runNames lists the runs that a correction changed.
func runNames(w io.Writer, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := fmt.Fprintln(w, "and what was spent by the runs", strings.Join(ids, ", "))
	return err
}

// limitNames lists the limits that a correction changed.
func limitNames(names []string) string {
	if len(names) == 0 {
		return "no cost limit applies, so no usage changed"
	}
	return "and the current usage of " + strings.Join(names, ", ")
}
