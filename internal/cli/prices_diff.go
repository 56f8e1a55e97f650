package cli

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/pricing"
)

func diffPricesCommand() *cobra.Command {
	var f priceFlags
	var from string
	var all bool
	c := &cobra.Command{
		Use: "diff FILE", Short: "Compare a price list with the built-in catalogue", Args: cobra.ExactArgs(1),
		Example: "  llmguard prices diff litellm.json\n" +
			"  llmguard prices diff litellm.json --all",
		Long: "Lists the differences between a file (- for standard input) and the built-in catalogue. The file is a feed, or YAML:\n" +
			"either entries as under prices in the configuration, compared as overrides, or a whole catalogue. For a feed, current\n" +
			"prices of models that both lists have are compared, and only values that the feed contains; --all shows the rest. The exit\n" +
			"code is 0 whether or not there are differences.\n\n" +
			feedHelp(),
		RunE: func(c *cobra.Command, args []string) error {
			return diffPrices(c, f, from, all, args[0])
		},
	}
	f.addFilter(c)
	f.addTime(c)
	addFrom(c, &from, "the feed format (default: detected)")
	c.Flags().BoolVar(&all, "all", false, "also show prices that only one of the two has")
	f.addOutput(c)
	return c
}

// shownDifference is a line of diff; an empty field means the whole model.
type shownDifference struct {
	Provider string `json:"provider" col:"provider;;any"`
	Model    string `json:"model" col:"model"`
	Field    string `json:"field,omitempty" col:"price;;the model"`
	Old      string `json:"built_in,omitempty" col:"built-in;number;-"`
	New      string `json:"file,omitempty" col:"file;number;-"`
}

func diffPrices(c *cobra.Command, f priceFlags, from string, all bool, path string) error {
	at, err := f.when()
	if err != nil {
		return err
	}
	file, err := readPriceFile(path, from, c.InOrStdin())
	if err != nil {
		return err
	}
	old, fresh, partial, err := file.Against(at)
	if err != nil {
		return err
	}
	list, hidden := []shownDifference{}, 0
	for _, d := range pricing.Diff(old, fresh) {
		switch {
		case !f.fits(d.Provider, d.Model):
		case partial && !all && d.OneSided():
			hidden++
		default:
			list = append(list, shownDifference(d))
		}
	}
	if f.output == "table" {
		fmt.Fprintf(c.ErrOrStderr(),
			"differences from the built-in catalogue: %d; in only one of the two (use --all to show): %d\n",
			len(list), hidden)
	}
	return render(c.OutOrStdout(), f.output, list, func(w io.Writer) error {
		return differenceTable(w, list, "built-in", "file")
	})
}

// differenceTable prints differences between two lists; no table if there are none.
func differenceTable(w io.Writer, list []shownDifference, before, after string) error {
	if len(list) == 0 {
		return nil
	}
	return tableOf(w, list, columnsOf(reflect.TypeFor[shownDifference](), "model", "provider", "price",
		"built_in:"+before+";number;-", "file:"+after+";number;-"))
}

func verifyPricesCommand() *cobra.Command {
	var f priceFlags
	c := &cobra.Command{
		Use: "verify FILE...", Short: "Check price lists against the prices in force and each other",
		Args: cobra.MinimumNArgs(1),
		Long: "Compares the prices in force (with --config including the configuration's) with those in the files (- for standard input),\n" +
			"for the same provider and model: input, cached input, cache write and output, and the same above the largest context\n" +
			"threshold. The feed format is detected. Prices that only one list has are not differences.\n\n" +
			"The exit code is 0 if all agree, and 1 if they differ or cannot be compared or read.\n\n" +
			feedHelp(),
		Example: "  llmguard prices verify litellm.json genai-prices.json || echo 'check the prices'",
		RunE: func(c *cobra.Command, args []string) error {
			return verifyPrices(f, args, c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.addFilter(c)
	f.addTime(c)
	f.addConfig(c)
	f.addOutput(c)
	return c
}

type shownDisagreement struct {
	Provider string        `json:"provider" col:"provider;;any"`
	Model    string        `json:"model" col:"model"`
	Field    string        `json:"field" col:"price"`
	Values   []sourcedText `json:"values"`
}

type sourcedText struct {
	Source string `json:"source"`
	Price  string `json:"price"`
}

func verifyPrices(f priceFlags, paths []string, stdin io.Reader, stdout, stderr io.Writer) error {
	at, err := f.when()
	if err != nil {
		return err
	}
	prices, err := f.prices()
	if err != nil {
		return err
	}
	if _, err := f.keep(prices.Catalogue.Entries()); err != nil {
		return err
	}
	lists, err := readFeeds(paths, stdin)
	if err != nil {
		return err
	}
	if err := f.countShared(prices, at, lists, stderr); err != nil {
		return err
	}
	found, err := pricing.Verify(prices.Catalogue, at, lists...)
	if err != nil {
		return err
	}
	list := []shownDisagreement{}
	for _, d := range found {
		if !f.fits(d.Provider, d.Model) {
			continue
		}
		s := shownDisagreement{Provider: d.Provider, Model: d.Model, Field: d.Field}
		for _, v := range d.Values {
			s.Values = append(s.Values, sourcedText(v))
		}
		list = append(list, s)
	}
	err = render(stdout, f.output, list, func(w io.Writer) error { return verifyTable(w, lists, list) })
	if err == nil && len(list) > 0 {
		err = fmt.Errorf("price lists disagree: %s", plural(len(list), "difference"))
	}
	return err
}

// readFeeds reads files and gives them distinct names.
func readFeeds(paths []string, stdin io.Reader) ([]*pricing.Feed, error) {
	var lists []*pricing.Feed
	for _, path := range paths {
		file, err := readPriceFile(path, "", stdin)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(lists, func(f *pricing.Feed) bool { return f.Name == file.Feed.Name }) {
			file.Feed.Name = path
		}
		lists = append(lists, file.Feed)
	}
	return lists, nil
}

// countShared prints how many models each list has in common with ours.
func (f *priceFlags) countShared(prices *app.Prices, at time.Time, lists []*pricing.Feed, stderr io.Writer) error {
	total := 0
	for _, feed := range lists {
		shared, err := feed.Shared(prices.Catalogue, at, f.fits)
		if err != nil {
			return err
		}
		fmt.Fprintf(stderr, "%s: models %d, compared %d\n", feed.Name, len(feed.Entries), shared)
		total += shared
	}
	if total == 0 {
		return errors.New("nothing to compare: the files contain none of these models")
	}
	return nil
}

var verifyColumns = columnsOf(reflect.TypeFor[shownDisagreement](), "model", "provider", "price")

func verifyTable(w io.Writer, lists []*pricing.Feed, list []shownDisagreement) error {
	if len(list) == 0 {
		return nil
	}
	sources := []string{"catalogue"}
	for _, f := range lists {
		sources = append(sources, f.Name)
	}
	g := gridOf(w, list, verifyColumns)
	for _, s := range sources {
		g.head, g.numbers = append(g.head, s), append(g.numbers, true)
		for i, d := range list {
			price := "-"
			if at := slices.IndexFunc(d.Values, func(v sourcedText) bool { return v.Source == s }); at >= 0 {
				price = d.Values[at].Price
			}
			g.rows[i] = append(g.rows[i], price)
		}
	}
	return g.write(w)
}
