// Package pricing converts token usage to money, exactly.
//
// Rates are integers in pico-USD per token, charges are integers in nano-USD, and a charge is
// rounded up once, at the end of a call. No floating-point numbers are involved, no missing rate is
// treated as zero, and no charge is negative or wraps around.
//
// A [Catalogue] finds the [Price] of a model. A Price is fixed when the call is admitted and knows
// every service tier, hour and context tier that might apply to it, so that [Price.Ceiling] can
// hold enough and [Price.Charge] can settle at the conditions that the provider reports. The
// package does not fetch prices, does not read the clock (the caller passes times) and does not
// know which user pays.
package pricing

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Nano is an amount of money in nano-USD (1e-9 USD), or in nano-units of the catalogue's own unit
// if that is not usd. Charges are never negative.
type Nano int64

// Pico is a rate in pico-USD (1e-12 USD) per token, request or tool call:
// $1 per million tokens is 1,000,000.
type Pico int64

const (
	// NanoPerUSD is one US dollar.
	NanoPerUSD Nano = 1_000_000_000
	// MaxNano is the largest amount that this package returns or parses, 2^53-1 (about $9.0
	// million): Redis scripts add amounts as doubles, which are exact only up to that value.
	MaxNano Nano = 1<<53 - 1

	nanoDigits = 9
)

// ErrOverflow is returned if a charge would exceed [MaxNano]. Such a call must be refused or
// charged its whole hold, never treated as free.
var ErrOverflow = errors.New("pricing: amount is too large")

// String returns the amount in USD with all nine decimals: "$0.001234500".
func (n Nano) String() string {
	buf := make([]byte, 0, 24)
	if n < 0 {
		buf = append(buf, '-')
	}
	return string(appendDecimal(append(buf, '$'), n.abs()))
}

// Decimal is String without the currency sign, for APIs and files: "0.001234500", "-1.200000000".
func (n Nano) Decimal() string { return string(n.AppendUSD(nil)) }

// Trimmed is exact, without zeros after the cents: "$12.345", "$0.30".
func (n Nano) Trimmed() string {
	text := n.String()
	cents := strings.IndexByte(text, '.') + 3
	return text[:cents] + strings.TrimRight(text[cents:], "0")
}

// Short formats the amount for people: with cents from a dollar on, with four significant digits
// below: "$12.35", "$0.30", "$0.001235". String is exact.
func (n Nano) Short() string {
	decimals := 2
	if abs := n.abs(); abs < uint64(NanoPerUSD) {
		for decimals = nanoDigits; abs >= 10_000; decimals-- {
			abs /= 10
		}
	}
	text := n.Rounded(decimals)
	for keep := strings.IndexByte(text, '.') + 3; len(text) > keep && text[len(text)-1] == '0'; {
		text = text[:len(text)-1]
	}
	return text
}

// Rounded formats the amount with the given number of decimals, 1 to 9, halves rounded up:
// "$12.3457" with 4.
func (n Nano) Rounded(decimals int) string {
	unit := uint64(1)
	for range nanoDigits - decimals {
		unit *= 10
	}
	text := string(appendDecimal([]byte{'$'}, (n.abs()+unit/2)/unit*unit))
	if n < 0 {
		text = "-" + text
	}
	return text[:len(text)-nanoDigits+decimals]
}

// AppendUSD appends the amount in the format of String, without the currency sign.
func (n Nano) AppendUSD(dst []byte) []byte {
	if n < 0 {
		dst = append(dst, '-')
	}
	return appendDecimal(dst, n.abs())
}

func (n Nano) abs() uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}

// appendDecimal appends an amount in nano-USD with all nine decimals.
func appendDecimal(dst []byte, abs uint64) []byte {
	dst = append(strconv.AppendUint(dst, abs/uint64(NanoPerUSD), 10), '.')
	rest := abs % uint64(NanoPerUSD)
	for unit := uint64(NanoPerUSD) / 10; unit > 0; unit /= 10 {
		dst = append(dst, '0'+byte(rest/unit%10))
	}
	return dst
}

// ParseUSD parses an amount such as "$5", "5.25", "5 USD" or "0.000001". It refuses signs, more
// precision than a nano-USD, and anything above [MaxNano].
func ParseUSD(text string) (Nano, error) {
	s := strings.TrimSpace(text)
	dollar := strings.HasPrefix(s, "$")
	s = strings.TrimSpace(strings.TrimPrefix(s, "$"))
	if len(s) > 3 && strings.EqualFold(s[len(s)-3:], "usd") {
		if dollar {
			return 0, fmt.Errorf("pricing: amount %.40q: write either $ or USD", text)
		}
		s = strings.TrimSpace(s[:len(s)-3])
	}
	v, err := parseDecimal(s, nanoDigits)
	if err != nil {
		return 0, fmt.Errorf("pricing: amount %.40q: %w", text, err)
	}
	if v > int64(MaxNano) {
		return 0, fmt.Errorf("pricing: amount %.40q: above the largest amount, %s", text, MaxNano)
	}
	return Nano(v), nil
}
