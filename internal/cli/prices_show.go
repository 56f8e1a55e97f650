package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/pricing"
)

func showPriceCommand() *cobra.Command {
	var f priceFlags
	var q question
	c := &cobra.Command{
		Use: "show MODEL", Short: "Show all prices of a model, and the cost of a call", Args: cobra.ExactArgs(1),
		Long: "Shows all prices of a model: dates, context sizes, service tiers, hours, multipliers. With token counts, it also\n" +
			"calculates the cost of such a call and the amount reserved for it.",
		Example: "  llmguard prices show gpt-5 --input-tokens 20000 --cached 8000 --output-tokens 1000 --tier flex",
		RunE: func(c *cobra.Command, args []string) error {
			return showPrice(f, q, args[0], c.OutOrStdout())
		},
		ValidArgsFunction: completeModels,
	}
	fl := c.Flags()
	fl.StringVar(&f.provider, "provider", "", "provider, if several have different prices")
	f.addTime(c)
	f.addConfig(c)
	f.addOutput(c)
	fl.Var((*count)(&q.usage.Input), "input-tokens", "input tokens, including cached ones")
	fl.Var((*count)(&q.usage.CachedInput), "cached", "input tokens read from the provider's cache")
	fl.Var((*count)(&q.usage.CacheWrite), "cache-write", "input tokens written to the provider's cache")
	fl.Var((*count)(&q.usage.CacheWrite1h), "cache-write-1h", "input tokens written to the provider's cache for an hour")
	fl.Var((*count)(&q.usage.Output), "output-tokens", "output tokens, including reasoning")
	fl.Var((*count)(&q.usage.ToolCalls), "tool-calls", "number of built-in tool calls that have a fee")
	fl.StringVar(&q.terms.ServiceTier, "tier", "", "service tier of the call")
	fl.StringVar(&q.terms.Region, "region", "", "region or data residency")
	fl.BoolVar(&q.terms.Batch, "batch", false, "sent through the provider's own batch API")
	return c
}

