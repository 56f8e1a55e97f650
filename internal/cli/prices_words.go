package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// write prints the price as text.
func (s *shownPrice) write(w io.Writer) error {
	fmt.Fprintf(w, "%s, provider %s\n", s.Model, cmp.Or(s.Provider, "any"))
	switch {
	case s.Source == "unknown_model_price":
		fmt.Fprintf(w, "  %s is not in the catalogue; unknown_model_price of the configuration applies\n", s.Asked)
	case s.AskedProvider != "" && s.Provider != "" && s.AskedProvider != s.Provider:
		fmt.Fprintf(w, "  the catalogue has no prices for %s; the price common to all other providers applies\n",
			s.AskedProvider)
	}
	err := indentedFacts(w, "  ", "source", s.Source, "checked on", s.AsOf, "aliases", strings.Join(s.Names, ", "),
		"name prefixes", strings.Join(s.Prefixes, ", "), "context", tokens(s.Context), "max output", tokens(s.MaxOutput),
		"note", s.Note)
	if err != nil {
		return err
	}
	if err := s.writeRows(w); err != nil {
		return err
	}
	if len(s.Multipliers) > 0 {
		fmt.Fprintln(w, "\nmultipliers of the token prices")
		g := grid{indent: "  ", numbers: make([]bool, 2)}
		for _, m := range s.Multipliers {
			g.add("x"+m.Times, m.words())
		}
		if err := g.write(w); err != nil {
			return err
		}
	}
	if s.Call != nil {
		return s.Call.write(w)
	}
	return nil
}

func tokens(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10) + " tokens"
}

// rateNames are the classes in the order of the YAML format, each with the class whose price
// applies if it has none.
var rateNames = []struct{ name, instead string }{
	{"input", ""},
	{"cached_input", "input"},
	{"cache_write", "input"},
	{"cache_write_1h", "cache_write"},
	{"output", ""},
	{"image_in", "input"},
	{"image_out", "output"},
	{"audio_in", "input"},
	{"cached_audio_in", "audio_in"},
	{"audio_out", "output"},
	{"per_request", ""},
	{"per_tool_call", ""},
}

// writeRows prints the price rows, with the columns that any row uses.
func (s *shownPrice) writeRows(w io.Writer) error {
	fmt.Fprintln(w, "\nprices, USD per 1M tokens (fees: per call)")
	g := grid{indent: "  ", head: []string{"when", ""}, numbers: []bool{false, false}}
	var names, absent []string
	for _, r := range rateNames {
		switch {
		case slices.ContainsFunc(s.Prices, func(row shownRow) bool { return row.Rates[r.name] != "" }):
			names = append(names, r.name)
			g.head, g.numbers = append(g.head, r.name), append(g.numbers, true)
		case r.instead != "":
			absent = append(absent, r.name+" as "+r.instead)
		}
	}
	for _, row := range s.Prices {
		state := ""
		switch {
		case row.InForce:
		case row.EffectiveFrom > s.At:
			state = "future"
		default:
			state = "ended"
		}
		cells := []string{row.words(), state}
		for _, name := range names {
			rate := row.Rates[name]
			if rate == "" {
				rate = "-"
			}
			cells = append(cells, rate)
		}
		g.add(cells...)
	}
	if !slices.ContainsFunc(s.Prices, func(row shownRow) bool { return !row.InForce }) {
		g.dropColumn(1)
	}
	if err := g.write(w); err != nil {
		return err
	}
	if len(absent) > 0 {
		fmt.Fprintf(w, "  no separate price: %s\n", strings.Join(absent, ", "))
	}
	return nil
}

type shownCall struct {
	ServiceTier string            `json:"service_tier"`
	Assumed     bool              `json:"service_tier_assumed,omitempty"`
	Priced      conditions        `json:"priced"`
	Tokens      []shownLine       `json:"tokens"`
	Subtotal    string            `json:"subtotal_usd"`
	Multipliers []shownMultiplier `json:"multipliers,omitempty"`
	Scaled      string            `json:"scaled_usd"`
	Fees        []shownLine       `json:"fees,omitempty"`
	Exact       string            `json:"exact_usd"`
	Charge      pricing.Nano      `json:"charge_nano_usd"`
	Hold        pricing.Nano      `json:"hold_nano_usd"`
	asked       string
}

type shownLine struct {
	Name  string `json:"name"`
	Count int64  `json:"count"`
	Rate  string `json:"rate"`
	USD   string `json:"usd"`
}

func newShownCall(p *pricing.Price, q question, at time.Time) (*shownCall, error) {
	q.usage.Requests, q.terms.At = 1, at
	b, err := p.Explain(q.usage, q.terms)
	if err != nil {
		return nil, err
	}
	hold, err := p.Ceiling(q.usage, q.terms)
	if err != nil {
		return nil, err
	}
	c := &shownCall{
		ServiceTier: b.Tier, Assumed: b.Assumed, Priced: rowConditions(b.Row),
		Subtotal: b.Subtotal, Scaled: b.Scaled, Exact: b.Exact, Charge: b.Charge, Hold: hold, asked: q.terms.ServiceTier,
	}
	if c.ServiceTier == "" {
		c.ServiceTier = "default"
	}
	for _, l := range b.Tokens {
		c.Tokens = append(c.Tokens, shownLine{l.Name, l.Count, decimal(l.Rate, 6), l.USD})
	}
	for _, l := range b.Fees {
		c.Fees = append(c.Fees, shownLine{l.Name, l.Count, decimal(l.Rate, 12), l.USD})
	}
	for _, m := range b.Multipliers {
		c.Multipliers = append(c.Multipliers, shownMultiplier{multiplierConditions(m), m.Times.String()})
	}
	return c, nil
}

// decimal formats a rate as USD per 1M tokens (digits 6) or per call (digits 12).
func decimal(rate pricing.Pico, digits int) string {
	text := fmt.Sprintf("%0*d", digits+1, rate)
	text = text[:len(text)-digits] + "." + text[len(text)-digits:]
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// write prints the call's bill, one step per line.
func (c *shownCall) write(w io.Writer) error {
	fmt.Fprintf(w, "\na call at service tier %s, with the price line: %s\n", c.ServiceTier, c.Priced.words())
	if c.Assumed {
		fmt.Fprintf(w, "  no price for service tier %q; the highest known price applies\n", c.asked)
	}
	g := grid{indent: "  ", numbers: []bool{false, true, false, true}}
	for _, l := range c.Tokens {
		g.add(l.Name, strconv.FormatInt(l.Count, 10), "x $"+l.Rate+" / 1M", l.USD)
	}
	if len(c.Multipliers) > 0 {
		g.add("tokens", "", "", c.Subtotal)
		for _, m := range c.Multipliers {
			g.add("times "+m.Times, "", m.words(), "")
		}
		g.add("scaled", "", "", c.Scaled)
	}
	for _, l := range c.Fees {
		g.add(l.Name, strconv.FormatInt(l.Count, 10), "x $"+l.Rate, l.USD)
	}
	g.add("charge", "", "USD, rounded up to 9 decimals", c.Charge.Decimal())
	g.add("hold", "", "reserved, at the highest price that may apply", c.Hold.Decimal())
	return g.write(w)
}
