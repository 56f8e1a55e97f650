package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/figures"
)

// usageFlags are shared by the commands on the ledger.
type usageFlags struct {
	adminFlags
	org    string
	period period
}

func usageCommand() *cobra.Command {
	var f usageFlags
	var by, sorted, text string
	c := &cobra.Command{
		Use: "usage", Short: "Show spending by org, user, model, time and more",
		Args: cobra.NoArgs,
		Long: "Shows sums of the ledger, kept by day, and by hour for the last 14 days. A period in hours (--from 12h) includes every UTC\n" +
			"hour that it touches; a period in days (--from 7d) includes whole days of --tz.\n\n" +
			"Sums by run, by a label together with other names, and with a --filter on more than user, key, model, provider and endpoint\n" +
			"are made from the newest 100,000 ledger entries of each org; a note says if there are more.\n\n" +
			"Users and keys belong to an org: with several orgs, --by user and --by key also group by org.\n\n" +
			"Grouped by org, user or time, it also shows calls that limits refused or delayed. --by class splits the cost by class of tokens;\n" +
			"the parts add up to the exact cost. \"unmetered\" is the cost charged without usage data from the provider: expired holds,\n" +
			"and calls charged at their full reservation.",
		Example: "  llmguard usage --by user,model --days 7\n" +
			"  llmguard usage --by label:project,month --days 60\n" +
			"  llmguard usage --by run --filter 'user=alice cost>0.50' --from 12h\n" +
			"  llmguard usage --by org,class --from 2026-11 --to 2026-11 -o csv\n" +
			"  llmguard usage --by hour --from 12h --tz Europe/Berlin",
		RunE: func(c *cobra.Command, _ []string) error {
			return showUsage(c, &f, &report{by: strings.Split(by, ","), filter: text}, sorted)
		},
	}
	f.add(c, listFormats...)
	f.period.add(c)
	f.period.addZone(c)
	c.Flags().StringVar(&by, "by", "user,model",
		"group by any of "+strings.Join(ledger.Groupings(), ", ")+",\nand one label:NAME")
	c.Flags().StringVar(&text, "filter", "",
		"only calls that meet conditions, as in the console: 'run=nightly-7 model=gpt-* status>=400 cost>0.50'")
	c.Flags().StringVar(&sorted, "sort", "",
		"sort by cost, calls, tokens, estimated, overrun or refused (largest first), or by a name of --by\n"+
			"(default: time if --by has hour, day or month, otherwise cost)")
	c.AddCommand(entriesCommand(), exportCommand(), focusCommand(), statementCommand())
	return c
}

// add registers the flags that locate the ledger and, given formats, select the output.
func (f *usageFlags) add(c *cobra.Command, formats ...string) {
	f.adminFlags.add(c, formats...)
	c.Flags().StringVar(&f.org, "org", "", "comma-separated orgs (default: all)")
}

func showUsage(c *cobra.Command, f *usageFlags, r *report, sorted string) error {
	ctx := c.Context()
	w := c.OutOrStdout()
	notes := c.ErrOrStderr()
	for _, d := range r.by {
		if _, err := ledger.GroupingOf(d); err != nil {
			return misused("--by %s: expected %s, group or label:NAME, separated by commas", d,
				strings.Join(ledger.Groupings(), ", "))
		}
	}
	if _, err := ledger.LabelOf(r.by); err != nil {
		return misused("--by %v", err)
	}
	if err := r.checkSort(sorted); err != nil {
		return err
	}
	if err := r.period(&f.period, time.Now()); err != nil {
		return err
	}
	l, err := f.open(ctx, true)
	if err != nil {
		return err
	}
	defer l.close()
	if len(l.orgs) > 1 {
		r.splitOrgs()
	}
	for _, org := range l.orgs {
		if err := r.read(ctx, l, org); err != nil {
			return err
		}
	}
	r.finish()
	r.notes(notes)
	if len(r.lines) == 0 {
		fmt.Fprintf(notes, "no spending %s\n", r.span())
	}
	switch f.output {
	case "csv":
		return r.writeCSV(w)
	case "jsonl":
		return render(w, f.output, r.json().Lines, nil)
	}
	return render(w, f.output, r.json(), r.writeTable)
}

// period parses the period. The report uses hourly sums if the flags give hours, if it is by hour,
// or if the zone is not UTC.
func (r *report) period(p *period, now time.Time) (err error) {
	r.zone, err = p.zone()
	if err != nil {
		return err
	}
	r.hours = p.hourly() || slices.Contains(r.by, ledger.Hour) || r.zone != time.UTC
	if !p.hourly() {
		r.from, r.to, err = p.days(now)
		return err
	}
	r.from, r.to, err = p.bounds(now)
	return err
}

// read adds an org.
func (r *report) read(ctx context.Context, l *ledgers, org string) error {
	wholes := 0
	err := l.usage(ctx, org, r, func(u *admin.Usage) {
		wholes += u.WholeDays
		if u.Since != nil && u.Since.After(r.since) {
			r.since = *u.Since
		}
		for i := range u.Lines {
			r.add(org, &u.Lines[i])
		}
	})
	if err != nil {
		return err
	}
	r.wholes = max(r.wholes, wholes)
	if !r.countsRefusals() || r.to.Sub(r.from) > ledger.MostDays*24*time.Hour {
		return nil
	}
	refused, err := l.Refusals(ctx, org, r.from, r.to)
	for i := range refused {
		r.countRefusal(&refused[i])
	}
	return err
}

func (r *report) notes(w io.Writer) {
	if !r.since.IsZero() {
		fmt.Fprintf(w, "incomplete: calls before %s were not read, because there are too many or they are no longer in the "+
			"ledger; choose a shorter period\n", figures.Second(r.since))
	}
	if r.wholes > 0 {
		fmt.Fprintf(w, "%d days in this period have no hourly data; they are counted as UTC days\n", r.wholes)
	}
	if _, offset := r.from.Zone(); offset%3600 != 0 {
		fmt.Fprintln(w, "sums are kept by UTC hour; each counts for the local hour and day in which it begins")
	}
	if slices.Equal(r.by, []string{ledger.Run}) && len(r.lines) == 1 && r.lines[0].by[0] == "" {
		fmt.Fprintln(w, "no call belongs to a run; to group by a label of calls, use --by label:NAME")
	}
}
