package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// suggestFlags are the flags of `limits suggest`.
type suggestFlags struct {
	trace   traceFlags
	windows string
	metric  string
	options simulate.SuggestOptions
}

// suggestDays is the default period.
const suggestDays = 30

func limitsSuggestCommand() *cobra.Command {
	var f suggestFlags
	c := &cobra.Command{
		Use: "suggest", Short: "Suggest limits from past calls", Args: cobra.NoArgs,
		Long: "Measures the usage of each org and user in sliding windows, and suggests limits: a percentile of that usage, plus\n" +
			"headroom. It suggests limits for the org, for each user, and for heavy users, and a bucket that refills at the org's mean\n" +
			"rate. Then it replays the same calls under each suggestion and under all of them, and shows who would have waited or been\n" +
			"refused.\n\n" +
			"Choose a normal period: a runaway in the sample inflates the suggested limit. The default is the last 30 days. -o yaml\n" +
			"prints the limits for the configuration in shadow mode, so no call waits until you enforce them.",
		Example: "  llmguard limits suggest --org acme --days 14\n" +
			"  llmguard limits suggest --headroom 1.5 --percentile 99 --window 1h,7d -o yaml\n" +
			"  llmguard limits suggest --log november.jsonl --metric tokens",
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
	f.trace.add(c, "table", "json", "yaml")
	fl := c.Flags()
	fl.StringVar(&f.windows, "window", "1h,1d", "comma-separated windows")
	fl.StringVar(&f.metric, "metric", string(budget.Cost), "metric to limit: cost, tokens or requests")
	fl.IntVar(&f.options.Percentile, "percentile", 95,
		"percentile of the usage that a limit lets through before headroom (of windows for orgs and heavy users, of users for\n"+
			"per-user limits)")
	fl.Float64Var(&f.options.Headroom, "headroom", 1.2, "factor between that value and the limit")
	fl.IntVar(&f.options.Heavy, "heavy", 5, "maximum number of heavy users who get their own limits")
	return c
}

func (f *suggestFlags) run(ctx context.Context, stdin io.Reader, w io.Writer) error {
	o := f.options
	o.Metric = budget.Metric(f.metric)
	for text := range strings.SplitSeq(f.windows, ",") {
		d, err := settings.ParseDuration(strings.TrimSpace(text))
		if err != nil {
			return misused("--window %s: %w", text, err)
		}
		o.Windows = append(o.Windows, d)
	}
	if f.trace.logs == nil && !f.trace.usage.period.given() {
		f.trace.usage.period.count = suggestDays
	}
	p, err := f.inForce(ctx)
	if err != nil {
		return err
	}
	if p.Guard != nil {
		o.Orgs = p.Guard.Orgs
	}
	trace, err := f.trace.read(ctx, stdin)
	if err != nil {
		return err
	}
	if trace.Len() == 0 {
		return errors.New("no calls found; choose a longer period with --from or --days")
	}
	list, err := simulate.Suggest(ctx, trace, o)
	if err != nil {
		return err
	}
	switch f.trace.usage.output {
	case "json":
		return render(w, "json", map[string]any{"percentile": o.Percentile, "headroom": o.Headroom, "orgs": list}, nil)
	case "yaml":
		return suggestYAML(w, list, o)
	}
	for i, org := range list {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := suggestTable(w, org, o); err != nil {
			return err
		}
	}
	return nil
}

// inForce returns the policy of the file with runtime records on top. Calls read from files and
// a running llmguard need no configuration file.
func (f *suggestFlags) inForce(ctx context.Context) (simulate.Policy, error) {
	records, err := f.trace.records(ctx)
	if err != nil {
		return simulate.Policy{}, err
	}
	cfg, err := config.LoadPolicy(f.trace.usage.path)
	if errors.Is(err, fs.ErrNotExist) && !f.trace.usage.command.Flags().Changed("config") {
		return simulate.Policy{}, nil
	}
	if err != nil {
		return simulate.Policy{}, err
	}
	cfg, err = app.WithRecords(cfg, records)
	if err != nil {
		return simulate.Policy{}, err
	}
	return app.Policy(cfg, 1)
}

// limitText returns the shape of a suggestion as text, and limitConfig as configuration.
func limitText(s simulate.Suggestion) string {
	if s.PerS > 0 {
		return fmt.Sprintf("%s + %s/%s", quantity(s.Metric, s.Amount), quantity(s.Metric, s.Refill), seconds(s.PerS))
	}
	return quantity(s.Metric, s.Amount)
}

func limitConfig(s simulate.Suggestion) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{name: %s", s.Name)
	if s.Subject == budget.User && s.User == "" {
		b.WriteString(", subject: user")
	}
	if s.Metric != budget.Cost {
		fmt.Fprintf(&b, ", metric: %s", s.Metric)
	}
	if s.PerS > 0 {
		fmt.Fprintf(&b, ", bucket: {capacity: %s, refill: %s/%s}", quantity(s.Metric, s.Amount), quantity(s.Metric, s.Refill),
			seconds(s.PerS))
	} else {
		fmt.Fprintf(&b, ", amount: %s, window: %s", quantity(s.Metric, s.Amount), seconds(s.WindowS))
	}
	return b.String() + ", mode: shadow}"
}

func seconds(n int64) string { return settings.DurationText(time.Duration(n) * time.Second) }
