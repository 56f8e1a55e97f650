package pricing

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

var (
	errNotDecimal = errors.New("not a decimal number")
	errNegative   = errors.New("negative")
	errTooFine    = errors.New("more decimals than can be kept exactly")
	errTooLarge   = errors.New("too large")
)

// maxDecimalText is the maximum length of a price's text.
const maxDecimalText = 64

// parseDecimal returns text x 10^shift as an integer, or an error if the result is not an integer
// that fits. It accepts plain decimals and exponents ("1.5e-07"), with digits required before and
// after the point, and no sign.
func parseDecimal(text string, shift int) (int64, error) {
	if len(text) > maxDecimalText {
		return 0, errNotDecimal
	}
	if strings.HasPrefix(text, "-") {
		return 0, errNegative
	}
	mantissa, exp, err := cutExponent(text)
	if err != nil {
		return 0, err
	}
	whole, frac, point := strings.Cut(mantissa, ".")
	if !allDigits(whole) || (point && !allDigits(frac)) {
		return 0, errNotDecimal
	}
	digits := strings.TrimLeft(whole+frac, "0")
	power := shift + exp - len(frac)
	trimmed := strings.TrimRight(digits, "0")
	power += len(digits) - len(trimmed)
	switch {
	case trimmed == "":
		return 0, nil
	case power < 0:
		return 0, errTooFine
	case len(trimmed)+power > 19:
		return 0, errTooLarge
	}
	v, err := strconv.ParseUint(trimmed+strings.Repeat("0", power), 10, 64)
	if err != nil || v > math.MaxInt64 {
		return 0, errTooLarge
	}
	return int64(v), nil
}

func cutExponent(text string) (mantissa string, exp int, err error) {
	i := strings.IndexAny(text, "eE")
	if i < 0 {
		return text, 0, nil
	}
	digits := strings.TrimPrefix(strings.TrimPrefix(text[i+1:], "+"), "-")
	if !allDigits(digits) || len(digits) > 4 || len(text[i+1:])-len(digits) > 1 {
		return "", 0, errNotDecimal
	}
	exp, err = strconv.Atoi(text[i+1:])
	return text[:i], exp, err
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// formatDecimal is the inverse of parseDecimal: it returns v / 10^shift without trailing zeros. v
// must not be negative.
func formatDecimal(v int64, shift int) string {
	return formatDigits(strconv.FormatInt(v, 10), shift)
}

// formatDigits does the same for an integer in decimal digits.
func formatDigits(s string, shift int) string {
	if len(s) <= shift {
		s = strings.Repeat("0", shift-len(s)+1) + s
	}
	whole, frac := s[:len(s)-shift], strings.TrimRight(s[len(s)-shift:], "0")
	if frac == "" {
		return whole
	}
	return whole + "." + frac
}
