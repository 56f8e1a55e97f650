package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// begun marks a command whose work has begun: an error before that is a mistake in the
// command line.
const begun = "llmguard_begun"

// mistake is a command line that was not understood.
type mistake struct{ err error }

func (m *mistake) Error() string { return m.err.Error() }

func (m *mistake) Unwrap() error { return m.err }

// misused is the mistake of a flag's value, found without asking anybody.
func misused(format string, args ...any) error { return &mistake{fmt.Errorf(format, args...)} }

// exitMistake is the exit code for them.
const exitMistake = 2

// finish gives all commands what is the same for all: a format is checked before anything
// else, the output can go to a file, and a group refuses commands that it does not have.
func finish(c *cobra.Command) {
	for _, sub := range c.Commands() {
		finish(sub)
	}
	if c.HasSubCommands() {
		c.Args = knownCommand()
		if c.RunE == nil {
			c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
		}
	}
	if c.RunE == nil {
		return
	}
	if c.Args != nil && !c.HasSubCommands() {
		c.Args = namedArgs(c.Args)
	}
	formatted, exact := c.Flags().Lookup("output") != nil, false
	if formatted {
		c.Flags().String("out", "", "write to this file, all of it or nothing (default: standard output)")
		if c.Flags().Lookup("exact") == nil { // of a limit's window in `limits set`
			c.Flags().BoolVar(&exact, "exact", false, "print money in tables with all nine decimals")
		}
	}
	before, work := c.PreRunE, c.RunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if err := checkFormat(c); err != nil || before == nil {
			return err
		}
		return before(c, args)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[begun] = "yes"
		if !formatted {
			return work(c, args)
		}
		return written(c, exact, func() error { return work(c, args) })
	}
	completeFlags(c)
}

// namedArgs names the arguments that are missing, as the command's help does.
func namedArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		err := check(c, args)
		needed := slices.DeleteFunc(strings.Fields(c.Use)[1:], func(word string) bool { return strings.HasPrefix(word, "[") })
		if err == nil || len(args) >= len(needed) {
			return err
		}
		missing := strings.Join(needed[len(args):], " and ")
		return fmt.Errorf("`%s` needs %s: %s %s", c.CommandPath(), missing, c.CommandPath(),
			strings.Join(strings.Fields(c.Use)[1:], " "))
	}
}

// knownCommand refuses words that are no command of a group, and names what is near.
func knownCommand() cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		near := nearest(args[0], commandNames(c))
		text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
		if len(near) > 0 {
			return fmt.Errorf("%s; did you mean %s?", text, strings.Join(near, ", "))
		}
		return fmt.Errorf("%s; `%s --help` lists what there is", text, c.CommandPath())
	}
}

func commandNames(c *cobra.Command) []string {
	var out []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			out = append(out, sub.Name())
		}
	}
	return out
}

// nearFlag words an error about flags; one that is not known is followed by what is near.
func nearFlag(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	near := nearest(unknown.GetSpecifiedName(), names)
	if len(near) == 0 {
		return fmt.Errorf("%w; `%s --help` lists the flags", err, c.CommandPath())
	}
	return fmt.Errorf("%w; did you mean --%s?", err, strings.Join(near, " or --"))
}

// nearest are the names most like a word, at most three: two letters may be wrong.
func nearest(word string, names []string) []string {
	off := map[string]int{}
	near := slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		off[name] = edits(word, name)
		return off[name] > 2 || 2*off[name] > len(name) || off[name] == 2 && len(word) < 4
	})
	slices.SortStableFunc(near, func(a, b string) int { return off[a] - off[b] })
	return near[:min(3, len(near))]
}

// edits is how many letters must be put in, left out or changed to make b of a.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost++
			}
			before = row[j+1]
			row[j+1] = min(cost, before+1, row[j]+1)
		}
	}
	return row[len(b)]
}
