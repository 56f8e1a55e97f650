package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/wire"
)

// filter selects ledger entries; the zero value selects all. Its flags and its text are conditions in the
// language of the API.
type filter struct {
	user, key, model, kind, call, outcome string
	estimated                             bool
	labels                                labelFilter
	text                                  string
}

var kinds = []string{
	budget.KindSettle, budget.KindExpire, budget.KindLate, budget.KindVoid, budget.KindAdjust, budget.KindCharge,
}

func (f *filter) add(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.user, "user", "", "only this user")
	fl.StringVar(&f.key, "key", "", "only this key")
	fl.StringVar(&f.model, "model", "", "only models that match this pattern (* matches any characters)")
	fl.StringVar(&f.kind, "kind", "", "only one of "+strings.Join(kinds, ", "))
	fl.StringVar(&f.call, "call", "", "only the entries of this call, with its corrections")
	f.labels.add(c, "only entries with this label, as name=value (repeat for several)")
	fl.StringVar(&f.outcome, "outcome", "",
		"only calls with this outcome, such as completed, client_gone or cached (from the response cache)")
	fl.StringVar(&f.text, "filter", "",
		"only entries that meet conditions, as in the console: 'run=nightly-7 model=gpt-* status>=400 cost>0.50'")
	fl.BoolVar(&f.estimated, "estimated", false, "only estimated entries")
}

// conditions returns the filter for the API.
func (f *filter) conditions() (string, error) {
	labels, err := f.labels.values()
	if err != nil {
		return "", err
	}
	if f.kind != "" && !slices.Contains(kinds, f.kind) {
		return "", misused("--kind %s: expected one of %s", f.kind, strings.Join(kinds, ", "))
	}
	if _, ok := wire.CallTime(f.call); f.call != "" && !ok && f.kind != budget.KindAdjust {
		return "", misused("--call %s: this is not a call's id (26 letters and digits, as in the log and in X-Request-Id)",
			f.call)
	}
	var all []string
	for _, one := range [][2]string{
		{"user", f.user}, {"key", f.key}, {"model", f.model}, {"kind", f.kind}, {"id", f.call}, {"outcome", f.outcome},
	} {
		if one[1] != "" {
			all = append(all, ledger.Condition(one[0], one[1]))
		}
	}
	for name, value := range labels {
		all = append(all, ledger.Condition(ledger.LabelPrefix+name, value))
	}
	if f.estimated {
		all = append(all, ledger.Condition("estimated", "true"))
	}
	return strings.TrimSpace(strings.Join(append(all, f.text), " ")), nil
}

func entriesCommand() *cobra.Command {
	var f usageFlags
	var only filter
	var pick ranking
	c := &cobra.Command{
		Use: "entries", Short: "List ledger entries, one or more per call", Args: cobra.NoArgs,
		Long: "Lists entries of the period in Redis: the newest, with the latest last, or with --sort cost the most expensive first.\n" +
			"Entries never change: a later entry of kind late or void corrects the charge of an expired hold, and one of kind\n" +
			"adjust corrects a mistake.",
		Example: "  llmguard usage entries --label project=mobile\n  llmguard usage entries --estimated --days 7\n" +
			"  llmguard usage entries --filter 'run=nightly-7 cost>0.50'\n  llmguard usage entries --sort cost --limit 10 --days 7\n" +
			"  llmguard usage entries --call 01m7x425asv4hapb0hzey6k903",
		RunE: func(c *cobra.Command, _ []string) error {
			return showEntries(c, &f, &only, &pick)
		},
	}
	f.add(c, listFormats...)
	f.period.add(c)
	only.add(c)
	c.Flags().IntVar(&pick.limit, "limit", 100, "maximum number of entries: the newest, or the first of --sort (0: all)")
	c.Flags().StringVar(&pick.sort, "sort", "time", "time (latest last) or cost (most expensive first)")
	return c
}

func showEntries(c *cobra.Command, f *usageFlags, only *filter, pick *ranking) error {
	ctx := c.Context()
	w := c.OutOrStdout()
	notes := c.ErrOrStderr()
	where, err := only.conditions()
	if err != nil {
		return err
	}
	if err := pick.check(); err != nil {
		return err
	}
	from, to, err := f.period.bounds(time.Now())
	if err != nil {
		return err
	}
	if at, ok := wire.CallTime(only.call); ok && !f.period.given() {
		from = at.Add(-clockSkew)
	}
	if f.period.to == "" {
		to = time.Time{} // include entries written meanwhile
	}
	l, err := f.openDeleted(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	l.filter = where
	for _, org := range l.orgs {
		if err := pick.read(ctx, l, org, from, to); err != nil {
			return err
		}
	}
	list, note := pick.entries()
	if note != "" {
		fmt.Fprintln(notes, note)
	}
	if f.output == "csv" {
		out := budget.NewEntryCSV(w)
		for _, e := range list {
			if err := out.Entry(&e); err != nil {
				return err
			}
		}
		return out.End()
	}
	return render(w, f.output, list, func(w io.Writer) error { return entryTable(w, list, len(l.orgs) > 1) })
}

// clockSkew is the assumed maximum difference between the clocks of proxies and Redis.
const clockSkew = 10 * time.Minute

func entryTable(w io.Writer, list []budget.Entry, withOrg bool) error {
	g := grid{
		head:    []string{"time (UTC)", "org", "user", "key", "model", "kind", "input", "output", "cost", "id", ""},
		numbers: []bool{false, false, false, false, false, false, true, true, true, false, false},
	}
	for _, e := range list {
		g.add(e.At.UTC().Format("2006-01-02 15:04:05"), e.Org, e.User, e.Key, escape.Text(e.Model), e.Kind,
			whole(e.Usage.Input), whole(e.Usage.Output), usd(w, e.Cost), e.ID, remark(e))
	}
	if !withOrg {
		g.dropColumn(1)
	}
	return g.write(w)
}

// remark returns notes about an entry.
func remark(e budget.Entry) string {
	var out []string
	if e.Run != "" {
		out = append(out, string(e.Run))
	}
	if e.Labels != "" {
		out = append(out, strings.ReplaceAll(string(e.Labels), ",", " "))
	}
	if e.Estimated {
		out = append(out, "estimated")
	}
	if e.Outcome != "" && e.Outcome != "completed" {
		out = append(out, escape.Text(e.Outcome))
	}
	if e.Overrun > 0 {
		out = append(out, e.Overrun.String()+" over its reservation")
	}
	if e.Corrects != "" {
		out = append(out, "corrects "+e.Corrects)
	}
	if e.By != "" {
		out = append(out, escape.Text(e.By+": "+e.Reason))
	}
	return strings.Join(out, ", ")
}
