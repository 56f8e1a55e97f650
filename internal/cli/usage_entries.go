package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
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

func exportCommand() *cobra.Command {
	var f usageFlags
	var only filter
	c := &cobra.Command{
		Use: "export", Short: "Export ledger entries, oldest first", Args: cobra.NoArgs,
		Long: "Exports the entries in Redis. To keep entries longer, set ledger.export_dir: proxies and workers then append every entry\n" +
			"to files before it is trimmed.",
		Example: "  llmguard usage export --from 2026-11 --to 2026-11 --out november.jsonl\n" +
			"  llmguard usage export -o csv --days 7 --out week.csv",
		RunE: func(c *cobra.Command, _ []string) error {
			return exportEntries(c.Context(), &f, &only, c.OutOrStdout())
		},
	}
	f.add(c, "jsonl", "csv")
	f.period.add(c)
	only.add(c)
	return c
}

func exportEntries(ctx context.Context, f *usageFlags, only *filter, w io.Writer) error {
	l, from, to, err := f.filtered(ctx, only)
	if err != nil {
		return err
	}
	defer l.close()
	out := bufio.NewWriter(w)
	if f.output == "csv" {
		table := ledger.NewEntryCSV(out)
		err = l.Entries(ctx, from, to, func(e ledger.Entry) error { return table.Entry(&e) })
		err = cmp.Or(err, table.End())
	} else {
		lines := json.NewEncoder(out)
		lines.SetEscapeHTML(false)
		err = l.Entries(ctx, from, to, func(e ledger.Entry) error { return lines.Encode(e) })
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// ranking keeps the newest or the most expensive entries. With a limit it holds at most twice as
// many in memory, however long the period is.
type ranking struct {
	sort  string // "time" or "cost"
	limit int    // 0: all

	list []ledger.Entry
	cut  bool // some entries were left out
}

func (r *ranking) check() error {
	if r.sort != "time" && r.sort != "cost" {
		return misused("--sort %s: expected time or cost", r.sort)
	}
	if r.limit < 0 {
		return misused("--limit %d: expected 0 or more", r.limit)
	}
	return nil
}

// read adds the entries of an org. Ledgers are read newest first, so sorted
// by time a few of them are enough.
func (r *ranking) read(ctx context.Context, l *ledgers, org string, from, to time.Time) error {
	n := 0
	return l.Recent(ctx, org, from, to, func(e ledger.Entry) error {
		r.list = append(r.list, e)
		n++
		if r.limit > 0 && r.sort == "time" && n > r.limit {
			return ledger.ErrEnough
		}
		if r.limit > 0 && len(r.list) > 2*r.limit {
			r.trim()
		}
		return nil
	})
}

// trim sorts the entries and drops those above the limit.
func (r *ranking) trim() {
	slices.SortStableFunc(r.list, func(a, b ledger.Entry) int {
		if r.sort == "cost" {
			return cmp.Compare(b.Cost, a.Cost)
		}
		return b.At.Compare(a.At)
	})
	if r.limit > 0 && len(r.list) > r.limit {
		r.list, r.cut = r.list[:r.limit], true
	}
}

// entries returns the entries in the order to print, and a note about them or "".
func (r *ranking) entries() (list []ledger.Entry, note string) {
	r.trim()
	list = append([]ledger.Entry{}, r.list...)
	kind := "most expensive"
	if r.sort == "time" {
		kind = "newest"
		slices.Reverse(list)
	}
	switch {
	case len(list) == 0:
		note = "no entries; choose a longer period with --from or --days"
	case r.cut:
		note = fmt.Sprintf("showing the %s %d; list all with --limit 0", kind, r.limit)
	}
	return list, note
}

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
