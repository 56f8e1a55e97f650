package pricing

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// tokenDigits: a price is written in USD per 1M tokens and stored in pico-USD per token, so it
	// may have six decimals.
	tokenDigits = 6
	// feeDigits: a fee is written in USD per request or call.
	feeDigits = 12
	// factorDigits: a multiplier may have four decimals.
	factorDigits = 4

	maxTokenRate = 1_000_000_000_000     // $1 million per 1M tokens
	maxFee       = 1_000_000_000_000_000 // $1,000 per call
	maxFactor    = 100 * 10_000          // x100
)

// Rate is one price of a [Rates] list, or its absence. The zero value means "not given", which
// differs from a price of 0.
type Rate struct {
	Pico  Pico
	Given bool
}

// PerMillion parses the rate of a price in USD per million tokens, written as a decimal such as
// "0.075" or "1.5e-1".
func PerMillion(usd string) (Rate, error) { return parseRate(usd, tokenDigits, maxTokenRate) }

// PerCall parses the rate of a fee in USD per request or per tool call.
func PerCall(usd string) (Rate, error) { return parseRate(usd, feeDigits, maxFee) }

func parseRate(text string, digits int, limit int64) (Rate, error) {
	v, err := parseDecimal(strings.TrimSpace(text), digits)
	if err == nil && v > limit {
		err = errTooLarge
	}
	if err != nil {
		return Rate{}, fmt.Errorf("price %.40q: %w", text, err)
	}
	return Rate{Pico: Pico(v), Given: true}, nil
}

func (r Rate) or(other Rate) Rate {
	if r.Given {
		return r
	}
	return other
}

// Rates is a price list. Input and Output are required, and may be 0. A class that is not given
// costs what its whole costs: CachedInput, CacheWrite, ImageIn and AudioIn cost Input, CacheWrite1h
// costs CacheWrite, CachedAudioIn costs AudioIn, ImageOut and AudioOut cost Output. A fee that is not
// given is not charged.
type Rates struct {
	// Per token; written in USD per 1M tokens in YAML.
	Input, CachedInput, CacheWrite, CacheWrite1h Rate
	Output, ImageIn, ImageOut, AudioIn, AudioOut Rate
	CachedAudioIn                                Rate
	// Per request, per built-in tool call and per search unit of a reranking; written in USD in YAML.
	PerRequest, PerToolCall, PerSearchUnit Rate
	// PerMinute is the price of a minute of input audio, written in USD; Characters that of each
	// character of spoken text, written in USD per 1M.
	PerMinute, Characters Rate
}

// Row is a price list with conditions. All conditions that are set must hold; the zero value of a
// condition means "always".
type Row struct {
	// EffectiveFrom starts a period: from then on only the rows with this date count, so a period
	// must be complete.
	EffectiveFrom time.Time
	// UTCHours limits the row to parts of the UTC day.
	UTCHours []Hours
	// ServiceTier and Region limit the row to what the request or answer names.
	ServiceTier, Region string
	// ContextOver makes the row apply to the whole request, including output, if the input is
	// larger than this many tokens.
	ContextOver int64
	Rates       Rates
	// Images prices or bounds each generated picture; see [ImagePrice].
	Images []ImagePrice
}

// Multiplier scales token prices (not fees) if all its conditions hold. At least one condition is
// set. All applicable multipliers are multiplied.
type Multiplier struct {
	ServiceTier string  `yaml:"service_tier"`
	Region      string  `yaml:"region"` // "any" means every named region except global
	UTCHours    []Hours `yaml:"utc_hours"`
	Batch       bool    `yaml:"batch"`
	Times       Factor  `yaml:"times"`
}

// Factor is a multiplier in units of 1/10,000: 25,000 is x2.5.
type Factor int64

// ParseFactor parses a factor such as "0.5" or "2.5": above 0, at most 100, with at most four
// decimals.
func ParseFactor(text string) (Factor, error) {
	v, err := parseDecimal(strings.TrimSpace(text), factorDigits)
	if err == nil && v > maxFactor {
		err = errTooLarge
	}
	if err == nil && v == 0 {
		err = fmt.Errorf("a multiplier must be above 0")
	}
	if err != nil {
		return 0, fmt.Errorf("multiplier %.40q: %w", text, err)
	}
	return Factor(v), nil
}

// String returns the factor as a decimal: "2.5".
func (f Factor) String() string { return formatDecimal(int64(f), factorDigits) }

// Hours is a part of the UTC day in minutes since midnight, From inclusive, To exclusive; it may
// wrap around midnight.
type Hours struct{ From, To int }

const dayMinutes = 24 * 60

// ParseHours parses "01:00-04:00".
func ParseHours(text string) (Hours, error) {
	from, to, ok := strings.Cut(strings.TrimSpace(text), "-")
	f, errFrom := parseClock(from)
	t, errTo := parseClock(to)
	if !ok || errFrom != nil || errTo != nil || f == t || f == dayMinutes {
		return Hours{}, fmt.Errorf("utc_hours %.40q: want hh:mm-hh:mm", text)
	}
	return Hours{From: f, To: t}, nil
}

func parseClock(s string) (int, error) {
	s = strings.TrimSpace(s)
	if s == "24:00" {
		return dayMinutes, nil
	}
	t, err := time.Parse("15:04", s)
	return t.Hour()*60 + t.Minute(), err
}

// String returns the hours as "01:00-04:00".
func (h Hours) String() string {
	return fmt.Sprintf("%02d:%02d-%02d:%02d", h.From/60, h.From%60, h.To/60, h.To%60)
}

func (h Hours) contains(minute int) bool {
	if h.From < h.To {
		return h.From <= minute && minute < h.To
	}
	return minute >= h.From || minute < h.To
}

func inHours(hours []Hours, minute int) bool {
	return len(hours) == 0 || slices.ContainsFunc(hours, func(h Hours) bool { return h.contains(minute) })
}

// Service is the prefix of the Model of an entry that prices something other than a model's calls:
// its per_request is the price of one unit.
const Service = "service/"

// Entry is everything the catalogue knows about one model at one provider. Build it in Go or read
// it with [ParseEntries]; [Catalogue.With] validates it.
type Entry struct {
	// Model is the name under which charges are booked; it matches itself exactly.
	Model string
	// Provider is the provider's id; "" matches every provider.
	Provider string
	// Names are further exact names; Prefixes match names that begin with them.
	Names, Prefixes []string
	// Context and MaxOutput are limits in tokens, 0 if unknown.
	Context, MaxOutput int64
	// AsOf is when the facts were last checked.
	AsOf        time.Time
	Prices      []Row
	Multipliers []Multiplier
	// Use names shared lists of multipliers in the catalogue to which the entry is added.
	Use []string
	// Note is for people.
	Note string
}
