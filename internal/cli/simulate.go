package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

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

// read returns the calls.
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

// simulateFlags are the flags of `simulate`.
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

// plotter draws reports.
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
