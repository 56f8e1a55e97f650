package cli

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/providers"
)

func pricesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "prices", Short: "Look up model prices and compare them with other lists", Args: cobra.NoArgs,
		Example: "  llmguard prices show gpt-5\n" +
			"  llmguard prices list --model 'gpt-5*'",
		Long: "Token prices are in USD per 1M tokens, fees in USD per call. Only `prices update` fetches lists;\n" +
			"the other commands read them from files.",
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(listPricesCommand(), showPriceCommand(), diffPricesCommand(), importPricesCommand(),
		verifyPricesCommand(), updatePricesCommand())
	return c
}

// priceFlags are the flags shared by subcommands. Each takes those it needs.
type priceFlags struct {
	config, provider, model, at, output string
}

func (f *priceFlags) addOutput(c *cobra.Command) {
	formatFlag(c, &f.output, listFormats...)
}

func (f *priceFlags) addConfig(c *cobra.Command) {
	c.Flags().StringVarP(&f.config, "config", "c", "", "configuration with prices that override the built-in ones")
}

func (f *priceFlags) addFilter(c *cobra.Command) {
	c.Flags().StringVar(&f.provider, "provider", "", "only this provider")
	c.Flags().StringVar(&f.model, "model", "*", "only models that match this pattern (* matches any characters)")
}

func (f *priceFlags) addTime(c *cobra.Command) {
	c.Flags().StringVar(&f.at, "at", "", "prices on this date (00:00 UTC) or at this RFC 3339 time (default: now)")
}

func (f *priceFlags) prices() (*app.Prices, error) {
	if f.config == "" {
		return app.ReadPrices(nil)
	}
	cfg, err := config.LoadOperator(f.config)
	if err != nil {
		return nil, err
	}
	return app.ReadPrices(cfg)
}

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

// fits reports whether a provider's model matches the filter.
func (f *priceFlags) fits(provider, model string) bool {
	return (f.provider == "" || f.provider == provider) && providers.MatchAny([]string{f.model}, model)
}

// keep drops the entries that do not match the filter. If none is left, the error suggests
// similar names.
func (f *priceFlags) keep(list []pricing.Entry) ([]pricing.Entry, error) {
	kept := slices.DeleteFunc(slices.Clone(list), func(e pricing.Entry) bool { return !f.fits(e.Provider, e.Model) })
	if len(kept) > 0 {
		return kept, nil
	}
	if ids := providerIDs(list); f.provider != "" && !slices.Contains(ids, f.provider) {
		return nil, fmt.Errorf("no prices for provider %s. Providers: %s", f.provider, strings.Join(ids, ", "))
	}
	return nil, fmt.Errorf("no model matches %s%s", f.model,
		didYouMean(strings.ReplaceAll(f.model, "*", ""), f.provider, list))
}

// didYouMean suggests model names similar to an unknown one, of one provider if given.
func didYouMean(model, provider string, list []pricing.Entry) string {
	near := settings.Near(model, pricing.ModelNames(list, provider))
	if len(near) == 0 {
		return "; list known models with `llmguard prices list`"
	}
	return "; did you mean " + strings.Join(near, ", ") + "?"
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

// explainUnknown rewrites the error for an unknown model for a user at a terminal.
func explainUnknown(err error, p *app.Prices) error {
	var unknown *pricing.UnknownModelError
	if !errors.As(err, &unknown) {
		return err
	}
	model := unknown.Model
	switch {
	case len(unknown.Providers) > 0:
		return fmt.Errorf("%s has different prices at %s; choose one with --provider", model,
			strings.Join(unknown.Providers, ", "))
	case !unknown.NotBefore.IsZero():
		return fmt.Errorf("the first known price of %s starts on %[2]s; show it with --at %[2]s", model,
			unknown.NotBefore.Format(time.DateOnly))
	}
	list := p.Catalogue.Entries()
	at := ""
	if unknown.Provider != "" {
		at = " at " + unknown.Provider
		if ids := pricedAt(model, list); len(ids) > 0 {
			return fmt.Errorf("no price for %s%s; there is one at %s", model, at, strings.Join(ids, ", "))
		}
	}
	return fmt.Errorf("no price for %s%s%s", model, at, didYouMean(model, unknown.Provider, list))
}

func pricedAt(model string, list []pricing.Entry) []string {
	return providerIDs(slices.DeleteFunc(slices.Clone(list), func(e pricing.Entry) bool {
		return e.Model != model && !slices.Contains(e.Names, model)
	}))
}

// showCalibration lists the models that match a pattern.
func showCalibration(c *cobra.Command, o *operated, a *adminClient) error {
	rows, err := list[calibration.Row](c.Context(), a, o.path())
	if err != nil {
		return err
	}
	pattern, _ := c.Flags().GetString("model")
	rows = slices.DeleteFunc(rows, func(r calibration.Row) bool {
		return !providers.MatchAny([]string{pattern}, r.Model)
	})
	if pattern != "*" {
		o.command.None += " for models that match " + pattern
	}
	return o.listed(c, reflect.ValueOf(rows))
}
