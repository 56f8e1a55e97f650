package config

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// Raw is a part of the file that another package parses. The zero value means that the part is
// absent.
type Raw struct {
	YAML []byte // the value with its indentation in the file
	Line int    // line of the file at which YAML begins, from 1

	rendered bool // YAML is not a copy from the file, so its positions are not those of the file
}

// setText sets a scalar to the value of a text.
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
		*p, err = settings.ParseCount(text)
	case *int:
		var n int64
		n, err = settings.ParseCount(text)
		if err == nil && n > 1<<31-1 {
			err = fmt.Errorf("%s is too large", text)
		}
		*p = int(n)
	case *time.Duration:
		*p, err = settings.ParseDuration(text)
	case *Percent:
		*p, err = parsePercent(text)
	case *PercentOrOff:
		*p, err = parsePercentOrOff(text)
	case *Size:
		*p, err = parseSize(text)
	case *Quantity:
		*p, err = settings.ParseQuantity(text)
	case *Rate:
		*p, err = settings.ParseRate(text)
	case *netip.Prefix:
		*p, err = parsePrefix(text)
	case *time.Time:
		*p, err = parseTime(text)
	default:
		panic(fmt.Sprintf("config: no reader for %s", v.Type()))
	}
	return err
}

var errZero = errors.New("must be above 0; omit it for no limit")

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

// parsePercent parses 10%.
func parsePercent(text string) (Percent, error) {
	if text == "0" {
		return 0, nil // most fields refuse it
	}
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

// parsePercentOrOff parses 10% and off.
func parsePercentOrOff(text string) (PercentOrOff, error) {
	if text == "off" {
		return 0, nil
	}
	n, err := parsePercent(text)
	if err != nil {
		err = fmt.Errorf("%w; or off", err)
	}
	return PercentOrOff(n), err
}

// parseSize parses 500KB, 32MB, 32MiB and plain bytes.
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

// parsePrefix parses 10.0.0.0/8 and single addresses.
func parsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("expected an address such as 10.0.0.7 or a range such as 10.0.0.0/8, got %s", quote(text))
	}
	if p != p.Masked() {
		return p, fmt.Errorf("%s is an address inside a range; write the range as %s", text, p.Masked())
	}
	return p, nil
}

// parseTime parses a date, meaning its first instant in UTC, or an RFC 3339 time.
func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("expected a date such as 2027-01-31 or a time such as 2027-01-31T18:00:00Z, got %s",
		quote(text))
}

// quote quotes a value for an error, truncated if it is long.
func quote(text string) string { return settings.Quote(text) }
