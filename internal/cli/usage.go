package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// usageFlags are shared by the commands on the ledger.
type usageFlags struct {
	adminFlags
	org    string
	period period
}

func usageCommand() *cobra.Command {
	var f usageFlags
	var by, sorted string
	c := &cobra.Command{
		Use: "usage", Short: "Show spending by org, user, model, time and more",
		Args: cobra.NoArgs,
		Long: "Shows sums of the ledger, kept by day, and by hour for the last 14 days. A period in hours (--from 12h) includes every UTC\n" +
			"hour that it touches; a period in days (--from 7d) includes whole days of --tz.\n\n" +
			"Users and keys belong to an org: with several orgs, --by user and --by key also group by org.\n\n" +
			"Grouped by org, user or time, it also shows calls that limits refused or delayed. --by class splits the cost by class of tokens;\n" +
			"the parts add up to the exact cost. \"unmetered\" is the cost charged without usage data from the provider: expired holds,\n" +
			"and calls charged at their full reservation.",
		Example: "  llmguard usage --by user,model --days 7\n" +
			"  llmguard usage --by label:project,month --days 60\n" +
			"  llmguard usage --by org,class --from 2026-11 --to 2026-11 -o csv\n" +
			"  llmguard usage --by hour --from 12h --tz Europe/Berlin",
		RunE: func(c *cobra.Command, _ []string) error {
			return showUsage(c, &f, by, sorted)
		},
	}
	f.add(c, listFormats...)
	f.period.add(c)
	f.period.addZone(c)
	c.Flags().StringVar(&by, "by", "user,model",
		"group by any of "+strings.Join(dimensions, ", ")+",\nor by label:NAME, alone or with org, day, month and class")
	c.Flags().StringVar(&sorted, "sort", "",
		"sort by cost, calls, tokens, estimated, overrun or refused (largest first), or by a name of --by\n"+
			"(default: time if --by has hour, day or month, otherwise cost)")
	c.AddCommand(capsCommand(), entriesCommand(), exportCommand(), focusCommand(), statementCommand(),
		adjustCommand(), reconcileCommand(), auditCommand())
	return c
}

// add registers the flags that locate the ledger and, given formats, select the output.
func (f *usageFlags) add(c *cobra.Command, formats ...string) {
	f.adminFlags.add(c, formats...)
	c.Flags().StringVar(&f.org, "org", "", "comma-separated orgs (default: all)")
}

func showUsage(c *cobra.Command, f *usageFlags, by, sorted string) error {
	ctx := c.Context()
	w := c.OutOrStdout()
	notes := c.ErrOrStderr()
	r := report{by: strings.Split(by, ",")}
	for _, d := range r.by {
		if !slices.Contains(dimensions, d) && !strings.HasPrefix(d, labelBy) {
			return misused("--by %s: expected %s or label:NAME, separated by commas", d, strings.Join(dimensions, ", "))
		}
	}
	if err := r.byLabel(); err != nil {
		return err
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
	if len(l.orgs) > 1 {
		r.splitOrgs()
	}
	for _, org := range l.orgs {
		if err := r.read(ctx, l, org); err != nil {
			return err
		}
	}
	r.collect()
	if r.wholes > 0 {
		fmt.Fprintf(notes, "%d days in this period have no hourly data; they are counted as UTC days\n", r.wholes)
	}
	if _, offset := r.from.Zone(); offset%3600 != 0 {
		fmt.Fprintln(notes, "sums are kept by UTC hour; each counts for the local hour and day in which it begins")
	}
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
	if r.label != "" {
		return r.readLabel(ctx, l, org)
	}
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
