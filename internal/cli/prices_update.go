package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/listen"
	"github.com/llmguard/llmguard/internal/removed"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/pricing"
)

type updateFlags struct {
	priceFlags
	from, effective, reason string
	all, yes                bool
}

func updatePricesCommand() *cobra.Command {
	var f updateFlags
	c := &cobra.Command{
		Use: "update FEED", Short: "Compare prices with a published list and apply changes", Args: cobra.ExactArgs(1),
		Long: "Reads a price list: a feed name from the list below, a URL, a file, or - for standard input. It shows the differences from\n" +
			"the prices in force, asks, and writes the changes to prices_file of the configuration with the date of --effective.\n" +
			"Earlier calls keep their prices, and models that are not in the list stay unchanged. The change is recorded in the audit.\n\n" +
			"To apply the file, run `llmguard config reload` or send SIGHUP. All prices then count as checked today.\n\n" +
			feedHelp(),
		Example: "  llmguard prices update litellm\n" +
			"  llmguard prices update ./prices.csv --effective 2027-01-01 --yes --reason 'new contract'",
		RunE: func(c *cobra.Command, args []string) error {
			return updatePrices(c, &f, args[0])
		},
	}
	configFlag(c, &f.config)
	f.addFilter(c)
	addFrom(c, &f.from, "the feed format (default: detected)")
	c.Flags().StringVar(&f.effective, "effective", "",
		"date from which the changes apply (00:00 UTC; default: today)")
	c.Flags().BoolVar(&f.all, "all", false, "also add models that have no price yet")
	c.Flags().BoolVar(&f.yes, "yes", false, "apply without asking")
	c.Flags().StringVar(&f.reason, "reason", "", "the reason, one line, recorded in the audit")
	f.addOutput(c)
	return c
}

func updatePrices(c *cobra.Command, f *updateFlags, source string) error {
	from, err := f.effectiveDay(time.Now())
	if err != nil {
		return err
	}
	cfg, err := config.LoadOperator(f.config)
	if err != nil {
		return err
	}
	list, err := readPriceList(c.Context(), source, f.from, c.InOrStdin())
	if err != nil {
		return err
	}
	u, err := f.changes(cfg, list, from)
	if err != nil {
		return err
	}
	if f.output == "table" {
		fmt.Fprintf(c.ErrOrStderr(), "%s: models compared: %d; differ: %d\n", list.path, u.Compared, len(u.Changed))
	}
	err = render(c.OutOrStdout(), f.output, u.shown, func(w io.Writer) error {
		return differenceTable(w, u.shown, "now", "list")
	})
	if err != nil {
		return err
	}
	if u.Compared == 0 {
		return errors.New("the list has none of your priced models (add new models with --all)")
	}
	if cfg.PricesFile == "" {
		return fmt.Errorf("%s has no prices_file; add a line such as prices_file: prices.yaml", f.config)
	}
	if !f.yes && !confirmed(c, source,
		fmt.Sprintf("Write to %s, effective from %s?", cfg.PricesPath(), from.Format(time.DateOnly))) {
		return errors.New("nothing was written (--yes applies without asking)")
	}
	if err := u.apply(c.Context(), cfg, list.path, f.reason); err != nil {
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "wrote %s; apply it with `%s config reload`\n", cfg.PricesPath(), called())
	return nil
}

func (f *updateFlags) effectiveDay(now time.Time) (time.Time, error) {
	if f.effective == "" {
		return now.UTC().Truncate(24 * time.Hour), nil
	}
	day, err := time.Parse(time.DateOnly, f.effective)
	if err != nil {
		return day, misused("--effective %s: expected a date such as 2026-10-07", f.effective)
	}
	return day, nil
}

const (
	fetchTime = time.Minute
	maxList   = 64 << 20 // bytes; the largest published list is 2 MB
)

