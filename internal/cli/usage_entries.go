package cli

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/wire"
)

// filter selects ledger entries; the zero value selects all. Its flags and its text are conditions in the
// language of the API.
type filter struct {
	values    map[string]*string // by flag
	estimated bool
	labels    labelFilter
	text      string
}

// filterFlags are the flags that stand for a condition.
var filterFlags = []struct{ flag, field, help string }{
	{"user", "user", "only this user"},
	{"key", "key", "only this key"},
	{"model", "model", "only models that match this pattern (* matches any characters)"},
	{"kind", "kind", "only one of " + strings.Join(kinds, ", ")},
	{"call", "id", "only the entries of this call, with its corrections"},
	{
		"outcome", "outcome",
		"only calls with this outcome, such as completed, client_gone or cached (from the response cache)",
	},
}

var kinds = []string{
	ledger.KindSettle, ledger.KindExpire, ledger.KindLate, ledger.KindVoid, ledger.KindAdjust, ledger.KindCharge,
}

func (f *filter) add(c *cobra.Command) {
	f.values = map[string]*string{}
	for _, one := range filterFlags {
		f.values[one.flag] = c.Flags().String(one.flag, "", one.help)
	}
	f.labels.add(c, "only entries with this label, as name=value (repeat for several)")
	c.Flags().StringVar(&f.text, "filter", "",
		"only entries that meet conditions, as in the console: 'run=nightly-7 model=gpt-* status>=400 cost>0.50'")
	c.Flags().BoolVar(&f.estimated, "estimated", false, "only estimated entries")
}

// conditions returns the filter for the API.
func (f *filter) conditions() (string, error) {
	labels, err := f.labels.values()
	if err != nil {
		return "", err
	}
	kind, call := *f.values["kind"], *f.values["call"]
	if kind != "" && !slices.Contains(kinds, kind) {
		return "", misused("--kind %s: expected one of %s", kind, strings.Join(kinds, ", "))
	}
	if _, ok := wire.CallTime(call); call != "" && !ok && kind != ledger.KindAdjust {
		return "", misused("--call %s: this is not a call's id (26 letters and digits, as in the log and in X-Request-Id)",
			call)
	}
	var all []string
	for _, one := range filterFlags {
		if value := *f.values[one.flag]; value != "" {
			all = append(all, ledger.Condition(one.field, value))
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

// filtered opens the ledgers of a period, with a filter.
func (f *usageFlags) filtered(ctx context.Context, only *filter) (l *ledgers, from, to time.Time, err error) {
	where, err := only.conditions()
	if err != nil {
		return nil, from, to, err
	}
	from, to, err = f.period.bounds(time.Now())
	if err != nil {
		return nil, from, to, err
	}
	l, err = f.open(ctx, true)
	if err == nil {
		l.filter = where
	}
	return l, from, to, err
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
	if err := pick.check(); err != nil {
		return err
	}
	l, from, to, err := f.filtered(ctx, only)
	if err != nil {
		return err
	}
	defer l.close()
	if at, ok := wire.CallTime(*only.values["call"]); ok && !f.period.given() {
		from, _ = ledger.EntriesAround(at)
	}
	if f.period.to == "" {
		to = time.Time{} // include entries written meanwhile
	}
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
		out := ledger.NewEntryCSV(w)
		for _, e := range list {
			if err := out.Entry(&e); err != nil {
				return err
			}
		}
		return out.End()
	}
	return render(w, f.output, list, func(w io.Writer) error { return entryTable(w, list, len(l.orgs) > 1) })
}

var entryColumns = columnsOf(reflect.TypeFor[ledger.Entry](), "at:time;second", "org:org", "user:user", "key:key",
	"model:model", "kind:kind", "usage.input:input", "usage.output:output", "cost_nano:cost;usd", "id:id", "corrects:;=remark")

func entryTable(w io.Writer, list []ledger.Entry, withOrg bool) error {
	g := gridOf(w, list, entryColumns)
	if !withOrg {
		g.dropColumn(1)
	}
	return g.write(w)
}

// remark returns notes about an entry.
func remark(e ledger.Entry) string {
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
