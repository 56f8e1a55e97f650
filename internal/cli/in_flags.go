package cli

import (
	"errors"
	"strings"
)

// bucketFlags are the flags of the fields that limitFields does not have.
var bucketFlags = map[string]string{"bucket": "capacity", "bucket.capacity": "capacity", "bucket.refill": "refill"}

// flagOf is the flag that sets a field of a limit; empty: none.
func (s *fields) flagOf(field string) string {
	for _, f := range s.all {
		if f.member == field {
			return f.flag
		}
	}
	return bucketFlags[field]
}

// advice is what errors about limits advise to set, in the words of the file and in flags.
var advice = strings.NewReplacer(
	"set metric: cost", "set --metric cost",
	"add window: 1h (sliding), calendar: month (fixed), or use bucket",
	"add --window 1h (sliding), --calendar month (fixed), or use --capacity",
	`add amount: "$5" and window: 1h, or amount and calendar, or bucket`,
	"add --amount '$5' and --window 1h, or --amount and --calendar, or --capacity",
)

// inFlags words a refusal of a limit in the flags of the command that sets it.
func (s *fields) inFlags(err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	text := forShell(advice.Replace(r.message))
	// The message names the limit, the field, whose place in a list may follow, and what is wrong.
	if flag := s.flagOf(r.param); flag != "" {
		_, rest, _ := strings.Cut(text, ": "+r.param)
		_, what, ok := strings.Cut(rest, ": ")
		if ok {
			text = "--" + flag + ": " + what
		}
	}
	return &refusal{text, r.param, r.answer}
}

// forShell puts an amount of money that is in double quotes into single ones, in which a shell
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
