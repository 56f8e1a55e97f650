package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/pricing"
)

// feeds are the price lists of other projects that can be read.
var feeds = []struct {
	name   string
	read   func(io.Reader) (*pricing.Feed, error)
	source string // where `prices update` gets it, if it is a URL
}{
	{"genai-prices", pricing.ImportGenAI, "https://raw.githubusercontent.com/pydantic/genai-prices/main/prices/data.json"},
	{"litellm", pricing.ImportLiteLLM, "https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json"},
	{"models.dev", pricing.ImportModelsDev, "https://models.dev/api.json"},
	{"csv", pricing.ImportCSV, "your own: model,provider,input,output,... (docs/prices.md)"},
}

// ownForm is what a file in the form of the configuration's prices is called.
const ownForm = "yaml"

func feedNames() []string {
	var names []string
	for _, f := range feeds {
		names = append(names, f.name)
	}
	return names
}

func feedHelp() string {
	var b strings.Builder
	b.WriteString("Feeds:\n")
	for _, f := range feeds {
		fmt.Fprintf(&b, "  %-13s %s\n", f.name, f.source)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// priceFile is a price list read from a file.
type priceFile struct {
	path string
	feed *pricing.Feed
	// whole is set for a catalogue file of our own: what it lacks is gone.
	whole *pricing.Catalogue
}

// readPriceFile reads a feed or a YAML file of our own form. from may be empty:
// the content tells.
func readPriceFile(path, from string, stdin io.Reader) (*priceFile, error) {
	text, err := readAll(path, stdin)
	if err != nil {
		return nil, err
	}
	if path == "-" {
		path = "standard input"
	}
	return parsePrices(path, from, text)
}

// parsePrices reads a price list; path names it in errors.
func parsePrices(path, from string, text []byte) (*priceFile, error) {
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return nil, fmt.Errorf("%s: not a text file", path)
	}
	looks := detectFeed(text)
	if from = cmp.Or(from, looks); from == ownForm {
		return readOwnForm(path, text)
	}
	i := slices.Index(feedNames(), from)
	if i < 0 {
		return nil, misused("--from %s: no such feed; expected %s", from, strings.Join(feedNames(), ", "))
	}
	feed, err := feeds[i].read(bytes.NewReader(text))
	if err == nil && len(feed.Entries) == 0 {
		err = fmt.Errorf("no prices in it; is it a file of %s?", from)
	}
	if err != nil {
		hint := ""
		if looks != from && looks != ownForm {
			hint = fmt.Sprintf(" (it looks like a file of %s: --from %s)", looks, looks)
		}
		return nil, fmt.Errorf("%s: %s%s", path, strings.TrimPrefix(err.Error(), "pricing: "), hint)
	}
	return &priceFile{path: path, feed: feed}, nil
}

func readAll(path string, stdin io.Reader) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(path)
}

// detectFeed tells the feeds apart by their outermost structure; what is no JSON
// of theirs is taken for YAML of ours.
func detectFeed(text []byte) string {
	var list []struct {
		Model string `json:"model"`
	}
	switch err := json.Unmarshal(text, &list); {
	case err == nil && len(list) > 0 && list[0].Model != "":
		return ownForm
	case err == nil:
		return "genai-prices"
	}
	if first, _, _ := strings.Cut(string(text), "\n"); strings.Contains(first, ",") && slices.Contains(strings.Split(strings.TrimSpace(first), ","), "model") {
		return "csv"
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) != nil {
		return ownForm
	}
	for _, raw := range object {
		var v struct {
			Models   json.RawMessage `json:"models"`
			Provider json.RawMessage `json:"litellm_provider"`
		}
		switch err := json.Unmarshal(raw, &v); {
		case err != nil:
		case v.Models != nil:
			return "models.dev"
		case v.Provider != nil:
			return "litellm"
		}
	}
	return ownForm
}

