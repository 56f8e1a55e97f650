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
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/pricing"
)

// updateFlags are the flags of prices update.
type updateFlags struct {
	priceFlags
	from, effective, reason string
	all, yes                bool
}

func updatePricesCommand() *cobra.Command {
	var f updateFlags
	c := &cobra.Command{
		Use: "update FEED", Short: "Compare prices with a published list, and apply what changed", Args: cobra.ExactArgs(1),
		Long: "Reads a price list: a feed by its name below, a URL, a file, or - for standard input. Shows where it differs from\n" +
			"the prices in force, asks, and writes the changes to prices_file of the configuration, in force from --effective on.\n" +
			"Calls before that day keep their price. What the list does not state stays. The change is in the audit. Afterwards\n" +
			"`llmguard config reload` (or SIGHUP) puts it in force, and all prices count as checked today.\n\n" +
			feedHelp(),
		Example: "  llmguard prices update litellm\n" +
			"  llmguard prices update ./prices.csv --effective 2027-01-01 --yes --reason 'new contract'",
		RunE: func(c *cobra.Command, args []string) error {
			return updatePrices(c, &f, args[0])
		},
	}
	configFlag(c, &f.config)
	f.addFilter(c)
	addFrom(c, &f.from, "the feed the list is of; default: found from its content")
	c.Flags().StringVar(&f.effective, "effective", "",
		"the changes are in force from this date on (00:00 UTC); default: today")
	c.Flags().BoolVar(&f.all, "all", false, "add the models that have no price yet, too")
	c.Flags().BoolVar(&f.yes, "yes", false, "apply without asking")
	c.Flags().StringVar(&f.reason, "reason", "", "why; one line, kept in the audit")
	f.addOutput(c)
	return c
}

func updatePrices(c *cobra.Command, f *updateFlags, source string) error {
	from, err := f.effectiveDay(time.Now())
	if err != nil {
		return err
	}
	cfg, err := config.Load(f.config)
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
	if err := render(c.OutOrStdout(), f.output, u.shown, func(w io.Writer) error { return u.table(w) }); err != nil {
		return err
	}
	if u.Compared == 0 {
		return errors.New("the list has none of the models that have a price (--all adds models)")
	}
	if cfg.PricesFile == "" {
		return fmt.Errorf("%s has no prices_file to write to; add a line such as prices_file: prices.yaml", f.config)
	}
	if !f.yes && !confirmed(c, source,
		fmt.Sprintf("Write to %s, in force from %s?", cfg.PricesPath(), from.Format(time.DateOnly))) {
		return errors.New("nothing was written; --yes applies without asking")
	}
	if err := u.apply(c.Context(), cfg, list.path, f.reason); err != nil {
		return err
	}
	fmt.Fprintf(c.ErrOrStderr(), "wrote %s; `%s config reload` puts it in force\n", cfg.PricesPath(), called())
	return nil
}

// effectiveDay reads --effective.
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
	maxList   = 64 << 20 // bytes; the largest published list has 2 MB
)

// readPriceList reads a list from a feed's own place, a URL or a file.
func readPriceList(ctx context.Context, source, from string, stdin io.Reader) (*priceFile, error) {
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
		return nil, fmt.Errorf("%s answers %s", source, resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxList))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source, err)
	}
	return parsePrices(source, from, text)
}

// priceUpdate is what a list changes.
type priceUpdate struct {
	*pricing.Update
	shown []shownDifference
}

// changes compares a list with the prices that it may change: the built-in ones and those
// of prices_file, not the operator's own under prices.
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
		u.shown = append(u.shown, shownDifference{d.Provider, d.Model, d.Field, d.Old, d.New})
	}
	return u, nil
}

func (u *priceUpdate) table(w io.Writer) error {
	if len(u.shown) == 0 {
		return nil
	}
	g := grid{head: []string{"model", "provider", "what", "now", "list"}, numbers: []bool{false, false, false, true, true}}
	for _, d := range u.shown {
		g.add(d.Model, cmp.Or(d.Provider, "any"), cmp.Or(d.Field, "the model"), cmp.Or(d.Old, "-"), cmp.Or(d.New, "-"))
	}
	return g.write(w)
}

// confirmed asks at the terminal.
func confirmed(c *cobra.Command, source, question string) bool {
	if source == "-" {
		return false
	}
	fmt.Fprint(c.ErrOrStderr(), question+" [y/N] ")
	answer, _ := bufio.NewReader(c.InOrStdin()).ReadString('\n')
	return slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer)))
}

// apply writes prices_file and notes it in the audit. Redis is asked first: a change
// without a note would be worse than none.
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
		At: time.Now().UTC(), Actor: "local:" + (&who{}).name(), Action: "prices.update", Target: source, Reason: reason,
		After: after,
	}
	if err := ids.Commit(ctx, note); err != nil {
		return fmt.Errorf("%s is written, and the audit has no entry of it: %w", cfg.PricesPath(), err)
	}
	return nil
}

// write puts the changed entries into prices_file, before those that are there.
func (u *priceUpdate) write(cfg *config.Config) error {
	kept, err := pricing.ParseEntries(cfg.ListedPrices)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "# Written by `llmguard prices update`. All prices were last compared on the day in as_of.\n"+
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
