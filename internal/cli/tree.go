package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/diagnose"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// begun marks a command that has started working. An error before that is a usage error.
const begun = "llmguard_begun"

// mistake is a usage error.
type mistake struct{ err error }

func (m *mistake) Error() string { return m.err.Error() }

func (m *mistake) Unwrap() error { return m.err }

// misused returns a usage error about a flag's value that was found locally.
func misused(format string, args ...any) error { return &mistake{fmt.Errorf(format, args...)} }

const exitMistake = 2

// finish adds to every command what all have in common: the format is checked first, output can
// go to a file, and a group rejects unknown subcommands.
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
		c.Flags().String("out", "", "write to this file, only if the command succeeds (default: standard output)")
		if c.Flags().Lookup("exact") == nil { // `limits set` has its own --exact, for windows
			c.Flags().BoolVar(&exact, "exact", false, "show money in tables with all nine decimals")
		}
	}
	before, work := c.PreRunE, c.RunE
	c.PreRunE = func(c *cobra.Command, args []string) error {
		if err := cmp.Or(noSecrets(c, args), checkFormat(c)); err != nil {
			return err
		}
		if err := requiredFlags(c); err != nil || before == nil {
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

// requiredFlags reports missing flags as they are typed; cobra's own check comes later.
func requiredFlags(c *cobra.Command) error {
	var missing []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[cobra.BashCompOneRequiredFlag] != nil && !f.Changed {
			missing = append(missing, "--"+f.Name)
		}
	})
	switch n := len(missing); n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%s is required", missing[0])
	default:
		return fmt.Errorf("%s and %s are required", strings.Join(missing[:n-1], ", "), missing[n-1])
	}
}

// namedArgs reports missing and surplus arguments by the names in the command's help.
func namedArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if slices.ContainsFunc(args, keys.Looks) {
			return errSecret // before an argument is repeated
		}
		err := check(c, args)
		taken := strings.Fields(c.Use)[1:]
		needed := slices.DeleteFunc(slices.Clone(taken), func(word string) bool { return strings.HasPrefix(word, "[") })
		switch {
		case err == nil:
			return nil
		case len(args) > len(taken):
			return surplus(c, taken, args)
		case len(args) >= len(needed):
			return err
		}
		missing := strings.Join(needed[len(args):], " and ")
		return fmt.Errorf("`%s` needs %s: %s %s", c.CommandPath(), missing, c.CommandPath(), strings.Join(taken, " "))
	}
}

// surplus is the error for more arguments than a command takes. It suggests the flag that one was meant for.
func surplus(c *cobra.Command, taken, args []string) error {
	extra, takes, instead := args[len(taken)], "no arguments", "put a value with spaces in quotes"
	if len(taken) > 0 {
		takes = strings.Join(taken, " and ")
	}
	for _, name := range []string{"org", "config", "file"} { // the last is the most likely
		f := c.Flags().Lookup(name)
		if len(taken) == 0 && f != nil && !f.Changed && (name != "config" || filepath.Ext(extra) != "") {
			instead = "did you mean --" + name + " " + extra + "?"
		}
	}
	return fmt.Errorf("`%s` takes %s; %q is one too many; %s", c.CommandPath(), takes, extra, instead)
}

// noSecrets refuses a key where its id belongs, before it is sent or repeated.
func noSecrets(c *cobra.Command, args []string) error {
	wrong := slices.ContainsFunc(args, keys.Looks)
	c.Flags().Visit(func(f *pflag.Flag) {
		ofKey := strings.Contains(f.Usage, "_KEY") // says which variable has the key
		wrong = wrong || !ofKey && keys.Looks(strings.TrimPrefix(f.Value.String(), "["))
	})
	if wrong {
		return errSecret
	}
	return nil
}

var errSecret = errors.New("this is a key itself; name it by its id, which `llmguard keys list` shows")

// knownCommand rejects unknown subcommands of a group and suggests similar ones.
func knownCommand() cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if keys.Looks(args[0]) {
			return errSecret
		}
		near := settings.Near(args[0], commandNames(c))
		text := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
		if len(near) == 0 && c.HasParent() {
			near = settings.Near(args[0], commandNames(c.Root()))
		}
		if len(near) > 0 {
			return fmt.Errorf("%s; did you mean %s?", text, strings.Join(near, ", "))
		}
		return fmt.Errorf("%s; list commands with `%s --help`", text, c.CommandPath())
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

// nearFlag adds suggestions to the error about an unknown flag.
func nearFlag(c *cobra.Command, err error) error {
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		return wrongValue(wrong)
	}
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	if words := c.Flags().Args(); c.HasSubCommands() && len(words) > 0 {
		return knownCommand()(c, words) // the flag belongs to a command that does not exist
	}
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	near := settings.Near(unknown.GetSpecifiedName(), names)
	if len(near) == 0 {
		return fmt.Errorf("%w; list flags with `%s --help`", err, c.CommandPath())
	}
	return fmt.Errorf("%w; did you mean --%s?", err, strings.Join(near, " or --"))
}

