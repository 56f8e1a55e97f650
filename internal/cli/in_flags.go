package cli

import (
	"errors"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// Settings in the words of the configuration file: a field with its value, and an amount of money.
var (
	setting = regexp.MustCompile(`\b([a-z_]+): ([^ ,;]+)`)
	money   = regexp.MustCompile(`"(-?\$[^"]*)"`)
)

// inFlags words a refusal "limit daily: amount: ..." in the flags of a command.
func inFlags(c *cobra.Command, err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	flag := func(field string) string {
		field, _, _ = strings.Cut(field, "[")
		name := strings.ReplaceAll(strings.TrimPrefix(field, "bucket."), "_", "-")
		if c.Flags().Lookup(name) == nil {
			return ""
		}
		return "--" + name
	}
	head, rest, said := strings.Cut(r.message, ": ")
	if !said {
		return err
	}
	if field, more, ok := strings.Cut(rest, ": "); ok && flag(field) != "" {
		head, rest = flag(field), more
	}
	rest = setting.ReplaceAllStringFunc(rest, func(one string) string {
		field, value, _ := strings.Cut(one, ": ")
		if flag(field) == "" {
			return one
		}
		return flag(field) + " " + value
	})
	rest = strings.ReplaceAll(rest, "or use bucket", "or use --capacity")
	rest = strings.ReplaceAll(rest, "or amount and calendar, or bucket", "or --amount and --calendar, or --capacity")
	return &refusal{money.ReplaceAllString(head+": "+rest, "'$1'"), r.answer}
}
