package settings

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// Secret is a string that is never printed: fmt, slog and JSON show a placeholder. Reveal
// returns the text itself.
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

// Percent is a percentage, 1 to 100; where a field allows it, 0.
type Percent int

// Size is a number of bytes.
type Size int64

// Quantity is an amount of money or a count; the zero value means unset.
type Quantity struct {
	N     int64 // nano-USD if Money, otherwise a count; at most MaxQuantity
	Money bool
}

// MaxQuantity is the largest integer that Lua in Redis adds without loss, 2^53 - 1: nine
// million dollars in nano-USD.
const MaxQuantity = 1<<53 - 1

// Rate is a quantity per time; the zero value means unset.
type Rate struct {
	Quantity
	Per time.Duration
}

var (
	errNothing = errors.New("must be above 0; to disable a limit, set mode: off")
	errNever   = errors.New("must be above 0; leave it out for a bucket that is never refilled")
	errNoCount = errors.New("expected a whole number such as 1500, 150k or 2M")
)

// ParseCount parses 150000, 150_000, 150k and 2M.
func ParseCount(text string) (int64, error) {
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
		return 0, fmt.Errorf("%s is too large; the maximum is %d", text, int64(MaxQuantity))
	case err != nil && strings.HasSuffix(text, "%"):
		return 0, fmt.Errorf("expected a whole number, got %s; write this percentage without its sign: %s",
			Quote(text), strings.TrimSpace(strings.TrimSuffix(text, "%")))
	case err != nil, digits[0] == '+', digits[0] == '0' && n != 0:
		hint := ""
		if plain := plainNumber(text); plain != "" && !strings.Contains(plain, ".") {
			hint = "; did you mean " + plain + "?"
		}
		return 0, fmt.Errorf("%w, got %s%s", errNoCount, Quote(text), hint)
	case n < 0:
		return 0, fmt.Errorf("%s is negative", text)
	}
	return n * unit, nil
}

