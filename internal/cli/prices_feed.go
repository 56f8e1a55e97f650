package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/removed"
	"github.com/llmguard/llmguard/pricing"
)

func feedNames() []string {
	var names []string
	for _, f := range pricing.FeedForms() {
		names = append(names, f.Name)
	}
	return names
}

func feedHelp() string {
	var b strings.Builder
	b.WriteString("Feeds:\n")
	for _, f := range pricing.FeedForms() {
		fmt.Fprintf(&b, "  %-13s %s\n", f.Name, f.Source)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

type priceFile struct {
	path string
	*pricing.List
}

// readPriceFile reads a feed or a YAML file in our own format. An empty from detects the
// format.
func readPriceFile(path, from string, stdin io.Reader) (*priceFile, error) {
	name, in, err := opened(path, stdin)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	return parsePrices(name, from, text)
}

// parsePrices parses a price list; path is for errors.
func parsePrices(path, from string, text []byte) (*priceFile, error) {
	switch {
	case from == pricing.ModelsDev:
		return nil, misused("--from: %s", removed.ModelsDev)
	case from == "" && pricing.DetectForm(text) == pricing.ModelsDev:
		return nil, fmt.Errorf("%s: %s", path, removed.ModelsDev)
	case from != "" && from != pricing.OwnForm && !slices.Contains(feedNames(), from):
		return nil, misused("--from %s: no such feed; expected %s", from, strings.Join(feedNames(), ", "))
	}
	list, err := pricing.ReadList(text, from)
	if err != nil {
		hint := ""
		looks := pricing.DetectForm(text)
		if from != "" && from != pricing.OwnForm && looks != from && slices.Contains(feedNames(), looks) &&
			!errors.Is(err, pricing.ErrNotText) {
			hint = fmt.Sprintf(" (it looks like a file of %s: --from %s)", looks, looks)
		}
		return nil, fmt.Errorf("%s: %s%s", path, strings.TrimPrefix(err.Error(), "pricing: "), hint)
	}
	if list.Feed.Name == "" { // our own format
		list.Feed.Name = filepath.Base(path)
	}
	return &priceFile{path, list}, nil
}

// opened opens a file, or standard input for "-", and returns its name for messages.
func opened(path string, stdin io.Reader) (name string, in io.ReadCloser, err error) {
	if path == "-" {
		return "standard input", io.NopCloser(stdin), nil
	}
	in, err = os.Open(path)
	return path, in, err
}

func addFrom(c *cobra.Command, from *string, text string) {
	c.Flags().StringVar(from, "from", "", text)
	_ = c.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(feedNames(), cobra.ShellCompDirectiveNoFileComp))
}

func importPricesCommand() *cobra.Command {
	var f priceFlags
	var from, asOf string
	c := &cobra.Command{
		Use: "import --from FEED FILE", Short: "Convert a price list of another project for the configuration",
		Args: cobra.ExactArgs(1),
		Long: "Reads a file (- is standard input) and writes its prices as YAML, to go under prices in the configuration.\n" +
			"Entries that cannot be converted are listed on standard error. Check the result: a feed may contain errors.\n\n" +
			feedHelp(),
		Example: "  llmguard prices import --from litellm litellm.json --provider openai --model 'gpt-6*' > more.yaml",
		RunE: func(c *cobra.Command, args []string) error {
			return importPrices(c, f, from, asOf, args[0])
		},
	}
	f.addFilter(c)
	addFrom(c, &from, "the feed format: "+strings.Join(feedNames(), ", "))
	c.Flags().StringVar(&asOf, "as-of", "", "date of the list (default: when the file was last changed)")
	return c
}

func importPrices(c *cobra.Command, f priceFlags, from, asOf, path string) error {
	if from == "" {
		return misused("--from is required: %s", strings.Join(feedNames(), ", "))
	}
	if from == pricing.OwnForm {
		return misused("--from yaml: a YAML file needs no import")
	}
	file, err := readPriceFile(path, from, c.InOrStdin())
	if err != nil {
		return err
	}
	date, err := listDate(asOf, path)
	if err != nil {
		return err
	}
	entries, err := f.keep(file.Feed.Entries)
	if err != nil {
		return err
	}
	for i := range entries {
		if entries[i].AsOf.IsZero() {
			entries[i].AsOf = date
		}
	}
	notes := 0
	for _, n := range file.Feed.Notes {
		if f.fits(n.Provider, n.Model) {
			fmt.Fprintf(c.ErrOrStderr(), "%s %s: %s\n", n.Provider, n.Model, n.Text)
			notes++
		}
	}
	fmt.Fprintf(c.ErrOrStderr(), "prices: %d, notes: %d\n", len(entries), notes)
	return pricing.WriteEntries(c.OutOrStdout(), entries)
}

// listDate returns the date as of which the list is valid.
func listDate(asOf, path string) (time.Time, error) {
	if asOf != "" {
		t, err := time.Parse(time.DateOnly, asOf)
		if err != nil {
			return t, misused("--as-of %s: expected a date such as 2026-10-07", asOf)
		}
		if t.After(time.Now()) {
			return t, misused("--as-of %s: this date is in the future (UTC)", asOf)
		}
		return t, nil
	}
	changed := time.Now()
	if info, err := os.Stat(path); err == nil && path != "-" {
		changed = info.ModTime()
	}
	return changed.UTC().Truncate(24 * time.Hour), nil
}