func completeModels(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	c, err := pricing.Embedded()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, e := range c.Entries() {
		names = append(names, e.Model)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// count is a flag for a number of tokens or calls.
type count int64

func (n *count) String() string { return strconv.FormatInt(int64(*n), 10) }
func (*count) Type() string     { return "N" }

// Set implements pflag.Value.
func (n *count) Set(text string) error {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < 0 || v > pricing.MaxCount {
		return fmt.Errorf("expected a number from 0 to %d", pricing.MaxCount)
	}
	*n = count(v)
	return nil
}

type question struct {
	usage pricing.Usage
	terms pricing.Terms
}

func (q question) asked() bool {
	u := q.usage
	return u.Input > 0 || u.Output > 0 || u.ToolCalls > 0
}

func (q question) check() error {
	u, t := q.usage, q.terms
	switch {
	case u.CachedInput+u.CacheWrite+u.CacheWrite1h > u.Input:
		return misused("--cached, --cache-write and --cache-write-1h together exceed --input-tokens, which includes them")
	case !q.asked() && (t.ServiceTier != "" || t.Region != "" || t.Batch):
		return misused("--tier, --region and --batch describe a call; set its size with --input-tokens and " +
			"--output-tokens")
	case t.Batch && t.ServiceTier != "":
		return misused("--batch and --tier cannot be combined: the batch API has no service tiers")
	}
	return nil
}

func showPrice(f priceFlags, q question, model string, stdout io.Writer) error {
	if err := q.check(); err != nil {
		return err
	}
	at, err := f.when()
	if err != nil {
		return err
	}
	prices, err := f.prices()
	if err != nil {
		return err
	}
	p, err := findPrice(prices, f.provider, model, at)
	if err != nil {
		return err
	}
	s := newShownPrice(prices, p, at)
	s.Asked, s.AskedProvider = model, f.provider
	if q.asked() {
		s.Call, err = newShownCall(p, q, at)
		if err != nil {
			return err
		}
	}
	return render(stdout, f.output, s, s.write)
}

// findPrice looks a model up as a call would.
func findPrice(prices *app.Prices, provider, model string, at time.Time) (*pricing.Price, error) {
	p, err := prices.Catalogue.Lookup(provider, model, at)
	unknown, ok := errors.AsType[*pricing.UnknownModelError](err)
	if ok && prices.Unknown != nil && len(unknown.Providers) == 0 && unknown.NotBefore.IsZero() {
		return prices.Unknown.Price(at)
	}
	if err != nil {
		return nil, explainUnknown(err, prices)
	}
	return p, nil
}

type shownPrice struct {
	Model         string            `json:"model"`
	Provider      string            `json:"provider"` // empty: any provider
	Asked         string            `json:"asked"`
	AskedProvider string            `json:"asked_provider,omitempty"`
	Source        string            `json:"source"`
	Catalogue     string            `json:"catalogue"`
	At            string            `json:"at"`
	AsOf          string            `json:"as_of,omitempty"`
	Names         []string          `json:"names,omitempty"`
	Prefixes      []string          `json:"prefixes,omitempty"`
	Context       int64             `json:"context,omitempty"`
	MaxOutput     int64             `json:"max_output,omitempty"`
	Note          string            `json:"note,omitempty"`
	Prices        []shownRow        `json:"prices"`
	Multipliers   []shownMultiplier `json:"multipliers,omitempty"`
	Call          *shownCall        `json:"call,omitempty"`
}

// conditions are the conditions of a row or a multiplier.
type conditions struct {
	EffectiveFrom string   `json:"effective_from,omitempty"`
	ServiceTier   string   `json:"service_tier,omitempty"`
	Region        string   `json:"region,omitempty"`
	UTCHours      []string `json:"utc_hours,omitempty"`
	ContextOver   int64    `json:"context_over,omitempty"`
	Batch         bool     `json:"batch,omitempty"`
}

type shownRow struct {
	conditions
	// InForce reports whether the dates apply; the other conditions depend on the call.
	InForce bool              `json:"in_force"`
	Rates   map[string]string `json:"rates"`
}

type shownMultiplier struct {
	conditions
	Times string `json:"times"`
}

func newShownPrice(prices *app.Prices, p *pricing.Price, at time.Time) *shownPrice {
	e := p.Entry()
	s := &shownPrice{
		Model: e.Model, Provider: e.Provider, Source: source(prices, p),
		Catalogue: p.Version, At: at.Format(time.RFC3339), Names: e.Names, Prefixes: e.Prefixes,
		Context: e.Context, MaxOutput: e.MaxOutput, Note: e.Note,
	}
	if !e.AsOf.IsZero() {
		s.AsOf = e.AsOf.Format(time.DateOnly)
	}
	current := e.InForce(at)
	for _, r := range e.Prices {
		rates := map[string]string{}
		for _, n := range r.Rates.Named() {
			rates[n.Name] = n.USD
		}
		s.Prices = append(s.Prices, shownRow{
			conditions: rowConditions(r), Rates: rates,
			InForce: len(current) > 0 && r.EffectiveFrom.Equal(current[0].EffectiveFrom),
		})
	}
	for _, m := range e.Multipliers {
		s.Multipliers = append(s.Multipliers, shownMultiplier{multiplierConditions(m), m.Times.String()})
	}
	return s
}

func rowConditions(r pricing.Row) conditions {
	c := conditions{
		ServiceTier: r.ServiceTier, Region: r.Region, UTCHours: hourTexts(r.UTCHours),
		ContextOver: r.ContextOver,
	}
	if t := r.EffectiveFrom.UTC(); !t.IsZero() {
		c.EffectiveFrom = strings.TrimSuffix(t.Format(time.RFC3339), "T00:00:00Z")
	}
	return c
}

func multiplierConditions(m pricing.Multiplier) conditions {
	return conditions{ServiceTier: m.ServiceTier, Region: m.Region, UTCHours: hourTexts(m.UTCHours), Batch: m.Batch}
}

func hourTexts(hours []pricing.Hours) []string {
	var out []string
	for _, h := range hours {
		out = append(out, h.String())
	}
	return out
}

// words describes when something applies.
func (c conditions) words() string {
	var parts []string
	add := func(holds bool, format string, args ...any) {
		if holds {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(c.EffectiveFrom != "", "from %s", c.EffectiveFrom)
	add(c.ContextOver > 0, "over %d input tokens", c.ContextOver)
	add(c.ServiceTier != "", "service tier %s", c.ServiceTier)
	add(c.Region == "any", "any region except global")
	add(c.Region != "any" && c.Region != "", "region %s", c.Region)
	add(len(c.UTCHours) > 0, "%s UTC", strings.Join(c.UTCHours, " and "))
	add(c.Batch, "provider's batch API")
	return cmp.Or(strings.Join(parts, ", "), "always")
}