// readPriceList reads a list from a feed's default address, a URL or a file.
func readPriceList(ctx context.Context, source, from string, stdin io.Reader) (*priceFile, error) {
	if source == pricing.ModelsDev {
		return nil, misused("%s", removed.ModelsDev)
	}
	for _, form := range pricing.FeedForms() {
		if form.Name == source && strings.HasPrefix(form.Source, "https://") {
			source, from = form.Source, cmp.Or(from, form.Name)
			break
		}
	}
	u, err := url.Parse(source)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return readPriceFile(source, from, stdin)
	}
	if u.Scheme == "http" && !listen.PrivateHost(u.Host) {
		return nil, fmt.Errorf("%s: prices are not fetched over plain http; use https, or a file", source)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, source, nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Timeout: fetchTime}).Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s returned %s", source, resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxList))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return parsePrices(source, from, text)
}

// priceUpdate is the difference that a list makes.
type priceUpdate struct {
	*pricing.Update
	shown []shownDifference
}

// changes compares a list with the prices that it may change: the built-in ones and those in
// prices_file, but not the operator's own under prices.
func (f *updateFlags) changes(cfg *config.Config, list *priceFile, from time.Time) (*priceUpdate, error) {
	base, err := cfg.Catalogue()
	if err != nil {
		return nil, err
	}
	theirs := slices.DeleteFunc(slices.Clone(list.Feed.Entries), func(e pricing.Entry) bool {
		return !f.fits(e.Provider, e.Model)
	})
	changes, err := base.Update(theirs, from, time.Now().UTC().Truncate(24*time.Hour), f.all)
	if err != nil {
		return nil, err
	}
	u := &priceUpdate{changes, []shownDifference{}}
	for _, d := range u.Differences {
		u.shown = append(u.shown, shownDifference(d))
	}
	return u, nil
}

func confirmed(c *cobra.Command, source, question string) bool {
	if source == "-" {
		return false
	}
	fmt.Fprint(c.ErrOrStderr(), question+" [y/N] ")
	answer, _ := bufio.NewReader(c.InOrStdin()).ReadString('\n')
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

// apply writes prices_file and records the change in the audit. It contacts Redis first,
// because an unrecorded change would be worse than none.
func (u *priceUpdate) apply(ctx context.Context, cfg *config.Config, source, reason string) error {
	if !cfg.Redis.Configured() {
		return app.ErrNoStore
	}
	rdb, err := app.Connect(cfg.Redis)
	if err != nil {
		return err
	}
	defer rdb.Close()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis, for the audit: %w", err)
	}
	if err := u.write(cfg); err != nil {
		return err
	}
	after, err := json.Marshal(u.shown)
	if err != nil {
		return err
	}
	ids := tenants.New(rdb, tenants.Options{Log: slog.New(slog.DiscardHandler)})
	note := tenants.AuditEntry{
		At: time.Now().UTC(), Actor: "local:" + osUser(), Action: "prices.update", Target: source, Reason: reason,
		After: after,
	}
	if err := ids.Commit(ctx, note); err != nil {
		return fmt.Errorf("%s was written, but not recorded in the audit: %w", cfg.PricesPath(), err)
	}
	return nil
}

// write adds the changed entries to prices_file, before the existing ones.
func (u *priceUpdate) write(cfg *config.Config) error {
	kept, err := pricing.ParseEntries(cfg.ListedPrices)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "# Written by `llmguard prices update`. as_of is the date of the last comparison.\n"+
		"as_of: %s\n"+
		"models:\n",
		time.Now().UTC().Format(time.DateOnly))
	if err := pricing.WriteEntries(&text, u.Onto(kept)); err != nil {
		return err
	}
	written := strings.Replace(text.String(), "models:\n[]\n", "models: []\n", 1)
	path := cfg.PricesPath()
	next, err := os.CreateTemp(filepath.Dir(path), ".prices-*")
	if err != nil {
		return err
	}
	_, err = next.WriteString(written)
	err = errors.Join(err, next.Chmod(0o644), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		_ = os.Remove(next.Name())
	}
	return err
}
