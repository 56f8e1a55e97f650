package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
)

// usageFlags are what the commands on the ledger share.
type usageFlags struct {
	path, org, output string
	period            period
}

func usageCommand() *cobra.Command {
	var f usageFlags
	var by, sorted string
	c := &cobra.Command{
		Use: "usage", Short: "Show what was spent, by any dimension, from the ledger's daily sums", Args: cobra.NoArgs,
		Long: "Adds up the ledger's daily sums. The days are UTC, and a period of hours counts the days it touches.\n" +
			"With --by class the lines are what was paid for which class of tokens; they add up to the cost exactly.\n" +
			"\"unmetered\" was charged without the provider's usage: expired holds, and calls charged their whole hold.",
		Example: "  llmguard usage --by user,model --days 7\n" +
			"  llmguard usage --org all --by org,class --from 2026-11 --to 2026-11 -o csv",
		RunE: func(c *cobra.Command, _ []string) error {
			return showUsage(c.Context(), &f, by, sorted, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.add(c, "table", "json", "csv")
	f.period.add(c)
	c.Flags().StringVar(&by, "by", "user,model", "what to sum by: any of "+strings.Join(dimensions, ", "))
	c.Flags().StringVar(&sorted, "sort", "", "by a column: cost, calls, tokens, estimated or overrun, largest first, or a name of --by\n"+
		"(default: by time if --by has day or month, else by cost)")
	c.AddCommand(capsCommand(), entriesCommand(), exportCommand(), adjustCommand(), reconcileCommand(), auditCommand())
	return c
}

// add gives a command the flags for where the ledger is, and for its output when
// there is a choice.
func (f *usageFlags) add(c *cobra.Command, formats ...string) {
	configFlag(c, &f.path)
	c.Flags().StringVar(&f.org, "org", "", "one org, several with commas between, or all (default: the only one of the configuration)")
	if len(formats) == 0 {
		return
	}
	c.Flags().StringVarP(&f.output, "output", "o", formats[0], strings.Join(formats, ", "))
	check := c.PreRunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if !slices.Contains(formats, f.output) {
			return fmt.Errorf("--output %s: expected one of %s", f.output, strings.Join(formats, ", "))
		}
		return check(c, args)
	}
}

// ledgers is an open store and the orgs that were asked for.
type ledgers struct {
	*budget.Store
	cfg  *config.Config
	orgs []string
	rdb  redis.UniversalClient
}

func (l *ledgers) Close() { _ = l.rdb.Close() }

func (f *usageFlags) open() (*ledgers, error) {
	cfg, err := config.Load(f.path)
	if err != nil {
		return nil, err
	}
	if !cfg.Redis.Configured() {
		return nil, app.ErrNoStore
	}
	rdb, err := app.Connect(cfg.Redis)
	if err != nil {
		return nil, err
	}
	cfg, orgs, err := withRecords(cfg, rdb, f.org)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &ledgers{Store: budget.New(rdb, budget.Options{LedgerLength: app.LedgerLength(cfg.Ledger)}), cfg: cfg, orgs: orgs, rdb: rdb}, nil
}

// withRecords returns the configuration with the orgs in force, those of Redis
// included, and the ids of those that were asked for.
func withRecords(cfg *config.Config, rdb redis.UniversalClient, list string) (*config.Config, []string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) //nolint:forbidigo // it ends with the program
	defer cancel()
	cfg, err := app.Effective(ctx, cfg, rdb, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, nil, err
	}
	orgs, err := pickOrgs(cfg, list)
	return cfg, orgs, err
}

// openOne is open for what concerns one org.
func (f *usageFlags) openOne() (*ledgers, string, error) {
	l, err := f.open()
	if err != nil {
		return nil, "", err
	}
	if len(l.orgs) != 1 {
		l.Close()
		return nil, "", errors.New("--org: this is done for one org at a time")
	}
	return l, l.orgs[0], nil
}

func pickOrgs(cfg *config.Config, list string) ([]string, error) {
	known := make([]string, 0, len(cfg.Orgs))
	for _, o := range cfg.Orgs {
		known = append(known, o.ID)
	}
	switch {
	case list == "" && len(known) == 1, list == "all" && !slices.Contains(known, "all"):
		return known, nil
	case list == "":
		return nil, fmt.Errorf("--org is needed: all, or one of %s", strings.Join(known, ", "))
	}
	var orgs []string
	for id := range strings.SplitSeq(list, ",") {
		id = strings.TrimSpace(id)
		if !slices.Contains(known, id) {
			return nil, fmt.Errorf("--org %s: no such org; there are %s", id, strings.Join(known, ", "))
		}
		if !slices.Contains(orgs, id) {
			orgs = append(orgs, id)
		}
	}
	return orgs, nil
}

func showUsage(ctx context.Context, f *usageFlags, by, sorted string, w, notes io.Writer) error {
	r := report{by: strings.Split(by, ",")}
	for _, d := range r.by {
		if !slices.Contains(dimensions, d) {
			return fmt.Errorf("--by %s: expected %s, separated by commas", d, strings.Join(dimensions, ", "))
		}
	}
	if err := r.checkSort(sorted); err != nil {
		return err
	}
	from, to, err := f.period.days(time.Now())
	if err != nil {
		return err
	}
	l, err := f.open()
	if err != nil {
		return err
	}
	defer l.Close()
	r.from, r.to = from, to
	sums := map[string]*line{}
	for _, org := range l.orgs {
		list, err := l.Rollups(ctx, org, from, to)
		if err != nil {
			return err
		}
		for _, one := range list {
			r.count(sums, org, one)
		}
	}
	r.collect(sums)
	if len(r.lines) == 0 {
		fmt.Fprintf(notes, "nothing was spent %s\n", r.span())
	}
	switch f.output {
	case "csv":
		return r.writeCSV(w)
	default:
		return render(w, f.output, r.json(), r.writeTable)
	}
}
