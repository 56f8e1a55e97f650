package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/simulate"
)

// traceFlags select the calls: from files, or from a ledger in Redis.
type traceFlags struct {
	usage usageFlags
	logs  []string
}

func (f *traceFlags) add(c *cobra.Command, formats ...string) {
	f.usage.add(c, formats...)
	f.usage.period.add(c)
	c.Flags().StringArrayVar(&f.logs, "log", nil,
		"a ledger export (JSON Lines or CSV) or an access log (- for standard input); repeatable.\n"+
			"Default: the ledger in Redis")
}

func (f *traceFlags) read(ctx context.Context, stdin io.Reader) (*simulate.Trace, error) {
	r := simulate.NewReader()
	if len(f.logs) == 0 {
		return f.readRedis(ctx, r)
	}
	if f.usage.period.given() || f.usage.org != "" {
		return nil, misused("--log cannot be combined with --org, --from, --to and --days, which select calls of the ledger")
	}
	if err := f.eachFile(stdin, func(name string, in io.Reader) error { return r.Read(ctx, name, in) }); err != nil {
		return nil, err
	}
	return r.Trace()
}

func (f *traceFlags) readRedis(ctx context.Context, r *simulate.Reader) (*simulate.Trace, error) {
	from, to, err := f.usage.period.bounds(time.Now())
	if err != nil {
		return nil, err
	}
	l, err := f.usage.open(ctx, false)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.Entries(ctx, from, to, r.Entry); err != nil {
		return nil, err
	}
	return r.Trace()
}

type simulateFlags struct {
	trace            traceFlags
	policy, baseline string
	set              []string
	plot             string
	by               string
	top, workers     int
	shadow           []string // limits of the last policy that are in shadow mode
}