// readOwnForm reads a catalogue file, or a list of entries as under prices in
// the configuration.
func readOwnForm(path string, text []byte) (*priceFile, error) {
	base, err := pricing.Embedded()
	if err != nil {
		return nil, err
	}
	f := &priceFile{path: path, feed: &pricing.Feed{Name: filepath.Base(path)}}
	var list []pricing.Entry
	if list, err = pricing.ParseEntries(text); err == nil {
		if f.whole, err = pricing.Parse(text); err == nil {
			f.feed.Entries = f.whole.Entries()
		} else if base, err = base.With(list); err == nil {
			f.feed.Entries = base.Entries()[:len(list)] // with shared multipliers written out
		}
	}
	if err == nil && len(list) == 0 {
		err = errors.New("no prices in it")
	}
	if fault := pricing.CheckJSON(text); err != nil && fault != nil && looksJSON(text) {
		err = fault
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "pricing: "))
	}
	return f, nil
}

// looksJSON tells a feed that broke off from YAML.
func looksJSON(text []byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n[")
	return len(text) > 1 && text[0] == '{' && bytes.HasPrefix(bytes.TrimLeft(text[1:], " \t\r\n"), []byte{'"'})
}

func addFrom(c *cobra.Command, from *string, text string) {
	c.Flags().StringVar(from, "from", "", text)
	_ = c.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(feedNames(), cobra.ShellCompDirectiveNoFileComp))
}

func importPricesCommand() *cobra.Command {
	var f priceFlags
	var from, asOf string
	c := &cobra.Command{
		Use: "import --from FEED FILE", Short: "Turn another project's price list into entries for the configuration", Args: cobra.ExactArgs(1),
		Long: "Reads a file (- is standard input) and writes its prices as YAML, to go under prices in the configuration.\n" +
			"What could not be taken over goes to standard error. Read the result: a feed may be wrong.\n\n" + feedHelp(),
		Example: "  llmguard prices import --from models.dev api.json --provider mistral --model 'mistral-large*' > mistral.yaml",
		RunE: func(c *cobra.Command, args []string) error {
			return importPrices(c, f, from, asOf, args[0])
		},
	}
	f.addFilter(c)
	addFrom(c, &from, "the feed the file is of: "+strings.Join(feedNames(), ", "))
	c.Flags().StringVar(&asOf, "as-of", "", "the date of the list; default: when the file was last changed")
	return c
}

func importPrices(c *cobra.Command, f priceFlags, from, asOf, path string) error {
	if from == "" {
		return misused("--from is needed: %s", strings.Join(feedNames(), ", "))
	}
	if from == ownForm {
		return misused("--from yaml: such a file needs no import")
	}
	file, err := readPriceFile(path, from, c.InOrStdin())
	if err != nil {
		return err
	}
	date, err := listDate(asOf, path)
	if err != nil {
		return err
	}
	entries, err := f.keep(file.feed.Entries)
	if err != nil {
		return err
	}
	for i := range entries {
		if entries[i].AsOf.IsZero() {
			entries[i].AsOf = date
		}
	}
	notes := 0
	for _, n := range file.feed.Notes {
		if f.fits(n.Provider, n.Model) {
			fmt.Fprintf(c.ErrOrStderr(), "%s %s: %s\n", n.Provider, n.Model, n.Text)
			notes++
		}
	}
	fmt.Fprintf(c.ErrOrStderr(), "prices: %d, notes: %d\n", len(entries), notes)
	return pricing.WriteEntries(c.OutOrStdout(), entries)
}

// listDate is the day for which a list vouches.
func listDate(asOf, path string) (time.Time, error) {
	if asOf != "" {
		t, err := time.Parse(time.DateOnly, asOf)
		if err != nil {
			return t, misused("--as-of %s: expected a date such as 2026-10-07", asOf)
		}
		if t.After(time.Now()) {
			return t, misused("--as-of %s: this day has not begun (UTC), so nobody can have checked prices on it", asOf)
		}
		return t, nil
	}
	changed := time.Now()
	if info, err := os.Stat(path); err == nil && path != "-" {
		changed = info.ModTime()
	}
	return changed.UTC().Truncate(24 * time.Hour), nil
}
