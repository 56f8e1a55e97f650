package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// flagOf returns the flag that sets a field of a limit, the first one of a section, or "".
func (s *fields) flagOf(field string) string {
	for _, f := range s.all {
		if f.Name == field || strings.HasPrefix(f.Name, field+".") {
			return f.Flag
		}
	}
	return ""
}

// advice rewrites what errors about limits suggest from configuration syntax to flags.
var advice = strings.NewReplacer(
	"set metric: cost", "set --metric cost",
	"add window: 1h (sliding), calendar: month (fixed), or use bucket",
	"add --window 1h (sliding), --calendar month (fixed), or use --capacity",
	"add amount: '$5' and window: 1h, or amount and calendar, or bucket",
	"add --amount '$5' and --window 1h, or --amount and --calendar, or --capacity",
)

// inFlags rewrites an API error about a limit in terms of the command's flags.
func (s *fields) inFlags(c *cobra.Command, err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	if text := secondShape(c, r.message); text != "" {
		return &refusal{text, r.param, r.code, r.answer}
	}
	text := advice.Replace(r.message)
	// The message consists of the limit, the field (perhaps with a list index), and the
	// problem.
	if flag := s.flagOf(r.param); flag != "" {
		_, rest, _ := strings.Cut(text, ": "+r.param)
		_, what, ok := strings.Cut(rest, ": ")
		if ok {
			text = "--" + flag + ": " + what
		}
	}
	return &refusal{text, r.param, r.code, r.answer}
}

// twoShapes is the API's error about a limit with two shapes.
var twoShapes = regexp.MustCompile(`(window|calendar|bucket): the limit already has a (window|calendar|bucket); `)

// secondShape explains how to replace the shape of a limit, or returns "". The API's error names the
// two shapes in a fixed order, whichever of them the limit had.
func secondShape(c *cobra.Command, message string) string {
	m := twoShapes.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	flags := map[string]string{"window": "window", "calendar": "calendar", "bucket": "capacity"}
	given, old := m[1], m[2]
	if !c.Flags().Changed(flags[given]) {
		given, old = old, given
	}
	if c.Flags().Changed(flags[old]) {
		return "--" + flags[old] + " and --" + flags[given] + " cannot be combined: a limit has one shape, so set two limits"
	}
	unset := old
	if given == "bucket" {
		unset += ",amount"
	}
	return fmt.Sprintf("--%s: the limit already has a %s, and a limit has one shape. Add --unset %s to replace it, or "+
		"set a limit of another name (the shape of a limit in the configuration file changes only there)",
		flags[given], old, unset)
}

// quotedMoney is an amount of money in double quotes, in which a shell would replace its $.
var quotedMoney = regexp.MustCompile(`"(-?\$[^"]*)"`)

// forShell changes double quotes around amounts of money to single quotes.
func forShell(text string) string { return quotedMoney.ReplaceAllString(text, "'$1'") }

// remains matches what a shell leaves of an amount such as $5, $1.20, $0.25, $100.50 or $50/1h in
// double quotes, where it expands $5 to nothing and $0 to its own name.
var remains = regexp.MustCompile(`^-?($|/|\.|00|.*sh\.[0-9])`)

// emptied reports a flag for an amount of money that the shell has changed.
func emptied(c *cobra.Command, flags ...string) error {
	for _, name := range flags {
		f := c.Flags().Lookup(name)
		if f.Changed && remains.MatchString(f.Value.String()) {
			return misused("--%s: expected an amount, got %s. In double quotes a shell expands $5 to nothing; use single "+
				"quotes, as in '$5'", name, settings.Quote(f.Value.String()))
		}
	}
	return nil
}
