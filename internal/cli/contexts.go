package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// contexts is the contents of the contexts file: the deployments that the user works with.
type contexts struct {
	Current string    `yaml:"current,omitempty"`
	List    []reached `yaml:"contexts"`
}

// reached is one deployment: the address of its admin listener, and the key.
type reached struct {
	Name   string `yaml:"name"`
	URL    string `yaml:"url"`
	Key    string `yaml:"key"`
	CAFile string `yaml:"ca_file,omitempty"`

	from string // what chose it
}

const currentContext = "the current context" // from of one that nothing else names

// deployment describes what is reached, and why.
func (to *reached) deployment() string {
	if to.Name == "" {
		return "at " + to.URL + ", from " + to.from
	}
	return fmt.Sprintf("%s (%s), from %s", to.Name, to.URL, to.from)
}

// sure returns a check of each request to the current context, or nil if the context was named or the directory
// has no configuration file, which could be meant as well. A read prints once what it reads. A write is refused
// unless the file's Redis knows the context's key, so that both are the same llmguard.
func (to *reached) sure(ctx context.Context, f *adminFlags) func(method string) error {
	if _, err := os.Stat(f.path); to.from != currentContext || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	note := sync.OnceFunc(func() {
		fmt.Fprintf(f.command.ErrOrStderr(), "using the context %s (%s), not %s\n", to.Name, to.URL, f.path)
	})
	write := sync.OnceValue(func() error {
		why := ""
		if known, err := f.knows(ctx, to.Key); err != nil {
			why = fmt.Sprintf(" (its Redis cannot be compared: %v)", err)
		} else if known {
			return nil
		}
		return misused("the current context is %s (%s), and %s may be for another llmguard%s. Nothing was changed. "+
			"Name the one to change with `--context %s` or `-c %s`", to.Name, to.URL, f.path, why, admin.ShellWord(to.Name), f.path)
	})
	return func(method string) error {
		if method != http.MethodGet {
			return write()
		}
		note()
		return nil
	}
}

// knows reports whether a key is an administrator's in the Redis of the configuration file.
func (f *adminFlags) knows(ctx context.Context, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	api, end, err := f.localAPI(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	return api.Knows(key), nil
}

// contextsPath returns the path of the file, under XDG_CONFIG_HOME or ~/.config.
func contextsPath() (string, error) {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "llmguard", "contexts.yaml"), nil
}

// readContexts reads the file. A missing file is empty. A file that other users can read is
// refused, because it contains keys.
func readContexts() (*contexts, error) {
	path, err := contextsPath()
	if err != nil {
		return &contexts{}, nil // no home directory, so no contexts
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &contexts{}, nil
	case err != nil:
		return nil, err
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s holds keys and is readable by other users. Run `chmod 600 %s`, and rotate the keys if "+
			"other users have access to this machine", path, path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all contexts
	if err := yaml.UnmarshalWithOptions(text, &all, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &all, nil
}

func (all *contexts) write() error {
	path, err := contextsPath()
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return intoFile(path, copyOf(bytes.NewReader(text)))
}

// changeContexts changes the file of contexts, and prints what was done.
func changeContexts(c *cobra.Command, change func(*contexts) (done string, err error)) error {
	all, err := readContexts()
	if err != nil {
		return err
	}
	done, err := change(all)
	if err != nil {
		return err
	}
	if err := all.write(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), done)
	return err
}

func (all *contexts) find(name string) (*reached, error) {
	var known []string
	for i := range all.List {
		if all.List[i].Name == name {
			return &all.List[i], nil
		}
		known = append(known, all.List[i].Name)
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("context %s not found; there are no contexts. Add one with `llmguard context add`", name)
	}
	return nil, fmt.Errorf("context %s not found%s", name, settings.Hint(name, known))
}

func contextCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "context", Short: "Choose the llmguard that commands connect to",
		Long: "A context is the address of an admin listener and an administrator's key. Commands use the current context unless\n" +
			"--context or LLMGUARD_CONTEXT names another. --admin-url, --admin-key, LLMGUARD_ADMIN_URL and LLMGUARD_ADMIN_KEY take\n" +
			"precedence over contexts; --config connects to the Redis in that file directly. Next to an llmguard.yaml of another\n" +
			"llmguard, changes need one of them to be named: the current context alone is not enough. Contexts are stored in\n" +
			"~/.config/llmguard/contexts.yaml, which only its owner can read.",
		Example: "  llmguard context add prod --url https://llmguard.internal:9090 < admin-key.txt\n" +
			"  llmguard context use prod\n" +
			"  llmguard context list",
	}
	c.AddCommand(contextAddCommand(), contextUseCommand(), contextListCommand(), contextRemoveCommand())
	return c
}

