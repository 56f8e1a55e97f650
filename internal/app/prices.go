package app

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/pricing"
)

// Prices are the prices of a configuration.
type Prices struct {
	// Catalogue is the built-in one, with the operator's entries, Own, taking
	// precedence.
	Catalogue *pricing.Catalogue
	Own       []pricing.Entry
	// Unknown is the price of models that the catalogue does not know; nil if they are
	// refused.
	Unknown *pricing.Entry
}

// ReadPrices reads the prices of a configuration. A nil configuration has only the built-in
// ones.
func ReadPrices(c *config.Config) (*Prices, error) {
	if c == nil {
		c = &config.Config{}
	}
	base, err := c.Catalogue()
	if err != nil {
		return nil, fmt.Errorf("the price catalogue: %w", err)
	}
	p := &Prices{Catalogue: base}
	p.Own, err = pricing.ParseEntries(c.Prices.YAML)
	if err == nil {
		p.Catalogue, err = base.With(p.Own)
	}
	if err != nil {
		return nil, fmt.Errorf("%s:%d: prices: %w", c.Name, c.Prices.Line, err)
	}
	p.Unknown, err = c.UnknownModelEntry()
	if err != nil {
		return nil, fmt.Errorf("%s:%d: unknown_model_price: %w", c.Name, c.UnknownModelPrice.Line, err)
	}
	return p, nil
}

// warnOldPrices logs a warning if prices have not been verified for long: providers change
// them without notice, and a hold is only as accurate as its price.
func warnOldPrices(c *pricing.Catalogue, now time.Time, log *slog.Logger) {
	if age := c.Age(now); age > diagnose.OldPrices {
		log.Warn("prices are old, update llmguard or run `llmguard prices update litellm`",
			"oldest", c.AsOf().Format(time.DateOnly), "days", int(age/(24*time.Hour)))
	}
}
