package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

func pricesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "prices", Short: "What models cost: look prices up and compare them with other lists", Args: cobra.NoArgs,
		Long: "Token prices are in USD per 1M tokens, fees in USD per call. Only \"prices update\" fetches anything;\n" +
			"the other commands read price lists of other projects from files.",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(listPricesCommand(), showPriceCommand(), diffPricesCommand(), importPricesCommand(),
		verifyPricesCommand(), updatePricesCommand(), calibrationCommand())
	return c
}

// priceFlags are the flags that subcommands share. Each takes those it needs.
type priceFlags struct {
	config, provider, model, at, output string
}

func (f *priceFlags) addOutput(c *cobra.Command) {
	formatFlag(c, &f.output, listFormats...)
}

func (f *priceFlags) addConfig(c *cobra.Command) {
	c.Flags().StringVarP(&f.config, "config", "c", "", "a configuration whose own prices go before the built-in ones")
}

func (f *priceFlags) addFilter(c *cobra.Command) {
	c.Flags().StringVar(&f.provider, "provider", "", "only this provider")
	c.Flags().StringVar(&f.model, "model", "*", "only models whose name fits; * stands for any characters")
}

func (f *priceFlags) addTime(c *cobra.Command) {
	c.Flags().StringVar(&f.at, "at", "", "the prices of this date (00:00 UTC) or RFC 3339 time; default: now")
}

func (f *priceFlags) prices() (*app.Prices, error) {
	if f.config == "" {
		return app.ReadPrices(nil)
	}
	cfg, err := config.Load(f.config)
	if err != nil {
		return nil, err
	}
	return app.ReadPrices(cfg)
}

// when reads --at.
func (f *priceFlags) when() (time.Time, error) {
	if f.at == "" {
		return time.Now().UTC(), nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, f.at); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, misused("--at %s: expected a date such as 2026-10-07 or a time such as 2026-10-07T14:00:00Z", f.at)
}

// fits reports whether a provider's model passes the filter.
func (f *priceFlags) fits(provider, model string) bool {
	return (f.provider == "" || f.provider == provider) && providers.MatchAny([]string{f.model}, model)
}

// keep drops the entries that do not pass the filter. None left is an error
// that names what is near.
func (f *priceFlags) keep(list []pricing.Entry) ([]pricing.Entry, error) {
	kept := slices.DeleteFunc(slices.Clone(list), func(e pricing.Entry) bool { return !f.fits(e.Provider, e.Model) })
	if len(kept) > 0 {
		return kept, nil
	}
	if ids := providerIDs(list); f.provider != "" && !slices.Contains(ids, f.provider) {
		return nil, fmt.Errorf("no prices of provider %s; there are prices of %s", f.provider, strings.Join(ids, ", "))
	}
	return nil, fmt.Errorf("no model fits %s%s", f.model,
		didYouMean(strings.ReplaceAll(f.model, "*", ""), f.provider, list))
}

func providerIDs(list []pricing.Entry) []string {
	var ids []string
	for _, e := range list {
		if e.Provider != "" {
			ids = append(ids, e.Provider)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// explainUnknown words the error of a lookup for somebody at a terminal.
func explainUnknown(err error, p *app.Prices) error {
	var unknown *pricing.UnknownModelError
	if !errors.As(err, &unknown) {
		return err
	}
	model := unknown.Model
	switch {
	case len(unknown.Providers) > 0:
		return fmt.Errorf("%s is priced differently by %s; choose one with --provider", model,
			strings.Join(unknown.Providers, ", "))
	case !unknown.NotBefore.IsZero():
		return fmt.Errorf("the first known price of %s begins on %[2]s; see it with --at %[2]s", model,
			unknown.NotBefore.Format(time.DateOnly))
	}
	list := p.Catalogue.Entries()
	at := ""
	if unknown.Provider != "" {
		at = " at " + unknown.Provider
		if ids := pricedAt(model, list); len(ids) > 0 {
			return fmt.Errorf("no price for %s%s; it has one at %s", model, at, strings.Join(ids, ", "))
		}
	}
	return fmt.Errorf("no price for %s%s%s", model, at, didYouMean(model, unknown.Provider, list))
}

func pricedAt(model string, list []pricing.Entry) []string {
	return providerIDs(slices.DeleteFunc(slices.Clone(list), func(e pricing.Entry) bool {
		return e.Model != model && !slices.Contains(e.Names, model)
	}))
}
