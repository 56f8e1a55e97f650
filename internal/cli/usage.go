package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// usageFlags are what the commands on the ledger share.
type usageFlags struct {
	adminFlags
	org    string
	period period
}

func usageCommand() *cobra.Command {
	var f usageFlags
	var by, sorted string
	c := &cobra.Command{
		Use: "usage", Short: "Show what was spent, by any dimension, from the ledger's daily sums", Args: cobra.NoArgs,
		Long: "Adds up the ledger's daily sums. The days are UTC, and a period of hours counts the days it touches.\n" +
			"With --by class the lines are what was paid for which class of tokens; they add up to the cost exactly.\n" +
			"\"unmetered\" was charged without the provider's usage: expired holds, and calls charged their whole hold.",
		Example: "  llmguard usage --by user,model --days 7\n" +
			"  llmguard usage --by org,class --from 2026-11 --to 2026-11 -o csv",
		RunE: func(c *cobra.Command, _ []string) error {
			return showUsage(c.Context(), &f, by, sorted, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.add(c, listFormats...)
	f.period.add(c)
	c.Flags().StringVar(&by, "by", "user,model", "what to sum by: any of "+strings.Join(dimensions, ", "))
	c.Flags().StringVar(&sorted, "sort", "", "by a column: cost, calls, tokens, estimated or overrun, largest first, or a name of --by\n"+
		"(default: by time if --by has day or month, else by cost)")
	c.AddCommand(capsCommand(), entriesCommand(), exportCommand(), adjustCommand(), reconcileCommand(), auditCommand())
	return c
}

// add gives a command the flags for where the ledger is, and for its output when
// there is a choice.
func (f *usageFlags) add(c *cobra.Command, formats ...string) {
	f.adminFlags.add(c, formats...)
	c.Flags().StringVar(&f.org, "org", "", "one org, or several with commas between (default: all)")
}

func showUsage(ctx context.Context, f *usageFlags, by, sorted string, w, notes io.Writer) error {
	r := report{by: strings.Split(by, ",")}
	for _, d := range r.by {
		if !slices.Contains(dimensions, d) {
			return fmt.Errorf("--by %s: expected %s, separated by commas", d, strings.Join(dimensions, ", "))
		}
	}
	if err := r.checkSort(sorted); err != nil {
		return err
	}
	from, to, err := f.period.days(time.Now())
	if err != nil {
		return err
	}
	l, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	r.from, r.to = from, to
	sums := map[string]*line{}
	for _, org := range l.orgs {
		list, err := l.Rollups(ctx, org, from, to)
		if err != nil {
			return err
		}
		for _, one := range list {
			r.count(sums, org, one)
		}
	}
	r.collect(sums)
	if len(r.lines) == 0 {
		fmt.Fprintf(notes, "nothing was spent %s\n", r.span())
	}
	switch f.output {
	case "csv":
		return r.writeCSV(w)
	case "jsonl":
		return render(w, f.output, r.json().Lines, nil)
	}
	return render(w, f.output, r.json(), r.writeTable)
}
