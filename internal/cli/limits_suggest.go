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
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// suggestFlags are those of `limits suggest`.
type suggestFlags struct {
	trace   traceFlags
	windows string
	metric  string
	options simulate.SuggestOptions
}

// suggestDays is how far back is looked without any flag.
const suggestDays = 30

func limitsSuggestCommand() *cobra.Command {
	var f suggestFlags
	c := &cobra.Command{
		Use: "suggest", Short: "Suggest limits from history, each with what it would have done", Args: cobra.NoArgs,
		Long: "Looks at what counted inside sliding windows in the recorded calls, of each org and of each of its users, and suggests\n" +
			"limits that let the given percentile of it pass, with headroom: for the org, for each user, and for heavy users limits\n" +
			"of their own in place of those; and a bucket for the org, which refills at the mean of the whole time. The same calls\n" +
			"are then replayed under each suggestion alone, and under all: who would have waited, how long, who would have been\n" +
			"refused. Choose a period that was normal: what burned the money sets the limit too. -o yaml is ready for the\n" +
			"configuration, in the shadow: nobody waits before you enforce it. Without any period the last 30 days are looked at.",
		Example: "  llmguard limits suggest --org acme --days 14\n" +
			"  llmguard limits suggest --headroom 1.5 --percentile 99 --window 1h,7d -o yaml\n" +
			"  llmguard limits suggest --log november.jsonl --metric tokens",
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
	f.trace.add(c, "table", "json", "yaml")
	fl := c.Flags()
	fl.StringVar(&f.windows, "window", "1h,1d", "the windows, separated by commas")
	fl.StringVar(&f.metric, "metric", string(budget.Cost), "what is limited: cost, tokens or requests")
	fl.IntVar(&f.options.Percentile, "percentile", 95,
		"how many percent of the history a limit lets pass before the headroom: of the stretches of\n"+
			"the window's length for an org and for a heavy user, of the users for a limit of each user")
	fl.Float64Var(&f.options.Headroom, "headroom", 1.2, "how many times that the limit is")
	fl.IntVar(&f.options.Heavy, "heavy", 5, "how many users above the limit of each user get limits of their own at most")
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
		return errors.New("there is no call to learn from; look further back with --from or --days")
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

// inForce is the policy of the file with what is recorded over it. Calls out of files need no
// file, nor does who asks a running llmguard.
func (f *suggestFlags) inForce(ctx context.Context) (simulate.Policy, error) {
	records, err := f.trace.records(ctx)
	if err != nil {
		return simulate.Policy{}, err
	}
	cfg, err := app.LoadPolicy(f.trace.usage.path)
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

// limitText is a suggestion's shape for people, and limitConfig for a configuration.
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

func seconds(n int64) string { return simulate.Brief(time.Duration(n) * time.Second) }
