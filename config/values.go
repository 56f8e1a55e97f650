package config

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// Secret is a text that is never printed: fmt, slog and JSON show a
// placeholder. Reveal gives the text itself.
type Secret string

// Reveal returns the secret text.
func (s Secret) Reveal() string { return string(s) }

// String returns a placeholder, or nothing for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "[secret]"
}

// GoString is String, so that %#v does not print the text either.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalText is String, for encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Percent is a part of something, 1 to 100.
type Percent int

// Size is a number of bytes.
type Size int64

// Quantity is an amount of money or a count; the zero value means not given.
type Quantity struct {
	N     int64 // nano-USD when Money, else a plain count; at most MaxQuantity
	Money bool
}

// MaxQuantity is the largest quantity that Redis's Lua can add without loss,
// 2^53 - 1: nine million dollars in nano-USD.
const MaxQuantity = 1<<53 - 1

// Rate is a quantity per time; the zero value means not given.
type Rate struct {
	Quantity
	Per time.Duration
}

// Raw is a part of the file that another package reads. The zero value means
// that the part is absent.
type Raw struct {
	YAML []byte // the value alone, with the indentation it has in the file
	Line int    // line of the file at which YAML begins, from 1

	rendered bool // YAML is not a piece of the file, so its places are not the file's
}

// setText gives a scalar the value that a text stands for.
func setText(v reflect.Value, text string) (err error) {
	switch p := v.Addr().Interface().(type) {
	case *string:
		*p = text
	case *Secret:
		*p = Secret(text)
	case *bool:
		if text != "true" && text != "false" {
			return fmt.Errorf("expected true or false, got %s", quote(text))
		}
		*p = text == "true"
	case *int64:
		*p, err = parseCount(text)
	case *int:
		var n int64
		n, err = parseCount(text)
		if err == nil && n > 1<<31-1 {
			err = fmt.Errorf("%s is too large", text)
		}
		*p = int(n)
	case *time.Duration:
		*p, err = parseDuration(text)
	case *Percent:
		*p, err = parsePercent(text)
	case *Size:
		*p, err = parseSize(text)
	case *Quantity:
		*p, err = parseQuantity(text)
	case *Rate:
		*p, err = parseRate(text)
	case *netip.Prefix:
		*p, err = parsePrefix(text)
	case *time.Time:
		*p, err = parseTime(text)
	default:
		panic(fmt.Sprintf("config: no reader for %s", v.Type()))
	}
	return err
}

var (
	errZero    = errors.New("must be above 0; leave it out for no bound")
	errNothing = errors.New("must be above 0; to switch a limit off set mode: off")
	errNever   = errors.New("must be above 0; leave it out for a bucket that is never refilled")
	errNoCount = errors.New("expected a whole number such as 1500, 150k or 2M")
)

// parseCount reads 150000, 150_000, 150k and 2M.
func parseCount(text string) (int64, error) {
	digits, unit := strings.ReplaceAll(text, "_", ""), int64(1)
	switch {
	case strings.HasSuffix(digits, "k"):
		digits, unit = digits[:len(digits)-1], 1_000
	case strings.HasSuffix(digits, "M"):
		digits, unit = digits[:len(digits)-1], 1_000_000
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && n > MaxQuantity/unit:
		return 0, fmt.Errorf("%s is too large; the most is %d", text, int64(MaxQuantity))
	case err != nil && strings.HasSuffix(text, "%"):
		return 0, fmt.Errorf("expected a whole number, got %s; this percentage is written without its sign: %s", quote(text),
			strings.TrimSpace(strings.TrimSuffix(text, "%")))
	case err != nil, digits[0] == '+', digits[0] == '0' && n != 0:
		return 0, fmt.Errorf("%w, got %s", errNoCount, quote(text))
	case n < 0:
		return 0, fmt.Errorf("%s is negative", text)
	}
	return n * unit, nil
}

// parseDuration reads Go durations with an optional number of days in front.
func parseDuration(text string) (time.Duration, error) {
	wrong := fmt.Errorf("expected a duration such as 30s, 5m, 1h or 1d, got %s", quote(text))
	var total time.Duration
	rest := text
	if days, after, ok := strings.Cut(text, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, wrong
		}
		total = time.Duration(n) * 24 * time.Hour
		if after == "" {
			return total, nil
		}
		rest = after
	}
	d, err := time.ParseDuration(rest)
	if err != nil || rest[0] == '+' || rest[0] == '-' && total > 0 {
		if n, err := strconv.ParseUint(text, 10, 32); err == nil && n > 0 {
			return 0, fmt.Errorf("%w; a number alone has no unit, did you mean %ds?", wrong, n)
		}
		return 0, wrong
	}
	if d < 0 {
		return 0, fmt.Errorf("%s is negative", text)
	}
	total += d
	if total < d {
		return 0, fmt.Errorf("%s is too long", text)
	}
	return total, nil
}

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"B", 1},
	{"", 1},
}

