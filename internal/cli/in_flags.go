package cli

import (
	"errors"
	"strings"
)

// bucketFlags are the flags for fields that limitFields does not contain.
var bucketFlags = map[string]string{"bucket": "capacity", "bucket.capacity": "capacity", "bucket.refill": "refill"}

// flagOf returns the flag that sets a field of a limit, or "".
func (s *fields) flagOf(field string) string {
	for _, f := range s.all {
		if f.member == field {
			return f.flag
		}
	}
	return bucketFlags[field]
}

// advice rewrites what errors about limits suggest from configuration syntax to flags.
var advice = strings.NewReplacer(
	"set metric: cost", "set --metric cost",
	"add window: 1h (sliding), calendar: month (fixed), or use bucket",
	"add --window 1h (sliding), --calendar month (fixed), or use --capacity",
	`add amount: "$5" and window: 1h, or amount and calendar, or bucket`,
	"add --amount '$5' and --window 1h, or --amount and --calendar, or --capacity",
)

// inFlags rewrites an API error about a limit in terms of the command's flags.
func (s *fields) inFlags(err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	text := forShell(advice.Replace(r.message))
	// The message consists of the limit, the field (perhaps with a list index), and the
	// problem.
	if flag := s.flagOf(r.param); flag != "" {
		_, rest, _ := strings.Cut(text, ": "+r.param)
		_, what, ok := strings.Cut(rest, ": ")
		if ok {
			text = "--" + flag + ": " + what
		}
	}
	return &refusal{text, r.param, r.answer}
}

// forShell changes double quotes around an amount of money to single quotes, in which a shell
// leaves the $ alone.
func forShell(text string) string {
	before, rest, ok := strings.Cut(text, `"$`)
	if !ok {
		return text
	}
	amount, after, ok := strings.Cut(rest, `"`)
	if !ok {
		return text
	}
	return before + "'$" + amount + "'" + after
}
