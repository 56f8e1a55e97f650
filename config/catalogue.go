package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
)

// checkPriced refuses models that the file names but that have no price, because calls to them
// would be refused. Patterns are not checked, because it is not known which models match them.
func checkPriced(m *mistakes, cfg *Config) {
	if len(cfg.UnknownModelPrice.YAML) > 0 {
		return
	}
	catalogue, err := ownCatalogue(cfg)
	if err != nil {
		return // reported with the prices
	}
	for i, p := range cfg.Providers {
		at := element("providers", i)
		said := map[string]bool{} // report each model once
		check := func(path, model string) {
			var unknown *pricing.UnknownModelError
			_, err := catalogue.Lookup(p.ID, model, time.Now())
			if said[model] || m.broken(path) || strings.Contains(model, "*") || !errors.As(err, &unknown) ||
				!unknown.NotBefore.IsZero() {
				return
			}
			said[model] = true
			m.failAt(path, "%s", noPrice(catalogue, p.ID, model, unknown))
		}
		for j, model := range p.Models {
			if to, ok := p.ModelMap[model]; ok {
				model = to
			}
			check(element(at+".models", j), model)
		}
		for _, alias := range slices.Sorted(maps.Keys(p.ModelMap)) {
			check(join(at+".model_map", alias), p.ModelMap[alias])
		}
		for j, pool := range p.Pools {
			for k, model := range pool.Models {
				check(element(element(at+".pools", j)+".models", k), model)
			}
		}
	}
}

// Catalogue returns the prices of calls under this configuration except its own Prices: the
// built-in catalogue, overridden by PricesFile.
func (c *Config) Catalogue() (*pricing.Catalogue, error) {
	base, err := pricing.Embedded()
	if err != nil || len(c.ListedPrices) == 0 {
		return base, err
	}
	listed, err := base.WithList(c.ListedPrices)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.PricesPath(), err)
	}
	return listed, nil
}

// PricesPath returns the path of PricesFile.
func (c *Config) PricesPath() string {
	if c.PricesFile == "" || filepath.IsAbs(c.PricesFile) {
		return c.PricesFile
	}
	return filepath.Join(filepath.Dir(c.Name), c.PricesFile)
}

// readPrices reads PricesFile.
func readPrices(m *mistakes, cfg *Config) {
	if cfg.PricesFile == "" {
		return
	}
	var err error
	cfg.ListedPrices, err = os.ReadFile(cfg.PricesPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.failAt("prices_file", "%s", plain(err))
		return
	}
	if _, err := cfg.Catalogue(); err != nil {
		m.failAt("prices_file", "%s", plain(err))
		cfg.ListedPrices = nil
	}
	if len(cfg.ListedPrices) > 0 { // processes with other prices have another configuration
		cfg.Sum = sha256.Sum256(slices.Concat(cfg.Sum[:], cfg.ListedPrices))
	}
}

// ownCatalogue returns the prices of calls under this configuration.
func ownCatalogue(cfg *Config) (*pricing.Catalogue, error) {
	base, err := cfg.Catalogue()
	if err != nil {
		return nil, err
	}
	own, err := pricing.ParseEntries(cfg.Prices.YAML)
	if err != nil {
		return nil, err
	}
	return base.With(own)
}

func noPrice(c *pricing.Catalogue, provider, model string, unknown *pricing.UnknownModelError) string {
	if len(unknown.Providers) > 0 {
		return fmt.Sprintf("the price of %q depends on the provider: %s charge different prices. Add yours: prices: "+
			"[{model: %q, provider: %s, prices: [{input: 1, output: 2}]}], in USD per million tokens",
			model, strings.Join(unknown.Providers, ", "), model, provider)
	}
	hint := "; add its price"
	if near := settings.DidYouMean(model, pricing.ModelNames(c.Entries(), "")); near != "" {
		hint = near + " If not, add its price"
	}
	return fmt.Sprintf("no price is known for %q, so calls to it would be refused%s: prices: [{model: %q, prices: "+
		"[{input: 1, output: 2}]}], in USD per million tokens",
		model, hint, model)
}