// parsePercent reads 10%.
func parsePercent(text string) (Percent, error) {
	digits, ok := strings.CutSuffix(text, "%")
	n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 8)
	if !ok || err != nil || n < 1 || n > 100 {
		hint := ""
		if err == nil && !ok && n >= 1 && n <= 100 {
			hint = fmt.Sprintf(`; did you mean "%d%%"?`, n)
		}
		if part, err := strconv.ParseFloat(text, 64); err == nil && part > 0 && part < 1 {
			hint = fmt.Sprintf(`; did you mean "%.0f%%"?`, max(part*100, 1))
		}
		return 0, fmt.Errorf("expected a percentage from 1%% to 100%%, got %s%s", quote(text), hint)
	}
	return Percent(n), nil
}

// parseSize reads 500KB, 32MB, 32MiB and plain bytes.
func parseSize(text string) (Size, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSpace(digits), 10, 63)
		if err != nil {
			break
		}
		if int64(n) > math.MaxInt64/u.bytes {
			return 0, fmt.Errorf("%s is too large", text)
		}
		return Size(int64(n) * u.bytes), nil
	}
	return 0, fmt.Errorf("expected a size such as 500KB, 32MB or 1GiB, got %s", quote(text))
}

// parseQuantity reads money, told by its dollar sign, or a count.
func parseQuantity(text string) (Quantity, error) {
	if !strings.HasPrefix(text, "$") && !strings.HasSuffix(text, "USD") {
		n, err := parseCount(text)
		switch {
		case err != nil && strings.HasPrefix(text, "-$"):
			return Quantity{}, fmt.Errorf("%s is negative", text)
		case err != nil && (strings.ContainsAny(text, "$") || strings.Contains(strings.ToLower(text), "dollar")):
			return Quantity{}, fmt.Errorf(`expected money such as "$5" or "$0.25", got %s; the $ stands before the number`,
				quote(text))
		case err != nil && strings.ContainsAny(text, ".,"):
			return Quantity{}, fmt.Errorf(`expected money such as "$5.25" or a whole number, got %s; money needs its $`,
				quote(text))
		case errors.Is(err, errNoCount):
			return Quantity{}, fmt.Errorf(`expected money such as "$5" or a whole number such as 1500, 150k or 2M, got %s`,
				quote(text))
		}
		if err == nil && n == 0 {
			err = errNothing
		}
		return Quantity{N: n}, err
	}
	nano, err := pricing.ParseUSD(text)
	switch reason := errors.Unwrap(err); {
	case reason != nil && strings.Contains(text, ","):
		return Quantity{}, fmt.Errorf("expected money such as \"$5\" or \"$0.25\", got %s; cents follow a point, and "+
			"thousands have no comma", quote(text))
	case reason != nil:
		return Quantity{}, fmt.Errorf(`expected money such as "$5" or "$0.25", got %s: %w`, quote(text), reason)
	case err != nil:
		return Quantity{}, fmt.Errorf("%s is too much; the most is $9007199", text)
	case nano == 0:
		return Quantity{}, errNothing
	}
	return Quantity{N: int64(nano), Money: true}, nil
}

// parseRate reads "$10/1h" and "5000/m".
func parseRate(text string) (Rate, error) {
	amount, per, ok := strings.Cut(text, "/")
	if !ok {
		return Rate{}, fmt.Errorf(`expected an amount per time such as "$10/1h" or "5000/1m", got %s`, quote(text))
	}
	q, err := parseQuantity(strings.TrimSpace(amount))
	if errors.Is(err, errNothing) {
		err = errNever
	}
	if err != nil {
		return Rate{}, err
	}
	per = strings.TrimSpace(per)
	if per != "" && strings.Trim(per, "smhd") == "" {
		per = "1" + per
	}
	d, err := parseDuration(per)
	if err == nil && d == 0 {
		err = errNothing
	}
	return Rate{Quantity: q, Per: d}, err
}

// parsePrefix reads 10.0.0.0/8 and single addresses.
func parsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("expected an address such as 10.0.0.7 or a range such as 10.0.0.0/8, got %s", quote(text))
	}
	if p != p.Masked() {
		return p, fmt.Errorf("%s is one address inside a range; the range is %s", text, p.Masked())
	}
	return p, nil
}

// parseTime reads a date, meaning its first instant in UTC, or an RFC 3339 time.
func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("expected a date such as 2027-01-31 or a time such as 2027-01-31T18:00:00Z, got %s",
		quote(text))
}

// quote shows a value in an error, cut when it is long.
func quote(text string) string {
	if text == "" {
		return "empty text"
	}
	if runes := []rune(text); len(runes) > 60 {
		text = string(runes[:60]) + "…"
	}
	return strconv.Quote(text)
}
