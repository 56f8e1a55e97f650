package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/auth/keys"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

func keysCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "keys", Short: "List, create, change and rotate API keys",
		Long: "A key is shown once, when it is created. `keys new` creates one for the configuration file. The other commands work on\n" +
			"keys in the file and in Redis.\n\n" +
			adminHelp,
		Example: "  llmguard keys create --org acme --user alice --models 'gpt-4o*' --expires 2027-01-31\n" +
			"  llmguard keys rotate alice-1 --org acme --overlap 24h\n" +
			"  llmguard keys disable alice-1 --org acme --reason leaked",
	}
	c.AddCommand(newKeyCommand(), keysListCommand(), keyCommand("get KEY", "Show an API key", http.MethodGet),
		keysCreateCommand(),
		keyCommand("update KEY", "Change an API key", http.MethodPatch), switchCommand("key", "disable", true),
		switchCommand("key", "enable", false),
		keysRotateCommand(), keysDeleteCommand())
	return c
}

func keysListCommand() *cobra.Command {
	var f adminFlags
	var org, user string
	c := &cobra.Command{
		Use:   "list",
		Short: "List the API keys of an org",
		Args:  cobra.NoArgs,
		Example: "  llmguard keys list --org acme\n" +
			"  llmguard keys list --org acme --user alice",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		path := pathOf("orgs", org, "keys")
		if user != "" {
			path += "?user=" + url.QueryEscape(user)
		}
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data []admin.Key `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, path, nil, &l); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return keyTable(w, l.Data) })
		})
	}
	f.add(c, listFormats...)
	orgFlag(c, &org)
	c.Flags().StringVar(&user, "user", "", "only this user's")
	return c
}

func keyTable(w io.Writer, list []admin.Key) error {
	g := grid{
		head:    []string{"id", "user", "name", "ends with", "status", "expires", "last used", "source"},
		numbers: make([]bool, 8),
	}
	for _, k := range list {
		g.add(k.ID, k.User, escape.Text(k.Fields.Text("name")), k.Last4, k.Status, dayOf(k.Fields.Text("expires"), "never"),
			day(k.LastUsed, "unknown"), string(k.Source))
	}
	return g.write(w)
}

// day formats a time in UTC, to the minute.
func day(t *time.Time, none string) string {
	if t == nil {
		return none
	}
	return t.UTC().Format("2006-01-02 15:04")
}

// dayOf is day for a time as JSON has it.
func dayOf(text, none string) string {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return none
	}
	return day(&at, none)
}

func keyFacts(w io.Writer, k *admin.Key) error {
	return facts(w, slices.Concat(
		[]string{"id", k.ID, "org", k.Org, "user", k.User, "status", k.Status, "ends with", k.Last4}, settingsFacts(k.Fields),
		[]string{
			"old key until (UTC)", day(k.OldUntil, ""), "last used (UTC)", day(k.LastUsed, "unknown"),
			"source", string(k.Source),
		})...)
}

// showKey sends a request for a key and prints it, the secret first.
func showKey(c *cobra.Command, f *adminFlags, method, path string, body any) error {
	return f.run(c, func(a *adminClient) error {
		var k admin.NewKey
		if err := a.ask(c.Context(), method, path, body, &k); err != nil {
			return err
		}
		if k.Secret == "" {
			return render(c.OutOrStdout(), f.output, k.Key, func(w io.Writer) error { return keyFacts(w, &k.Key) })
		}
		return render(c.OutOrStdout(), f.output, k, func(w io.Writer) error {
			fmt.Fprintf(w, "key (shown only once): %s\n\n", k.Secret)
			return keyFacts(w, &k.Key)
		})
	})
}

func keyCommand(use, short, method string) *cobra.Command {
	var f adminFlags
	var org string
	s := settingsFlags(reflect.TypeFor[settings.Key]())
	c := &cobra.Command{Use: use, Short: short, Example: exampleOf("key", "get"), Args: cobra.ExactArgs(1)}
	if method == http.MethodPatch {
		c.Example = exampleOf("key", "update") + " --concurrency 4"
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		var body any
		if method == http.MethodPatch {
			given, err := s.body(c, map[string]any{})
			if err != nil {
				return err
			}
			body = given
		}
		return showKey(c, &f, method, pathOf("orgs", org, "keys", args[0]), body)
	}
	f.add(c, listFormats...)
	orgFlag(c, &org)
	if method == http.MethodPatch {
		f.why(c)
		s.add(c, true)
	}
	return c
}

func keysCreateCommand() *cobra.Command {
	var f adminFlags
	var org, user string
	var test bool
	s := settingsFlags(reflect.TypeFor[settings.Key]())
	c := &cobra.Command{
		Use: "create [KEY]", Short: "Create an API key for a user and show it once", Args: cobra.MaximumNArgs(1),
		Example: "  llmguard keys create --org acme --user alice\n" +
			"  llmguard keys create ci --org acme --user bot --scopes calls --concurrency 4 --expires 90d",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		body := map[string]any{"user": user}
		if len(args) > 0 {
			body["id"] = args[0]
		}
		if test {
			body["test"] = true
		}
		given, err := s.body(c, body)
		if err != nil {
			return err
		}
		return showKey(c, &f, http.MethodPost, pathOf("orgs", org, "keys"), given)
	}
	f.add(c, listFormats...)
	f.why(c)
	orgFlag(c, &org)
	c.Flags().StringVar(&user, "user", "", "the user who owns the key (required)")
	c.Flags().BoolVar(&test, "test", false, "create a key that begins with lg_test_")
	_ = c.MarkFlagRequired("user")
	s.add(c, false)
	return c
}

func keysRotateCommand() *cobra.Command {
	var f adminFlags
	var org, overlap string
	var keep bool
	c := &cobra.Command{
		Use: "rotate KEY", Short: "Replace a key; the old one keeps working for a while",
		Args: cobra.ExactArgs(1),
		Example: "  llmguard keys rotate alice-1 --org acme --overlap 7d\n" +
			"  llmguard keys rotate alice-1 --org acme --overlap 0s --reason leaked",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return showKey(c, &f, http.MethodPost, pathOf("orgs", org, "keys", args[0], "rotate"),
			map[string]any{"overlap": overlap, "keep_children": keep})
	}
	f.add(c, listFormats...)
	f.why(c)
	orgFlag(c, &org)
	c.Flags().StringVar(&overlap, "overlap", "24h", "how long the old key keeps working, at most 90d (0s: revoke it now)")
	c.Flags().BoolVar(&keep, "keep-children", false, "keep the child keys that the old key created; without it they end "+
		"with the old key")
	return c
}

func keysDeleteCommand() *cobra.Command {
	var org string
	c := deleteCommand("key", "Delete an API key that was created at runtime",
		func(c *cobra.Command, a *adminClient, args []string) error {
			if err := a.ask(c.Context(), http.MethodDelete, pathOf("orgs", org, "keys", args[0]), nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "deleted key %s of org %s from Redis\n", args[0], org)
			return nil
		})
	orgFlag(c, &org)
	return c
}

func newKeyCommand() *cobra.Command {
	var path, id string
	c := &cobra.Command{
		Use: "new", Short: "Create an API key and its hash for the configuration file", Args: cobra.NoArgs,
		Example: "  llmguard keys new --id alice-2 -c llmguard.yaml",
		Long: "Prints a new key, once, and the entry to add to a user in the configuration. Only its hash is stored. With --config the\n" +
			"hash uses the first pepper of the file.",
		RunE: func(c *cobra.Command, _ []string) error {
			pepper, err := firstPepper(path)
			if err != nil {
				return err
			}
			key := keys.New(keys.Live)
			fmt.Fprintf(c.OutOrStdout(),
				"key (shown only once): %s\n\nadd this to the user in the configuration:\n\n  keys:\n    - id: %s\n      hash: %s\n",
				key, id, keys.Hash(pepper, key))
			return nil
		},
	}
	c.Flags().StringVarP(&path, "config", "c", "", "configuration with the pepper to use")
	c.Flags().StringVar(&id, "id", "key-1", "id of the key in logs and the ledger")
	return c
}

func firstPepper(path string) (keys.Pepper, error) {
	if path == "" {
		return keys.Pepper{}, nil
	}
	cfg, err := config.Load(path)
	if err != nil || len(cfg.Auth.Peppers) == 0 {
		return keys.Pepper{}, err
	}
	p := cfg.Auth.Peppers[0]
	return keys.Pepper{ID: p.ID, Secret: p.Secret.Reveal()}, nil
}