// ParseDuration parses Go durations with an optional number of days in front.
func ParseDuration(text string) (time.Duration, error) {
	wrong := fmt.Errorf("expected a duration such as 30s, 5m, 1h or 1d, got %s%s", Quote(text), durationHint(text))
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

// spelled is a duration as people write it: 1 hour, 90min, weekly, 1M.
var spelled = regexp.MustCompile(`^(?i:(\d*)\s*(s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?|ourly)?|` +
	`d(?:ays?|aily)?|w(?:ee)?k(?:s|ly)?|w|mo(?:nth)?(?:s|ly)?|y(?:ea)?r(?:s|ly)?|y))$`)

// durationHint returns the end of an error about a duration: how it is written.
func durationHint(text string) string {
	parts := spelled.FindStringSubmatch(strings.TrimSpace(text))
	if parts == nil {
		_, err := time.ParseDuration(text + "s")
		if err != nil || strings.Trim(text, "0123456789.") != "" {
			return ""
		}
		return "; a number alone has no unit, did you mean " + text + "s?"
	}
	n, err := strconv.ParseUint(cmp.Or(parts[1], "1"), 10, 16)
	unit := strings.ToLower(parts[2])
	switch {
	case err != nil:
		return "; it is too long"
	case parts[2] == "M", strings.HasPrefix(unit, "mo"):
		return fmt.Sprintf("; did you mean %dd, or calendar: month?", n*30)
	case unit[0] == 'w':
		return fmt.Sprintf("; did you mean %dd?", n*7)
	case unit[0] == 'y':
		return fmt.Sprintf("; did you mean %dd, or calendar: year?", n*365)
	}
	return fmt.Sprintf("; did you mean %d%c?", n, unit[0])
}

// ParseQuantity parses an amount of money, marked by $ or USD, or a count.
func ParseQuantity(text string) (Quantity, error) {
	if strings.HasPrefix(strings.TrimLeft(text, "$ "), "-") {
		return Quantity{}, errNothing
	}
	if !strings.HasPrefix(text, "$") && !strings.HasSuffix(strings.ToUpper(text), "USD") {
		n, err := ParseCount(text)
		switch {
		case errors.Is(err, errNoCount):
			err = fmt.Errorf(`expected money such as "$5.25" or a whole number such as 1500, 150k or 2M, got %s%s`,
				Quote(text), quantityHint(text))
		case err == nil && n == 0:
			err = errNothing
		}
		return Quantity{N: n}, err
	}
	nano, err := pricing.ParseUSD(text)
	reason := errors.Unwrap(err)
	switch hint := quantityHint(text); {
	case reason != nil && hint != "":
		return Quantity{}, fmt.Errorf(`expected money such as "$5" or "$0.25", got %s%s`, Quote(text), hint)
	case reason != nil:
		return Quantity{}, fmt.Errorf(`expected money such as "$5" or "$0.25", got %s: %w`, Quote(text), reason)
	case err != nil:
		return Quantity{}, fmt.Errorf("%s is too large; the maximum is $9007199", text)
	case nano == 0:
		return Quantity{}, errNothing
	}
	return Quantity{N: int64(nano), Money: true}, nil
}

// Marks of amounts in dollars, in another currency, and of no limit.
var (
	inDollars     = regexp.MustCompile(`(?i)\$|us|dollar`)
	noLimit       = regexp.MustCompile(`(?i)^(unlimited|none|inf.*)$`)
	otherCurrency = regexp.MustCompile(`(?i)[€£¥₹]|\b(eur|euros?|gbp|chf|cny|inr|jpy|cents?)\b`)
)

// quantityHint returns the end of an error about an amount: how it is written.
func quantityHint(text string) string {
	plain := plainNumber(text)
	before, per, isRate := strings.Cut(text, "/")
	switch {
	case noLimit.MatchString(text):
		return "; to disable a limit, set mode: off"
	case otherCurrency.MatchString(text):
		return "; amounts are in US dollars"
	case isRate:
		return fmt.Sprintf("; write %s: window or calendar says per what time, not /%s", strings.TrimSpace(before), per)
	case plain == "" || text == "$"+plain:
		return ""
	case inDollars.MatchString(text), strings.Contains(plain, "."):
		return fmt.Sprintf(`; did you mean "$%s"?`, plain)
	}
	return fmt.Sprintf(`; did you mean %[1]s, or "$%[1]s" for money?`, plain)
}

// peoplesNumber is a number as people write it: 1,000 or 2,5 or 1.5M, with a unit.
var peoplesNumber = regexp.MustCompile(`(?i)^(?:us)?\s*\$?\s*(\d[\d.,_ ]*(?:e\d+)?)\s*([km]?)\s*` +
	`(?:\$|usd|(?:us )?dollars?|tokens?|requests?|calls?)?$`)

// decimalComma is the comma of a number that has no others: 2,5 and 2,50, not 2,500.
var decimalComma = regexp.MustCompile(`^(\d+),(\d{1,2})$`)

// grouped is a number that has one meaning: a comma begins three digits, a point does not.
var grouped = regexp.MustCompile(`^(?:\d+|[1-9]\d{0,2}(?:[,_ ]\d{3})+)(?:\.(?:\d{1,2}|\d{4,}))?(?:e\d+)?$`)

// plainNumber returns a number that people wrote in another form; "" if it cannot be read.
func plainNumber(text string) string {
	parts := peoplesNumber.FindStringSubmatch(text)
	if parts == nil {
		return ""
	}
	digits := decimalComma.ReplaceAllString(strings.TrimSpace(parts[1]), "$1.$2")
	n, err := strconv.ParseFloat(strings.NewReplacer(" ", "", "_", "", ",", "").Replace(digits), 64)
	if err != nil || n > MaxQuantity || !grouped.MatchString(digits) {
		return ""
	}
	unit := map[string]float64{"": 1, "k": 1e3, "m": 1e6}[strings.ToLower(parts[2])]
	return strconv.FormatFloat(n*unit, 'f', -1, 64)
}

// ParseRate parses "$10/1h" and "5000/m".
func ParseRate(text string) (Rate, error) {
	amount, per, ok := strings.Cut(text, "/")
	if !ok {
		return Rate{}, fmt.Errorf(`expected an amount per time such as "$10/1h" or "5000/1m", got %s`, Quote(text))
	}
	q, err := ParseQuantity(strings.TrimSpace(amount))
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
	d, err := ParseDuration(per)
	if err == nil && d == 0 {
		err = errNothing
	}
	return Rate{Quantity: q, Per: d}, err
}

// DurationText formats a duration as in the file, in whole days if possible.
func DurationText(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Quote quotes a value for an error, and truncates long ones.
func Quote(text string) string {
	if text == "" {
		return "empty text"
	}
	if runes := []rune(text); len(runes) > 60 {
		text = string(runes[:60]) + "…"
	}
	return strconv.Quote(text)
}

// FieldError is an error in one field of an org, a user, a key or a limit.
type FieldError struct {
	Field   string // such as amount or bucket.capacity; empty: no single field
	Message string // names the thing and the field
}

func (e *FieldError) Error() string { return e.Message }
