package cli_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/llmguard/llmguard/internal/cli"
)

// commands returns all commands of a new tree, with those that cobra adds.
func commands() []*cobra.Command {
	root := cli.Root()
	root.InitDefaultHelpCmd()
	var all []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		all = append(all, c)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	return all
}

// leaves returns the runnable commands by name, without "llmguard".
func leaves() map[string]*cobra.Command {
	out := map[string]*cobra.Command{}
	for _, c := range commands() {
		if c.RunE != nil && c.HasParent() {
			out[strings.TrimPrefix(c.CommandPath(), "llmguard ")] = c
		}
	}
	return out
}

// TestHelpDescribesEveryFlag: every command has a one-line summary, and every flag a
// description.
func TestHelpDescribesEveryFlag(t *testing.T) {
	for _, c := range commands() {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || strings.Contains(c.Short, "\n") {
			t.Errorf("%s: the short text is %q, want one line without a period", c.CommandPath(), c.Short)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: flag --%s has no description", c.CommandPath(), f.Name)
			}
		})
		for line := range strings.Lines(c.Long) {
			if len([]rune(line)) > 130 {
				t.Errorf("%s: a line of the help has %d characters, want 130 at most: %s", c.CommandPath(), len([]rune(line)), line)
			}
		}
	}
}

// TestHelpListsEveryCommand: the help of a group lists each of its commands.
func TestHelpListsEveryCommand(t *testing.T) {
	for _, c := range commands() {
		path := strings.Fields(c.CommandPath())[1:]
		out, notes, code := llmguard(t, append(slices.Clone(path), "--help")...)
		if code != 0 || notes != "" {
			t.Errorf("%s --help: exit code %d, error %q", c.CommandPath(), code, notes)
		}
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() && !regexp.MustCompile(`(?m)^  `+sub.Name()+` `).MatchString(out) {
				t.Errorf("%s --help does not list %s:\n%s", c.CommandPath(), sub.Name(), out)
			}
		}
	}
}

// words splits a line as a shell does, up to a pipe or a redirection.
func words(line string) []string {
	var out []string
	quoted, begun := false, false
	word := ""
	end := func() {
		if begun {
			out = append(out, word)
		}
		word, begun = "", false
	}
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, begun = !quoted, true
		case quoted || !strings.ContainsRune(" |<>&", r):
			word, begun = word+string(r), true
		case r == ' ':
			end()
		default:
			end()
			return out
		}
	}
	end()
	return out
}

// parses returns the error with which the program rejects a command line.
func parses(line string) error {
	root := cli.Root()
	c, rest, err := root.Find(words(line)[1:])
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	if err := c.ValidateRequiredFlags(); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}

// TestExamplesParse: every example in the help is a valid command line.
func TestExamplesParse(t *testing.T) {
	seen := 0
	for _, c := range commands() {
		for line := range strings.Lines(c.Example) {
			for _, part := range regexp.MustCompile(`llmguard [^|]*`).FindAllString(line, -1) {
				part, _, _ = strings.Cut(part, "&&")
				if strings.Contains(line, "xargs -r "+part) {
					part = strings.TrimSpace(part) + " job_puyzj01m7x3vb350ckcmq65wwmswwsz"
				}
				seen++
				if err := parses(strings.TrimSpace(part)); err != nil {
					t.Errorf("%s: example %q: %v", c.CommandPath(), strings.TrimSpace(part), err)
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("%d examples were read, want 50 or more", seen)
	}
}

// TestHelpNamesCommandsThatExist: every command in backquotes exists.
func TestHelpNamesCommandsThatExist(t *testing.T) {
	seen := 0
	for _, c := range commands() {
		text := c.Long
		c.Flags().VisitAll(func(f *pflag.Flag) { text += "\n" + f.Usage })
		for _, m := range regexp.MustCompile("`llmguard ([a-z ]+)`").FindAllStringSubmatch(text, -1) {
			seen++
			found, rest, err := cli.Root().Find(strings.Fields(m[1]))
			if err != nil || len(rest) > 0 {
				t.Errorf("%s: the help names `llmguard %s`; found %s with %v left, %v", c.CommandPath(), m[1], found.CommandPath(), rest, err)
			}
		}
	}
	if seen == 0 {
		t.Error("no command is named in any help")
	}
}

// TestHelpNamesFlagsThatExist: every flag in the long text belongs to the command, or to the
// command that the sentence names.
func TestHelpNamesFlagsThatExist(t *testing.T) {
	for _, c := range commands() {
		known := map[string]bool{"help": true}
		if c.Name() == "context" { // its help explains what takes precedence over contexts
			known["admin-url"], known["admin-key"], known["config"] = true, true, true
		}
		for _, one := range append(c.Commands(), c) {
			one.Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
			one.InheritedFlags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
			one.PersistentFlags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		}
		for _, m := range regexp.MustCompile(`--([a-z][a-z-]+)`).FindAllStringSubmatch(c.Long, -1) {
			if !known[m[1]] {
				t.Errorf("%s: the help names --%s, which it does not have", c.CommandPath(), m[1])
			}
		}
	}
}

// TestHelpShowsNoSecrets: values from the environment are not shown as defaults.
func TestHelpShowsNoSecrets(t *testing.T) {
	const canary = "canary-0123456789"
	for _, name := range []string{"LLMGUARD_ADMIN_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"} {
		t.Setenv(name, canary)
	}
	t.Setenv("REDIS_URL", "redis://:"+canary+"@127.0.0.1:6379/0")
	for _, c := range commands() {
		path := strings.Fields(c.CommandPath())[1:]
		out, notes, _ := llmguard(t, append(path, "--help")...)
		if strings.Contains(out+notes, canary) {
			t.Errorf("%s --help shows a secret of the environment:\n%s", c.CommandPath(), out)
		}
	}
}
