package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/pricing"
)

func listPricesCommand() *cobra.Command {
	var f priceFlags
	c := &cobra.Command{
		Use: "list", Short: "List prices in force", Args: cobra.NoArgs,
		Long: "Lists model prices at the default service tier. \"long context\" is the input size above which a request costs more. \"batch\"\n" +
			"is the price factor of the provider's own batch API. `llmguard prices show` has the details. With --config the list\n" +
			"includes the configuration's prices, marked \"config\".",
		Example: "  llmguard prices list --provider openai --model 'gpt-5*'\n  llmguard prices list -c llmguard.yaml -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			return listPrices(f, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f.addFilter(c)
	f.addTime(c)
	f.addConfig(c)
	f.addOutput(c)
	return c
}

// listedPrice is one line of the list. Prices are decimals, USD per 1M tokens.
type listedPrice struct {
	Model       string  `json:"model" col:"model"`
	Provider    string  `json:"provider" col:"provider;;any"` // empty: any provider
	Input       string  `json:"input" col:"input;number"`
	CachedInput string  `json:"cached_input" col:"cached;number"`
	Output      string  `json:"output" col:"output;number"`
	ContextOver []int64 `json:"context_over,omitempty" col:"long context;over;-"`
	Batch       string  `json:"batch,omitempty" col:"batch;factor;-"`
	MaxOutput   int64   `json:"max_output,omitempty" col:"max output;;-"`
	AsOf        string  `json:"as_of,omitempty"`
	Source      string  `json:"source" col:"source"`
}

func listPrices(f priceFlags, stdout, stderr io.Writer) error {
	at, err := f.when()
	if err != nil {
		return err
	}
	prices, err := f.prices()
	if err != nil {
		return err
	}
	list, err := f.list(prices, at)
	if err != nil {
		return err
	}
	if f.output == "table" {
		c := prices.Catalogue
		fmt.Fprintf(stderr, "models: %d, USD per 1M tokens at %s; catalogue %s, its oldest price checked on %s\n",
			len(list), figures.Minute(at), c.Version(), c.AsOf().Format(time.DateOnly))
	}
	return render(stdout, f.output, list, func(w io.Writer) error { return tableOf(w, list, nil) })
}

// list returns the prices in effect that match the filter, by provider and model. The price of
// unknown models comes first, as model *.
func (f *priceFlags) list(prices *app.Prices, at time.Time) ([]listedPrice, error) {
	entries, err := f.keep(prices.Catalogue.Entries())
	if err != nil {
		return nil, err
	}
	list := make([]listedPrice, 0, len(entries)+1)
	for _, e := range entries {
		// Look the model up, because an operator's entry may take precedence over e.
		if p, err := prices.Catalogue.Lookup(e.Provider, e.Model, at); err == nil {
			list = append(list, describePrice(prices, e, p, at))
		}
	}
	if u := prices.Unknown; u != nil && f.fits("", "*") {
		if p, err := u.Price(at); err == nil {
			list = append(list, describePrice(prices, pricing.Entry{Model: "*"}, p, at))
		}
	}
	slices.SortFunc(list, func(a, b listedPrice) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Model, b.Model))
	})
	return list, nil
}

// source returns where a price comes from. Entries are copied by value but share their rows, so
// the address of the rows distinguishes an operator's entry from the built-in one of the same
// name.
func source(p *app.Prices, price *pricing.Price) string {
	rows := &price.Entry().Prices[0]
	switch {
	case slices.ContainsFunc(p.Own, func(e pricing.Entry) bool { return &e.Prices[0] == rows }):
		return "config"
	case p.Unknown != nil && &p.Unknown.Prices[0] == rows:
		return "unknown_model_price"
	}
	return "built-in"
}

func describePrice(prices *app.Prices, e pricing.Entry, p *pricing.Price, at time.Time) listedPrice {
	winner := p.Entry()
	l := listedPrice{
		Model: e.Model, Provider: e.Provider, MaxOutput: p.MaxOutput, Source: source(prices, p),
		Input:       perMillion(p, pricing.Usage{Input: 1000}),
		CachedInput: perMillion(p, pricing.Usage{Input: 1000, CachedInput: 1000}),
		Output:      perMillion(p, pricing.Usage{Output: 1000}),
	}
	if !winner.AsOf.IsZero() {
		l.AsOf = winner.AsOf.Format(time.DateOnly)
	}
	for _, r := range winner.InForce(at) {
		if r.ContextOver > 0 && !slices.Contains(l.ContextOver, r.ContextOver) {
			l.ContextOver = append(l.ContextOver, r.ContextOver)
		}
	}
	slices.Sort(l.ContextOver)
	for _, m := range winner.Multipliers {
		if m.Batch && m.ServiceTier == "" && m.Region == "" && len(m.UTCHours) == 0 {
			l.Batch = m.Times.String()
		}
	}
	return l
}

// perMillion returns the price in USD per 1M tokens. It is derived from the charge for 1000
// tokens, so that it includes what applies at this hour.
func perMillion(p *pricing.Price, thousand pricing.Usage) string {
	n, err := p.Charge(thousand, pricing.Terms{})
	if err != nil {
		return "?"
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%06d", n/1_000_000, n%1_000_000), "0"), ".")
}
