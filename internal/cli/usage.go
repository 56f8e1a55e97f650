package cli

import (
	"context"
	"fmt"
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
		Use: "usage", Short: "Show what was spent, by any dimension, from the ledger's sums by day and hour",
		Args: cobra.NoArgs,
		Long: "Adds up the ledger's daily sums; those of the last 14 days are kept by the hour as well.\n" +
			"A period of hours (--from 12h) counts the UTC hours that it touches, one of days (--from 7d) whole days, of --tz.\n" +
			"By org, user and time it also shows the calls that limits refused, and those that had to wait for a limit.\n" +
			"With --by class the lines are what was paid for which class of tokens; they add up to the cost exactly.\n" +
			"\"unmetered\" was charged without the provider's usage: expired holds, and calls charged their whole hold.",
		Example: "  llmguard usage --by user,model --days 7\n" +
			"  llmguard usage --by org,class --from 2026-11 --to 2026-11 -o csv\n" +
			"  llmguard usage --by hour --from 12h --tz Europe/Berlin",
		RunE: func(c *cobra.Command, _ []string) error {
			return showUsage(c, &f, by, sorted)
		},
	}
	f.add(c, listFormats...)
	f.period.add(c)
	f.period.addZone(c)
	c.Flags().StringVar(&by, "by", "user,model", "what to sum by: any of "+strings.Join(dimensions, ", "))
	c.Flags().StringVar(&sorted, "sort", "",
		"by a column: cost, calls, tokens, estimated, overrun or refused, largest first, or a name of --by\n"+
			"(default: by time if --by has hour, day or month, else by cost)")
	c.AddCommand(capsCommand(), entriesCommand(), exportCommand(), adjustCommand(), reconcileCommand(), auditCommand())
	return c
}

// add gives a command the flags for where the ledger is, and for its output when
// there is a choice.
func (f *usageFlags) add(c *cobra.Command, formats ...string) {
	f.adminFlags.add(c, formats...)
	c.Flags().StringVar(&f.org, "org", "", "one org, or several with commas between (default: all)")
}

func showUsage(c *cobra.Command, f *usageFlags, by, sorted string) error {
	ctx := c.Context()
	w := c.OutOrStdout()
	notes := c.ErrOrStderr()
	r := report{by: strings.Split(by, ",")}
	for _, d := range r.by {
		if !slices.Contains(dimensions, d) {
			return misused("--by %s: expected %s, separated by commas", d, strings.Join(dimensions, ", "))
		}
	}
	if err := r.checkSort(sorted); err != nil {
		return err
	}
	if err := r.period(&f.period, time.Now()); err != nil {
		return err
	}
	l, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	for _, org := range l.orgs {
		if err := r.read(ctx, l, org); err != nil {
			return err
		}
	}
	r.collect()
	if r.wholes > 0 {
		fmt.Fprintf(notes, "of %d days in this period no hours are known; they are counted as UTC days\n", r.wholes)
	}
	if _, offset := r.from.Zone(); offset%3600 != 0 {
		fmt.Fprintln(notes, "sums are kept by UTC hour: each counts for the hour and the day in which it begins")
	}
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

// period reads the span of time, which is of hours if that is how it is said or summed up.
func (r *report) period(p *period, now time.Time) (err error) {
	r.zone, err = p.zone()
	if err != nil {
		return err
	}
	r.hours = p.hourly() || slices.Contains(r.by, "hour") || r.zone != time.UTC
	if !p.hourly() {
		r.from, r.to, err = p.days(now)
		return err
	}
	r.from, r.to, err = p.bounds(now)
	return err
}

// read adds an org.
func (r *report) read(ctx context.Context, l *ledgers, org string) error {
	rollups := l.Rollups
	if r.hours {
		rollups = l.HourRollups
	}
	list, err := rollups(ctx, org, r.from, r.to)
	if err != nil {
		return err
	}
	days := map[time.Time]bool{}
	for _, one := range list {
		r.add(org, one)
		if r.hours && !one.Hour {
			days[one.Begin] = true
		}
	}
	r.wholes = max(r.wholes, len(days))
	if !r.countsRefusals() || r.to.Sub(r.from) > sumDays*24*time.Hour {
		return nil
	}
	refused, err := l.Refusals(ctx, org, r.from, r.to)
	r.refusals = append(r.refusals, refused...)
	return err
}