func simulateCommand() *cobra.Command {
	var f simulateFlags
	c := &cobra.Command{
		Use: "simulate", Short: "Replay recorded calls under other limits and quotas", Args: cobra.NoArgs,
		Long: "Replays a ledger or an access log in virtual time under the limits, caps and quotas of a configuration, and shows who\n" +
			"would wait or be refused, and the spend. It makes the same decisions as Redis would, and changes nothing.\n\n" +
			"Without --log it reads the ledger, and org settings in Redis override the file, as in service. With --log it connects to\n" +
			"nothing. --set changes or adds limits; the baseline is then the unchanged file. A --policy with only orgs, as\n" +
			"`llmguard config export` prints it, replaces them in the file of --config. Before you apply such a file to a running\n" +
			"llmguard, a dry run of `llmguard apply` shows what would change there, and replays its calls.\n\n" +
			"Refused calls are not in a ledger: to replay them, add the access log. Costs and durations are those recorded.\n" +
			"docs/simulate.md lists what is not simulated.",
		Example: "  llmguard simulate --set 'acme/user-5m: $0.30' --days 7\n" +
			"  llmguard usage export --days 7 --out calls.jsonl\n" +
			"  llmguard simulate --log calls.jsonl --policy new.yaml --baseline llmguard.yaml\n" +
			"  llmguard simulate --policy new.yaml --org acme --from yesterday --by user,model --plot night.html",
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.trace.add(c, listFormats...)
	fl := c.Flags()
	fl.StringVar(&f.policy, "policy", "",
		"configuration to simulate; without it, --set changes the one of --config. Its secrets need not be set")
	fl.StringVar(&f.baseline, "baseline", "", "configuration to compare with")
	fl.StringArrayVar(&f.set, "set", nil,
		"limit to change: 'ORG/LIMIT: AMOUNT', 'ORG/LIMIT: enforce' for one in shadow mode, 'ORG/LIMIT: {FIELDS}' to change or add\n"+
			"one with the fields of the file, such as {subject: user, amount: $5, window: 1d}; 'ORG/USER/LIMIT: AMOUNT' for a user's own limit, or 'all/LIMIT: AMOUNT' for\n"+
			"every org without its own limit of that name; 'all/plan:PLAN/LIMIT: AMOUNT' and 'ORG/group:GROUP/LIMIT: AMOUNT' for\n"+
			"a plan and a group; repeatable")
	fl.StringVar(&f.plot, "plot", "",
		"also plot spend, limits and waits to this file, FILE.svg or FILE.html (self-contained)")
	fl.StringVar(&f.by, "by", "user", "group by any of "+strings.Join(simulate.Dimensions, ", "))
	fl.IntVar(&f.top, "top", 20, "maximum number of table lines, largest spend first (0: all)")
	fl.IntVar(&f.workers, "workers", 1, "number of worker processes")
	return c
}

func (f *simulateFlags) run(ctx context.Context, stdin io.Reader, w, notes io.Writer) error {
	by := strings.Split(f.by, ",")
	if i := slices.IndexFunc(by, func(d string) bool { return !slices.Contains(simulate.Dimensions, d) }); i >= 0 {
		return misused("--by %s: expected any of %s, separated by commas", by[i], strings.Join(simulate.Dimensions, ", "))
	}
	if f.top < 0 || f.workers < 1 {
		return misused("--top must be 0 or more, --workers 1 or more")
	}
	draw, err := plotterOf(f.plot)
	if err != nil {
		return err
	}
	policies, err := f.policies(ctx)
	if err != nil {
		return err
	}
	trace, err := f.trace.read(ctx, stdin)
	if err != nil {
		return err
	}
	if trace.Len() == 0 {
		return errors.New("no calls to replay; choose a longer period with --from or --days")
	}
	reports, err := replayAll(ctx, trace, policies, by, simulate.Options{Fill: draw != nil})
	if err != nil {
		return err
	}
	if draw != nil {
		if err := writePlot(f.plot, draw, reports); err != nil {
			return err
		}
		fmt.Fprintf(notes, "plot: %s\n", f.plot)
	}
	return f.print(reports, w, notes)
}

type plotter func(io.Writer, []simulate.Report) error

// plotterOf returns the plotter for a file's extension, or nil for an empty path.
func plotterOf(path string) (plotter, error) {
	switch strings.ToLower(filepath.Ext(path)) {
	case "":
		if path == "" {
			return nil, nil
		}
	case ".svg":
		return simulate.SVG, nil
	case ".html", ".htm":
		return simulate.HTML, nil
	}
	return nil, misused("--plot %s: expected a file name that ends with .svg or .html", path)
}

func writePlot(path string, draw plotter, reports []simulate.Report) error {
	var b bytes.Buffer
	if err := draw(&b, reports); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// replayAll replays all policies concurrently.
func replayAll(ctx context.Context, t *simulate.Trace, policies []simulate.Policy, by []string,
	o simulate.Options,
) ([]simulate.Report, error) {
	reports, errs := make([]simulate.Report, len(policies)), make([]error, len(policies))
	var all sync.WaitGroup
	for i, p := range policies {
		all.Go(func() {
			result, err := simulate.Run(ctx, t, p, o)
			if err == nil {
				reports[i], err = result.Report(by)
			}
			errs[i] = err
		})
	}
	all.Wait()
	return reports, errors.Join(errs...)
}

func (f *simulateFlags) print(reports []simulate.Report, w, notes io.Writer) error {
	for _, r := range reports {
		for why, n := range r.Skipped {
			fmt.Fprintf(notes, "%s: %d not replayed: %s\n", r.Policy, n, escape.Text(why))
		}
	}
	if len(f.shadow) > 0 {
		fmt.Fprintf(notes, "in shadow mode, they refused nothing in this replay: %s. Enforce one with --set '%s: enforce'\n",
			strings.Join(f.shadow, ", "), f.shadow[0])
	}
	switch f.trace.usage.output {
	case "json", "yaml":
		return render(w, f.trace.usage.output, map[string]any{"reports": reports}, nil)
	case "jsonl":
		return render(w, "jsonl", reports, nil)
	case "csv":
		return simulateCSV(w, reports)
	}
	last := reports[len(reports)-1]
	fmt.Fprintf(w, "%s calls %s\n\n", whole(int64(last.Total.Calls)), figures.Between(last.From, last.To))
	var names [][]string
	var totals []simulate.Line
	for _, r := range reports {
		names, totals = append(names, []string{r.Policy}), append(totals, r.Total)
	}
	if err := lineTable(w, []string{"policy"}, names, totals); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := f.printLines(reports, w); err != nil {
		return err
	}
	for _, r := range reports {
		if err := printLimits(r, w); err != nil {
			return err
		}
	}
	return nil
}

var (
	lineColumns = columnsOf(reflect.TypeFor[simulate.Line](), "calls:calls", "at_once:immediate", "waited:waited",
		"wait_p50_ms:p50;span", "wait_p95_ms:p95;span", "wait_p99_ms:p99;span", "gave_up:gave up", "refused:refused",
		"spend_nano:spend;usd", "not_spent_nano:not spent;usd")
	delayColumns = columnsOf(reflect.TypeFor[simulate.LimitLine](), "limit:limit", "waited:waited", "wait_p95_ms:p95;span",
		"gave_up:gave up", "refused:refused")
	shadowColumns = columnsOf(reflect.TypeFor[simulate.ShadowLine](), "limit:limit", "user:user;=user",
		"would_wait:would wait", "wait_p50_ms:p50;span", "wait_p95_ms:p95;span", "wait_max_ms:longest;span", "would_refuse:would be refused")
	lineCSV = columnsOf(reflect.TypeFor[policyLine](), "policy:policy;text", "org:org", "user:user;text", "key:key;text",
		"model:model;text", "calls:calls", "at_once:at_once", "waited:waited", "wait_p50_ms:wait_p50_ms;int",
		"wait_p95_ms:wait_p95_ms;int", "wait_p99_ms:wait_p99_ms;int", "wait_max_ms:wait_max_ms;int", "gave_up:gave_up",
		"refused:refused", "spend_nano:spend_usd;decimal", "not_spent_nano:not_spent_usd;decimal",
		"recorded_nano:recorded_usd;decimal")
)

// lineTable prints lines, each after its names.
func lineTable(w io.Writer, head []string, names [][]string, lines []simulate.Line) error {
	g := gridOf(w, lines, lineColumns)
	g.head, g.numbers = append(slices.Clone(head), g.head...), append(make([]bool, len(head)), g.numbers...)
	for i := range g.rows {
		g.rows[i] = append(slices.Clone(names[i]), g.rows[i]...)
	}
	return g.write(w)
}

// lineNames returns the values of the dimensions of a line.
func lineNames(by []string, l simulate.Line) []string {
	var out []string
	for _, d := range by {
		switch d {
		case "org":
			out = append(out, l.Org)
		case "user":
			out = append(out, userOf(l.Org, l.User))
		case "key":
			out = append(out, l.Key)
		default:
			out = append(out, escape.Text(l.Model))
		}
	}
	return out
}

func userOf(org, user string) string { return org + "/" + user }

// printLines prints one line per org, user, key or model, for one policy or for two side by
// side.
func (f *simulateFlags) printLines(reports []simulate.Report, w io.Writer) error {
	after := reports[len(reports)-1]
	lines := after.Lines
	if f.top > 0 && len(lines) > f.top {
		lines = lines[:f.top]
	}
	if len(reports) == 1 {
		var names [][]string
		for _, l := range lines {
			names = append(names, lineNames(after.By, l))
		}
		return lineTable(w, after.By, names, lines)
	}
	before := map[string]simulate.Line{}
	for _, l := range reports[0].Lines {
		before[fmt.Sprint(lineNames(after.By, l))] = l
	}
	head := append(slices.Clone(after.By), "calls", "waited", "→", "p95", "→", "gave up", "→", "refused", "→", "spend",
		"→")
	g := grid{head: head, numbers: make([]bool, len(head))}
	for i := range g.numbers {
		g.numbers[i] = i >= len(after.By)
	}
	for _, l := range lines {
		names := lineNames(after.By, l)
		b := before[fmt.Sprint(names)]
		n := func(i int) string { return whole(int64(i)) }
		g.add(append(names, n(l.Calls), n(b.Waited), n(l.Waited), b.WaitP95.String(), l.WaitP95.String(), n(b.GaveUp),
			n(l.GaveUp),
			n(b.Refused), n(l.Refused), usd(w, b.Spend), usd(w, l.Spend))...)
	}
	return g.write(w)
}

// printLimits prints which limits delayed calls, and which limits in shadow mode would have.
func printLimits(r simulate.Report, w io.Writer) error {
	if len(r.Limits) > 0 {
		fmt.Fprintf(w, "\nlimits that held calls back under %s\n", r.Policy)
		err := tableOf(w, r.Limits, delayColumns)
		if err != nil {
			return err
		}
	}
	if len(r.Brakes) > 0 {
		fmt.Fprintf(w, "\nbrakes that fired under %s\n", r.Policy)
		g := grid{head: []string{"brake", "org", "subject", "action", "at (UTC)", "why"}, numbers: make([]bool, 6)}
		for i := range r.Brakes {
			b := &r.Brakes[i]
			g.add(b.Brake, b.Org, escape.Text(b.Subject), string(b.Action),
				figures.Cell(figures.Second(b.At)), b.Evidence.Text(true))
		}
		if err := g.write(w); err != nil {
			return err
		}
	}
	if len(r.Shadow) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nlimits in shadow mode that would have held calls back under %s\n", r.Policy)
	return shadowTable(w, r.Shadow)
}

func shadowTable(w io.Writer, list []simulate.ShadowLine) error {
	return tableOf(w, list, shadowColumns)
}

type policyLine struct {
	Policy string `json:"policy"`
	simulate.Line
}

func simulateCSV(w io.Writer, reports []simulate.Report) error {
	var all []policyLine
	for _, r := range reports {
		for _, l := range r.Lines {
			all = append(all, policyLine{r.Policy, l})
		}
	}
	return csvOf(w, all, lineCSV)
}