func contextAddCommand() *cobra.Command {
	var made reached
	c := &cobra.Command{
		Use: "add NAME", Short: "Add or replace a context", Args: cobra.ExactArgs(1),
		Long: "The administrator's key is read from standard input, which keeps it out of the shell history, or from LLMGUARD_ADMIN_KEY.\n" +
			"The first context becomes the current one.",
		Example: "  llmguard context add prod --url https://llmguard.internal:9090 < admin-key.txt",
	}
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		made.Name = args[0]
		if u, err := url.Parse(made.URL); err != nil || u.Host == "" {
			return misused("--url %s: expected a URL such as http://127.0.0.1:9090", made.URL)
		}
		made.Key, err = secretInput(c.InOrStdin(), "LLMGUARD_ADMIN_KEY")
		if err != nil {
			return err
		}
		if made.CAFile != "" {
			made.CAFile, err = filepath.Abs(made.CAFile)
			if err != nil {
				return err
			}
		}
		return changeContexts(c, func(all *contexts) (string, error) {
			all.List = slices.DeleteFunc(all.List, func(r reached) bool { return r.Name == made.Name })
			all.List = append(all.List, made)
			all.Current = cmp.Or(all.Current, made.Name)
			return fmt.Sprintf("context %s is %s; the current context is %s", made.Name, made.URL, all.Current), nil
		})
	}
	c.Flags().StringVar(&made.URL, "url", "", "the admin listener, such as https://llmguard.internal:9090 (required)")
	c.Flags().StringVar(&made.CAFile, "ca-file", "", "PEM file of CAs to trust in addition to the system's")
	_ = c.MarkFlagRequired("url")
	return c
}

// secretInput reads a secret from the environment variable, if there is one, else from standard input: an argument
// would be visible to other users.
func secretInput(stdin io.Reader, variable string) (string, error) {
	if text := os.Getenv(variable); text != "" {
		return text, nil
	}
	what, or := "secret", " (an argument would be visible to other users)"
	if variable != "" {
		what, or = "key", ", or set "+variable+or
	}
	if variable != "" && terminal(stdin) {
		return "", errors.New("pass the key on standard input" + or)
	}
	raw, err := io.ReadAll(io.LimitReader(stdin, 64<<10))
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(raw))
	if text == "" {
		return "", errors.New("standard input is empty: pass the " + what + " on it" + or)
	}
	return text, nil
}

func contextUseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "use NAME", Short: "Switch to a context", Args: cobra.ExactArgs(1), Example: "  llmguard context use prod",
		ValidArgsFunction: completeContexts,
		RunE: func(c *cobra.Command, args []string) error {
			return changeContexts(c, func(all *contexts) (string, error) {
				to, err := all.find(args[0])
				if err != nil {
					return "", err
				}
				all.Current = to.Name
				return fmt.Sprintf("the current context is %s (%s)", to.Name, to.URL), nil
			})
		},
	}
}

// contextView is a context for output, without its key.
type contextView struct {
	Name    string `json:"name" col:"name"`
	URL     string `json:"url" col:"url"`
	Current bool   `json:"current" col:"current;if"`
}

func contextListCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List contexts (keys are never shown)",
		Args:    cobra.NoArgs,
		Example: "  llmguard context list",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		all, err := readContexts()
		if err != nil {
			return err
		}
		out := []contextView{}
		for _, r := range all.List {
			out = append(out, contextView{r.Name, r.URL, r.Name == all.Current})
		}
		return render(c.OutOrStdout(), output, out, func(w io.Writer) error { return tableOf(w, out, nil) })
	}
	formatFlag(c, &output, listFormats...)
	return c
}

func contextRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Remove a context from this machine (its key stays valid)", Args: cobra.ExactArgs(1),
		Example:           "  llmguard context remove prod",
		ValidArgsFunction: completeContexts,
		RunE: func(c *cobra.Command, args []string) error {
			return changeContexts(c, func(all *contexts) (string, error) {
				if _, err := all.find(args[0]); err != nil {
					return "", err
				}
				all.List = slices.DeleteFunc(all.List, func(r reached) bool { return r.Name == args[0] })
				if all.Current == args[0] {
					all.Current = ""
				}
				return "removed context " + args[0], nil
			})
		},
	}
}

func completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	all, err := readContexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, r := range all.List {
		out = append(out, r.Name)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
