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

// who are the flags for who corrects the books, and why.
type who struct {
	by, reason string
	limits     bool
}

func (f *who) add(c *cobra.Command) {
	c.Flags().StringVar(&f.reason, "reason", "", "why; needed, one line, kept in ledger and audit")
	c.Flags().StringVar(&f.by, "by", "",
		"who does it, with --config (default: the user of this machine); else it is the administrator")
	c.Flags().BoolVar(&f.limits, "limits", false, "change the present use of the cost limits as well, not only the bill")
	_ = c.MarkFlagRequired("reason")
}

// name is who it is, or the user of this machine.
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
		Use: "adjust", Short: "Correct a bill by an amount, with a reason", Args: cobra.NoArgs,
		Long: "Adds an entry of the kind adjust to the ledger and to today's sums, and a record to the audit. Nothing that was written\n" +
			"before is changed. With --call the user, key and model are those of the call. Repeating it with the same --id does\n" +
			"nothing, for at least 64 days; without --id every run is an adjustment of its own.",
		Example: "  llmguard usage adjust --org acme --user alice --amount '-$1.20' --reason 'provider refund, ticket 81'\n" +
			"  llmguard usage adjust --org acme --call 01m7x425asv4hapb0hzey6k903 --amount '-$0.40' --limits --reason 'billed twice'",
		RunE: func(c *cobra.Command, _ []string) error { return adjust(c.Context(), &f, c.OutOrStdout()) },
	}
	f.usageFlags.add(c, listFormats...)
	f.who.add(c)
	fl := c.Flags()
	fl.StringVar(&f.amount, "amount", "", "what to add to the bill: -$1.20 gives back; needed")
	fl.StringVar(&f.user, "user", "", "whose bill; needed without --call")
	fl.StringVar(&f.key, "key", "", "of which key")
	fl.StringVar(&f.model, "model", "", "for which model")
	fl.StringVar(&f.call, "call", "", "the id of the call that was charged wrongly")
	fl.StringVar(&f.id, "id", "", "makes repeating it harmless; up to 64 letters, digits, dots, dashes and underscores")
	_ = c.MarkFlagRequired("amount")
	return c
}

func adjust(ctx context.Context, f *adjustFlags, w io.Writer) error {
	if f.call == "" && f.user == "" {
		return misused("--user is needed, or --call: whose bill is it?")
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
			_, err := fmt.Fprintf(w, "%s was made already, %s UTC; nothing is changed\n", done.ID,
				done.At.UTC().Format("2006-01-02 15:04:05"))
			return err
		}
		fmt.Fprintf(w, "adjusted the bill of user %s of org %s by %s (id %s, by %s)\n", done.User, org, nano(done.Amount),
			done.ID, done.By)
		if f.limits {
			fmt.Fprintln(w, limitNames(done.Limits))
		}
		return nil
	})
}

// limitNames says which limits a correction changed.
func limitNames(names []string) string {
	if len(names) == 0 {
		return "no cost limit applies, so none was changed"
	}
	return "and the present use of " + strings.Join(names, ", ")
}
