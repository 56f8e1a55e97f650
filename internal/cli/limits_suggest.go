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
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
)

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

// quantity formats an amount in the metric's unit, as configurations take it, without trailing
// zeros.
func quantity(m budget.Metric, n int64) string {
	if m != budget.Cost {
		return whole(n)
	}
	text := strings.TrimRight(pricing.Nano(n).String(), "0")
	dollars, cents, _ := strings.Cut(text, ".")
	switch len(cents) {
	case 0:
		return dollars
	case 1:
		return text + "0"
	}
	return text
}

// about is quantity rounded to three significant digits, for figures that are only informative.
func about(m budget.Metric, n int64) string {
	unit := int64(1)
	for n/unit >= 1000 {
		unit *= 10
	}
	return quantity(m, (n+unit/2)/unit*unit)
}

func suggestTable(w io.Writer, org simulate.OrgSuggestions, o simulate.SuggestOptions) error {
	fmt.Fprintf(w, "%s: %s of %s for %s, %s\n", org.Org, plural(org.Calls, "call"),
		plural(org.Users, "user"), about(budget.Cost, int64(org.Spend)), figures.Between(org.From, org.To))
	fmt.Fprintf(w, "amounts are %g times what %d %% of the history stays within; each row replays the same calls under "+
		"that limit alone\n\n", o.Headroom, o.Percentile)
	g := grid{
		head: []string{
			"limit", "for", "amount", fmt.Sprintf("%d %%", o.Percentile), "most", "sample", "held back", "waited",
			"p95", "gave up", "refused", "not spent", "users held back",
		},
		numbers: []bool{false, false, false, true, true, true, true, true, true, true, true, true, false},
	}
	add := func(e simulate.Line, users string, limit ...string) {
		g.add(append(limit, whole(int64(e.HeldBackCalls())), whole(int64(e.Waited)), e.WaitP95.String(),
			whole(int64(e.GaveUp)), whole(int64(e.Refused)), about(budget.Cost, int64(e.Unspent)), users)...)
	}
	for _, s := range org.Suggestions {
		add(s.Effect, most(s.HeldBack), s.Name, forWhom(s), limitText(s), about(s.Metric, s.Basis.Reached),
			about(s.Metric, s.Basis.Most), basisOf(s))
	}
	if len(org.Suggestions) > 1 {
		add(org.Together, "", "all combined", "", "", "", "", "")
	}
	if err := g.write(w); err != nil {
		return err
	}
	for _, note := range org.Notes {
		fmt.Fprintf(w, "%s\n", note)
	}
	return nil
}

func forWhom(s simulate.Suggestion) string {
	switch {
	case s.User != "":
		return s.User
	case s.Subject == budget.User:
		return "each user"
	default:
		return "the org"
	}
}

// basisOf names the sample of the percentile: "37 users", "412 x 1h".
func basisOf(s simulate.Suggestion) string {
	if s.Subject == budget.User && s.User == "" {
		return plural(s.Basis.Of, "user")
	}
	return fmt.Sprintf("%d x %s", s.Basis.Of, seconds(stretchOf(s)))
}

func stretchOf(s simulate.Suggestion) int64 {
	if s.PerS > 0 {
		return s.PerS
	}
	return s.WindowS
}

// most names the users whose calls are delayed most often.
func most(lines []simulate.Line) string {
	const named = 3
	var out []string
	for _, l := range lines[:min(len(lines), named)] {
		out = append(out, fmt.Sprintf("%s %d", escape.Text(l.User), l.HeldBackCalls()))
	}
	if more := len(lines) - named; more > 0 {
		out = append(out, fmt.Sprintf("and %s more", plural(more, "user")))
	}
	return strings.Join(out, ", ")
}

func suggestYAML(w io.Writer, list []simulate.OrgSuggestions, o simulate.SuggestOptions) error {
	var b strings.Builder
	const head = "# Amounts are %g times what %d %% of the history stays within. In shadow mode they refuse no calls; see\n" +
		"# `llmguard limits shadow`, and remove mode: shadow to enforce one.\norgs:\n"
	fmt.Fprintf(&b, head, o.Headroom, o.Percentile)
	for _, org := range list {
		fmt.Fprintf(&b, "  - id: %s # %s of %s for %s, %s\n", org.Org, plural(org.Calls, "call"),
			plural(org.Users, "user"), about(budget.Cost, int64(org.Spend)), figures.Between(org.From, org.To))
		for _, note := range org.Notes {
			fmt.Fprintf(&b, "    # %s\n", note)
		}
		suggestOrgYAML(&b, org.Suggestions, o.Percentile)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func suggestOrgYAML(b *strings.Builder, list []simulate.Suggestion, percentile int) {
	if len(list) == 0 {
		return
	}
	b.WriteString("    limits:\n")
	var users []string
	own := map[string][]simulate.Suggestion{}
	for _, s := range list {
		if s.User == "" {
			suggestLine(b, "      ", s, percentile)
			continue
		}
		if own[s.User] == nil {
			users = append(users, s.User)
		}
		own[s.User] = append(own[s.User], s)
	}
	if len(users) == 0 {
		return
	}
	b.WriteString("    users: # these limits replace the org's limits of the same name\n")
	for _, user := range users {
		fmt.Fprintf(b, "      - id: %s\n        limits:\n", user)
		for _, s := range own[user] {
			suggestLine(b, "          ", s, percentile)
		}
	}
}

// suggestLine writes one limit, with its reason.
func suggestLine(b *strings.Builder, indent string, s simulate.Suggestion, percentile int) {
	of := plural(s.Basis.Of, "user")
	if s.Subject != budget.User || s.User != "" {
		of = fmt.Sprintf("%s of %s with calls", plural(s.Basis.Of, "span"), seconds(stretchOf(s)))
	}
	effect := "holds back none of these calls"
	if e := s.Effect; e.HeldBackCalls() > 0 {
		effect = fmt.Sprintf("holds back %s (%s): %d waited, %d gave up, %d refused", plural(e.HeldBackCalls(), "call"),
			most(s.HeldBack), e.Waited, e.GaveUp, e.Refused)
	}
	fmt.Fprintf(b, "%s# %d %% of %s within %s, the most %s; %s\n%s- %s\n", indent, percentile, of,
		about(s.Metric, s.Basis.Reached),
		about(s.Metric, s.Basis.Most), effect, indent, limitConfig(s))
}
