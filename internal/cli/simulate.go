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
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/simulate"
)

// traceFlags say where the calls are: in files, or in a ledger in Redis.
type traceFlags struct {
	usage usageFlags
	logs  []string
}

func (f *traceFlags) add(c *cobra.Command, formats ...string) {
	f.usage.add(c, formats...)
	f.usage.period.add(c)
	c.Flags().StringArrayVar(&f.logs, "log", nil,
		"a ledger export (JSON lines or CSV) or an access log; - is standard input; may be repeated.\n"+
			"Without it the ledger is read")
}

// read returns the calls.
func (f *traceFlags) read(ctx context.Context, stdin io.Reader) (*simulate.Trace, error) {
	r := simulate.NewReader()
	if len(f.logs) == 0 {
		return f.readRedis(ctx, r)
	}
	if f.usage.period.given() || f.usage.org != "" {
		return nil, misused("--log gives the calls; --org, --from, --to and --days choose those of a ledger")
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
	l, err := f.usage.open(ctx)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	for _, org := range l.orgs {
		if err := l.Entries(ctx, org, from, to, r.Entry); err != nil {
			return nil, err
		}
	}
	return r.Trace()
}

// simulateFlags are those of `simulate` itself.
type simulateFlags struct {
	trace            traceFlags
	policy, baseline string
	set              []string
	plot             string
	by               string
	top, workers     int
}

func simulateCommand() *cobra.Command {
	var f simulateFlags
	c := &cobra.Command{
		Use: "simulate", Short: "Replay recorded calls under other limits and quotas: who would wait or be refused, and " +
			"the spend", Args: cobra.NoArgs,
		Long: "Replays a ledger or an access log under the limits, caps and quotas of a configuration, in virtual time, with the\n" +
			"decisions that Redis would make. Nothing changes. Without --log the ledger is read, and what is recorded of orgs applies\n" +
			"over the file as it would in service; with --log nothing is connected to. --set changes amounts of limits by org and name,\n" +
			"and the file without those changes is the baseline. A ledger has no refused calls: give the access log as well to replay\n" +
			"those too. What a call cost and how long it took are taken from the record; see docs/simulate.md for what is left out.",
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
		"the configuration to decide by (default: that of --config); secrets in it need not be set")
	fl.StringVar(&f.baseline, "baseline", "", "another one to compare with")
	fl.StringArrayVar(&f.set, "set", nil,
		"another amount of a limit, as 'ORG/LIMIT: AMOUNT', or 'ORG/USER/LIMIT: AMOUNT' of a user's own, or 'all/LIMIT: AMOUNT' of\n"+
			"every org without one of its own; may be repeated")
	fl.StringVar(&f.plot, "plot", "",
		"also draw the spend, the limits and the waits to this file, FILE.svg or FILE.html; it needs nothing else")
	fl.StringVar(&f.by, "by", "user", "what to divide by: any of "+strings.Join(simulate.Dimensions, ", "))
	fl.IntVar(&f.top, "top", 20, "how many lines of a table, the largest spend first; 0: all")
	fl.IntVar(&f.workers, "workers", 1, "how many worker processes drain the queues")
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
		return errors.New("there is no call to replay; look further back with --from or --days")
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

// plotterOf is the one that a file's name asks for; nil for none.
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
	return nil, misused("--plot %s: expected a file that ends with .svg or .html", path)
}

func writePlot(path string, draw plotter, reports []simulate.Report) error {
	var b bytes.Buffer
	if err := draw(&b, reports); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// replayAll runs each policy, at the same time.
func replayAll(ctx context.Context, t *simulate.Trace, policies []simulate.Policy, by []string,
	o simulate.Options,
) ([]simulate.Report, error) {
	reports, errs := make([]simulate.Report, len(policies)), make([]error, len(policies))
	done := make(chan struct{})
	for i, p := range policies {
		go func() {
			defer func() { done <- struct{}{} }()
			result, err := simulate.Run(ctx, t, p, o)
			if err == nil {
				reports[i], err = result.Report(by)
			}
			errs[i] = err
		}()
	}
	for range policies {
		<-done
	}
	return reports, errors.Join(errs...)
}
