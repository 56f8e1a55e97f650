package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/pricing"
)

type usageOptions struct {
	path, org, by, output string
	days                  int
}

func usageCommand() *cobra.Command {
	var o usageOptions
	c := &cobra.Command{
		Use: "usage", Short: "What an org spent, from the ledger's daily sums", Args: cobra.NoArgs,
		Example: "  llmguard usage --org acme --by user,model --days 7",
		RunE: func(c *cobra.Command, _ []string) error {
			return printUsage(c.Context(), o, c.OutOrStdout())
		},
	}
	configFlag(c, &o.path)
	f := c.Flags()
	f.StringVar(&o.org, "org", "", "the org (default: the only one of the configuration)")
	f.StringVar(&o.by, "by", "user,model", "what to sum by: any of day, user, key, model")
	f.IntVar(&o.days, "days", 1, "how many UTC days, today included")
	f.StringVarP(&o.output, "output", "o", "table", "table or json")
	return c
}

// spent is one line of the answer.
type spent struct {
	By        []string     `json:"by"`
	Calls     int64        `json:"calls"`
	Cost      pricing.Nano `json:"cost_nano_usd"`
	Estimated pricing.Nano `json:"estimated_nano_usd"`
	Overrun   pricing.Nano `json:"overrun_nano_usd"`
	Input     int64        `json:"input_tokens"`
	Output    int64        `json:"output_tokens"`
}

func printUsage(ctx context.Context, o usageOptions, w io.Writer) error {
	dimensions := strings.Split(o.by, ",")
	for _, d := range dimensions {
		if !slices.Contains([]string{"day", "user", "key", "model"}, d) {
			return fmt.Errorf("--by %s: expected day, user, key or model, separated by commas", d)
		}
	}
	if o.days < 1 || (o.output != "table" && o.output != "json") {
		return errors.New("--days must be at least 1 and --output table or json")
	}
	rollups, err := readUsage(ctx, o)
	if err != nil {
		return err
	}
	lines := sumBy(rollups, dimensions)
	if o.output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(lines)
	}
	return usageTable(w, dimensions, lines)
}

func readUsage(ctx context.Context, o usageOptions) ([]budget.Rollup, error) {
	cfg, err := config.Load(o.path)
	if err != nil {
		return nil, err
	}
	if !cfg.Redis.Configured() {
		return nil, app.ErrNoStore
	}
	org, err := pickOrg(cfg, o.org)
	if err != nil {
		return nil, err
	}
	rdb, err := app.Connect(cfg.Redis)
	if err != nil {
		return nil, err
	}
	defer rdb.Close()
	now := time.Now().UTC()
	from := now.Truncate(24*time.Hour).AddDate(0, 0, 1-o.days)
	return budget.New(rdb, budget.Options{}).Rollups(ctx, org, from, now)
}

func pickOrg(cfg *config.Config, id string) (string, error) {
	ids := make([]string, 0, len(cfg.Orgs))
	for _, o := range cfg.Orgs {
		ids = append(ids, o.ID)
	}
	switch {
	case slices.Contains(ids, id):
		return id, nil
	case id == "" && len(ids) == 1:
		return ids[0], nil
	case id == "":
		return "", fmt.Errorf("--org is needed: one of %s", strings.Join(ids, ", "))
	default:
		return "", fmt.Errorf("--org %s: no such org; the configuration has %s", id, strings.Join(ids, ", "))
	}
}

// sumBy adds roll-ups up by the dimensions, dearest first.
func sumBy(rollups []budget.Rollup, dimensions []string) []spent {
	sums := map[string]*spent{}
	for _, r := range rollups {
		by := make([]string, len(dimensions))
		for i, d := range dimensions {
			by[i] = map[string]string{"day": r.Day.Format(time.DateOnly), "user": r.User, "key": r.Key, "model": r.Model}[d]
		}
		key := strings.Join(by, "\x00")
		s := sums[key]
		if s == nil {
			s = &spent{By: by}
			sums[key] = s
		}
		s.Calls += r.Calls
		s.Cost += r.Cost
		s.Estimated += r.Estimated
		s.Overrun += r.Overrun
		s.Input += r.Input
		s.Output += r.Output
	}
	out := make([]spent, 0, len(sums))
	for _, s := range sums {
		out = append(out, *s)
	}
	slices.SortFunc(out, func(a, b spent) int {
		if a.Cost != b.Cost {
			return int(min(max(b.Cost-a.Cost, -1), 1))
		}
		return slices.Compare(a.By, b.By)
	})
	return out
}

func usageTable(w io.Writer, dimensions []string, lines []spent) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%s\tcalls\tinput\toutput\tcost\testimated\toverrun\t\n", strings.Join(dimensions, "\t"))
	var total spent
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\t%s\t%s\t\n", strings.Join(l.By, "\t"), l.Calls, l.Input, l.Output, l.Cost, l.Estimated, l.Overrun)
		total.Calls += l.Calls
		total.Input += l.Input
		total.Output += l.Output
		total.Cost += l.Cost
		total.Estimated += l.Estimated
		total.Overrun += l.Overrun
	}
	fmt.Fprintf(t, "total%s\t%d\t%d\t%d\t%s\t%s\t%s\t\n", strings.Repeat("\t", len(dimensions)-1), total.Calls, total.Input, total.Output, total.Cost, total.Estimated, total.Overrun)
	return t.Flush()
}