// wrongValue is the error for a value that its flag cannot have.
func wrongValue(err *pflag.InvalidValueError) error {
	f := err.GetFlag()
	want := map[string]string{
		"int": "a whole number", "int64": "a whole number", "bool": "true or false",
		"duration": "a duration such as 30s, 5m or 1h",
	}[f.Value.Type()]
	if want == "" {
		return err // of a type of our own, which explains it
	}
	return fmt.Errorf("--%s %s: expected %s", f.Name, err.GetValue(), want)
}

// exit ends the program with this exit code; the messages have been printed already.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// exitCode prints why a command failed and returns its exit code.
func exitCode(w io.Writer, err error) int {
	if code, ok := errors.AsType[exit](err); ok {
		return int(code)
	}
	complain(w, err)
	if _, wrong := errors.AsType[*mistake](err); wrong {
		return exitMistake
	}
	return 1
}

// complain prints an error, and the page that explains its code if it has one. Each configuration error is on its
// own line that starts with the file name, as editors expect.
func complain(w io.Writer, err error) {
	if wrong, ok := errors.AsType[config.Errors](err); ok {
		fmt.Fprintln(w, wrong)
		return
	}
	fmt.Fprintln(w, "llmguard:", err)
	var refused *refusal
	if errors.As(err, &refused) && refused.code != "" {
		fmt.Fprintf(w, "`llmguard docs errors#%s` explains this error\n", refused.code)
	}
	if errors.Is(err, tenants.ErrUnavailable) {
		fmt.Fprintln(w, diagnose.RedisFix(err))
	}
}

// wantFile documents what to do when the command's configuration file does not exist.
func wantFile(c *cobra.Command, path *string) {
	c.Long = cmp.Or(c.Long, c.Short) +
		"\n\nIt reads the configuration file and does not work over the network (LLMGUARD_ADMIN_URL and contexts do not apply)."
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if named, _ := c.Flags().GetString("context"); named != "" {
			return fmt.Errorf("`%s` reads the configuration file and does not work over the network; remove --context",
				c.CommandPath())
		}
		if _, err := os.Stat(*path); errors.Is(err, fs.ErrNotExist) {
			return noConfig{*path, c.CommandPath()}
		}
		return nil
	}
}

// noConfig is the error for a missing configuration file.
type noConfig struct{ path, command string }

func (e noConfig) Error() string {
	return fmt.Sprintf("%s not found. Use --config FILE (`llmguard dev` writes one and prints its path), or "+
		"create one with `llmguard init`. `%s` needs this file and does not work over the network", e.path, e.command)
}

// plural formats a count: "1 org", "2 orgs".
func plural(n int, thing string) string { return figures.Plural(int64(n), thing) }

// named maps flags and arguments to the API lists that complete them, and the member of a line; %s is the org.
var named = map[string]struct{ path, member string }{
	"org": {"/orgs", "id"}, "user": {"/orgs/%s/users", "id"}, "key": {"/orgs/%s/keys", "id"},
	"limit": {"/orgs/%s/limits", "name"}, "run": {"/orgs/%s/runs", "id"}, "override": {"/orgs/%s/overrides", "id"},
	"brake": {"/brakes?org=%s", "brake"}, "request": {"/limit_requests", "id"}, "admin": {"/admins", "id"},
	"pool": {"/queue", "pool"}, "job": {"/jobs", "id"}, "batch": {"/batches", "id"}, "target": {"/webhooks", "id"},
	"letter": {"/webhooks/dead", "id"},
}

// completeFlags adds shell completion of ids, from a running llmguard or its Redis.
func completeFlags(c *cobra.Command) {
	if c.Flags().Lookup("admin-url") == nil {
		return
	}
	for kind := range named {
		if c.Flags().Lookup(kind) != nil {
			_ = c.RegisterFlagCompletionFunc(kind, completeIDs(kind))
		}
	}
	words := strings.Fields(c.Use)
	if len(words) != 2 || c.ValidArgsFunction != nil || c.Name() == "create" {
		return
	}
	kind := strings.ToLower(strings.Trim(words[1], "[]."))
	if operated := c.Annotations[operationInput]; operated != "" {
		kind = operated
	}
	if _, ok := named[kind]; !ok {
		return
	}
	ids, several := completeIDs(kind), strings.HasSuffix(words[1], "...")
	c.ValidArgsFunction = func(c *cobra.Command, args []string, begin string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !several {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return ids(c, args, begin)
	}
}

// completeIDs lists the ids of a kind. Completion cannot show errors, so an error yields an
// empty list.
func completeIDs(kind string) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		text := func(flag string) string {
			if f := c.Flags().Lookup(flag); f != nil {
				return f.Value.String()
			}
			return ""
		}
		org := text("org")
		of := named[kind]
		if strings.Contains(of.path, "%s") && org == "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		f := adminFlags{
			path: text("config"), url: text("admin-url"), key: text("admin-key"), caFile: text("ca-file"),
			command: c,
		}
		a, err := f.open(c.Context())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer a.close()
		// Without an answer there is nothing to suggest.
		lines, _ := list[map[string]any](c.Context(), a, strings.Replace(of.path, "%s", url.PathEscape(org), 1))
		var out []string
		for _, one := range lines {
			if id, _ := one[of.member].(string); id != "" && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
