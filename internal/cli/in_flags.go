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

// inFlags words a refusal of what a command was given by its flags, where the API names fields.
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
	text := r.message
	if _, rest, ok := strings.Cut(text, r.param+": "); ok && flag(r.param) != "" {
		text = flag(r.param) + ": " + rest
	}
	head, rest, said := strings.Cut(text, ": ")
	if !said {
		return err
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
	return &refusal{money.ReplaceAllString(head+": "+rest, "'$1'"), r.param, r.answer}
}
