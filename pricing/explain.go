package pricing

import (
	"math/big"
	"slices"
	"time"
)

// Bill shows how a charge is computed. Its texts are exact decimals in USD, or in the catalogue's
// own unit, before the single rounding at the end.
type Bill struct {
	// Row is the price list that applied; Tier is the service tier for which it was chosen, "" for
	// the default. Assumed is set if the price does not know the named tier; Tier is then the most
	// expensive of those it knows.
	Row     Row
	Tier    string
	Assumed bool
	// Tokens are the counted tokens in classes that do not overlap; Subtotal is their sum.
	Tokens   []Line
	Subtotal string
	// Multipliers were applied to the subtotal; Scaled is the result.
	Multipliers []Multiplier
	Scaled      string
	// Fees are added unscaled.
	Fees []Line
	// Exact is the amount that was rounded up to Charge.
	Exact  string
	Charge Nano
}

// Line is a number of tokens or calls at one rate.
type Line struct {
	// Name is the name of the class in YAML, such as "cached_input".
	Name  string
	Count int64
	Rate  Pico
	// USD is Count x Rate.
	USD string
}

// NamedRate is a given rate of a [Rates] list with its YAML name, as a decimal: USD per 1M tokens,
// or per call if Fee is set.
type NamedRate struct {
	Name, USD string
	Fee       bool
}

// Named lists the given rates, in the order of the YAML form.
func (r Rates) Named() []NamedRate {
	var list []NamedRate
	for _, f := range r.fields() {
		if f.rate.Given {
			list = append(list, NamedRate{f.name, formatDecimal(int64(f.rate.Pico), f.digits), f.digits == feeDigits})
		}
	}
	return list
}

// Entry returns the entry from which the price was created, for display.
func (p *Price) Entry() Entry { return p.entry.src }

// Explain returns the result of [Price.Charge] and how it is computed. It is for people, not for
// the path of a call.
func (p *Price) Explain(u Usage, t Terms) (Bill, error) {
	u, _ = u.Clamp()
	c, err := p.charged(&u, t)
	if err != nil {
		return Bill{}, err
	}
	e, unix := p.entry, p.instant(t).Unix()
	b := Bill{
		Row: e.source(c.row, e.periodAt(unix).from), Tier: c.tier, Charge: c.Total(),
		Assumed: len(e.chargedTiers(nil, t)) > 1,
	}
	region, minute := canonicalRegion(t.Region), minuteOf(unix)
	for i, m := range e.mults {
		if m.holds(b.Tier, region, minute, t.Batch) {
			b.Multipliers = append(b.Multipliers, e.src.Multipliers[i])
		}
	}
	b.add(c.list, &u)
	return b, nil
}

// source returns the row as written.
func (e *entry) source(r *row, from int64) Row {
	i := slices.IndexFunc(e.src.Prices, func(s Row) bool {
		return s.start() == from && canonicalTier(s.ServiceTier) == r.tier && canonicalRegion(s.Region) == r.region &&
			s.ContextOver == r.over && slices.Equal(s.UTCHours, r.hours)
	})
	return e.src.Prices[i]
}

// add sets the lines and sums.
func (b *Bill) add(r *rates, u *Usage) {
	in, out := r.classes(u)
	b.Tokens = slices.Concat(
		split("input", r.input, u.Input, in[:],
			[]string{"cached_input", "cache_write", "cache_write_1h", "audio_in", "image_in", "cached_audio_in"}),
		split("output", r.output, u.Output, out[:], []string{"audio_out", "image_out"}))
	sum, scale := new(big.Int), feeDigits
	for _, l := range b.Tokens {
		sum.Add(sum, product(l))
	}
	b.Subtotal = formatDigits(sum.String(), scale)
	for _, m := range b.Multipliers {
		sum.Mul(sum, big.NewInt(int64(m.Times)))
		scale += factorDigits
	}
	b.Scaled = formatDigits(sum.String(), scale)
	shift := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale-feeDigits)), nil)
	for _, l := range []Line{
		{Name: "per_request", Count: u.Requests, Rate: Pico(r.perRequest)},
		{Name: "per_tool_call", Count: u.ToolCalls, Rate: Pico(r.perToolCall)},
		{Name: "per_search_unit", Count: u.SearchUnits, Rate: Pico(r.perSearchUnit)},
		{Name: "per_image", Count: u.Images, Rate: Pico(r.perImage)},
		{Name: "characters", Count: u.Characters, Rate: Pico(r.perCharacter)},
	} {
		if n := product(l); n.Sign() > 0 {
			l.USD = formatDigits(n.String(), feeDigits)
			b.Fees = append(b.Fees, l)
			sum.Add(sum, n.Mul(n, shift))
		}
	}
	if n := new(big.Int).SetUint64(r.minutes(u)); n.Sign() > 0 {
		b.Fees = append(b.Fees, Line{
			Name: "per_minute", Count: u.AudioMillis, Rate: Pico(r.perMinute),
			USD: formatDigits(n.String(), feeDigits),
		})
		sum.Add(sum, n.Mul(n, shift))
	}
	b.Exact = formatDigits(sum.String(), scale)
}

// split counts like [portions] and names what it counted.
func split(whole string, rate uint64, total int64, classes []class, names []string) []Line {
	lines := make([]Line, 0, len(classes)+1)
	var named int64
	for i, c := range classes {
		named += c.tokens
		lines = append(lines, Line{Name: names[i], Count: c.tokens, Rate: Pico(c.rate)})
	}
	if named > total {
		slices.SortStableFunc(lines, func(a, b Line) int { return int(min(max(b.Rate-a.Rate, -1), 1)) })
	}
	left := total
	for i := range lines {
		lines[i].Count = min(lines[i].Count, left)
		left -= lines[i].Count
	}
	lines = append([]Line{{Name: whole, Count: left, Rate: Pico(rate)}}, lines...)
	lines = slices.DeleteFunc(lines, func(l Line) bool { return l.Count == 0 })
	for i := range lines {
		lines[i].USD = formatDigits(product(lines[i]).String(), feeDigits)
	}
	return lines
}

func product(l Line) *big.Int {
	return new(big.Int).Mul(big.NewInt(l.Count), big.NewInt(int64(l.Rate)))
}

// InForce returns the rows of the period in effect at a time: those that then apply for some tier,
// region, hour or context size.
func (e Entry) InForce(at time.Time) []Row {
	var from time.Time
	for _, r := range e.Prices {
		if r.EffectiveFrom.After(from) && !r.EffectiveFrom.After(at) {
			from = r.EffectiveFrom
		}
	}
	return slices.DeleteFunc(slices.Clone(e.Prices), func(r Row) bool { return !r.EffectiveFrom.Equal(from) })
}
