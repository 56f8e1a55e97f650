package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/wire"
)

// who are the flags for who corrects the books, and why.
type who struct {
	by, reason string
	limits     bool
}

func (f *who) add(c *cobra.Command) {
	c.Flags().StringVar(&f.reason, "reason", "", "why; needed, one line, kept in ledger and audit")
	c.Flags().StringVar(&f.by, "by", "", "who does it (default: the user of this machine)")
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
		Example: "  llmguard usage adjust --org acme --user alice --amount -$1.20 --reason 'provider refund, ticket 81'\n" +
			"  llmguard usage adjust --call 01m7x425asv4hapb0hzey6k903 --amount -$0.40 --limits --reason 'billed twice'",
		RunE: func(c *cobra.Command, _ []string) error { return adjust(c.Context(), &f, c.OutOrStdout()) },
	}
	f.usageFlags.add(c)
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

// signed reads an amount that may be negative.
func signed(text string) (pricing.Nano, error) {
	digits, negative := strings.CutPrefix(strings.TrimSpace(text), "-")
	digits = strings.TrimPrefix(digits, "+")
	n, err := pricing.ParseUSD(digits)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("--amount %s: expected an amount such as -$1.20 or $0.05, not 0", text)
	}
	if negative {
		n = -n
	}
	return n, nil
}

func adjust(ctx context.Context, f *adjustFlags, w io.Writer) error {
	amount, err := signed(f.amount)
	if err != nil {
		return err
	}
	if f.call == "" && f.user == "" {
		return errors.New("--user is needed, or --call: whose bill is it?")
	}
	l, org, err := f.openOne()
	if err != nil {
		return err
	}
	defer l.Close()
	a := budget.Adjustment{
		ID: f.id, Call: budget.Call{Org: org, User: f.user, Key: f.key, Model: f.model}, Amount: amount, By: f.name(), Reason: f.reason,
	}
	if a.ID == "" {
		a.ID = wire.NewCallID()
	}
	if f.call != "" {
		if a.Call, err = f.charged(ctx, l, org); err != nil {
			return err
		}
	} else if err := knownUser(l.cfg, org, f.user); err != nil {
		return err
	}
	if f.limits {
		if a.Limits, err = app.LimitsOf(l.cfg, a.Call); err != nil {
			return err
		}
	}
	done, err := l.Adjust(ctx, a)
	if err != nil {
		return err
	}
	if done.Replayed {
		fmt.Fprintf(w, "%s was made already, %s UTC; nothing is changed\n", a.ID, done.At.UTC().Format("2006-01-02 15:04:05"))
		return nil
	}
	fmt.Fprintf(w, "adjusted the bill of user %s of org %s by %s (id %s, by %s)\n", a.Call.User, org, a.Amount, a.ID, a.By)
	if f.limits {
		fmt.Fprintln(w, limitNames(a.Limits))
	}
	return nil
}

// limitNames says which limits a correction changed.
func limitNames(list []budget.Limit) string {
	var names []string
	for _, l := range list {
		if l.Metric == budget.Cost {
			names = append(names, l.ID)
		}
	}
	if len(names) == 0 {
		return "no cost limit applies, so none was changed"
	}
	return "and the present use of " + strings.Join(names, ", ")
}

// charged finds the call that is corrected, and checks the other flags on it.
func (f *adjustFlags) charged(ctx context.Context, l *ledgers, org string) (budget.Call, error) {
	at, ok := wire.CallTime(f.call)
	if !ok {
		return budget.Call{}, fmt.Errorf("--call %s: this is not a call's id (26 letters and digits)", f.call)
	}
	var found budget.Call
	err := l.Entries(ctx, org, at.Add(-clockSkew), maxTime, func(e budget.Entry) error {
		if e.ID != f.call {
			return nil
		}
		found = e.Call
		return errEnough
	})
	if err != nil && !errors.Is(err, errEnough) {
		return found, err
	}
	if found.ID == "" {
		return found, fmt.Errorf("--call %s: org %s's ledger has no such call; if it is too old, leave --call out and name --user, --key and --model", f.call, org)
	}
	for _, c := range [][3]string{{"user", f.user, found.User}, {"key", f.key, found.Key}, {"model", f.model, found.Model}} {
		if c[1] != "" && c[1] != c[2] {
			return found, fmt.Errorf("--%s %s: the call was made by %s %q", c[0], c[1], c[0], c[2])
		}
	}
	return found, nil
}

func knownUser(cfg *config.Config, org, id string) error {
	i := slices.IndexFunc(cfg.Orgs, func(o config.Org) bool { return o.ID == org })
	var known []string
	for _, u := range cfg.Orgs[i].Users {
		known = append(known, u.ID)
	}
	if slices.Contains(known, id) {
		return nil
	}
	return fmt.Errorf("--user %s: org %s has no such user (it has %s); a bill of one who has left is corrected by --call", id, org, strings.Join(known, ", "))
}
