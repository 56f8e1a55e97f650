package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
)

// adminView is an administrator as returned by the API.
type adminView struct {
	admin.Admin
	Secret string `json:"secret,omitempty"`
}

func adminsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "admins", Short: "Create and revoke administrator keys",
		Long: "Administrator keys grant access to the admin API only. Create and change them on a machine that has the configuration file and\n" +
			"reaches its Redis: a leaked key cannot create others over the network. Only `admins list` also works on a running llmguard.",
		Example: "  llmguard admins create ops -c llmguard.yaml\n" +
			"  llmguard admins create dashboard --read-only --expires 90d",
	}
	c.AddCommand(adminsListCommand(), adminsCreateCommand(), adminsSwitchCommand("disable", true),
		adminsSwitchCommand("enable", false), adminsDeleteCommand())
	return c
}

func adminsListCommand() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use:     "list",
		Short:   "List administrators",
		Args:    cobra.NoArgs,
		Example: "  llmguard admins list -c llmguard.yaml",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data []adminView `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, "/admins", nil, &l); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error {
				g := grid{head: []string{"id", "name", "status", "may", "ends in", "expires", "source"}, numbers: make([]bool, 7)}
				for _, v := range l.Data {
					g.add(v.ID, escape.Text(v.Name), v.Status, may(v.ReadOnly), v.Last4, day(v.Expires, "never"), string(v.Source))
				}
				return g.write(w)
			})
		})
	}
	f.add(c, listFormats...)
	return c
}

func may(readOnly bool) string {
	if readOnly {
		return "read"
	}
	return "read and write"
}

// local runs a command on the Redis of the configuration, whatever the environment says.
func (f *adminFlags) local(c *cobra.Command, do func(*adminClient) error) error {
	const there = "`%s` needs the configuration file and direct access to Redis, and does not work over the network; run it with " +
		"--config"
	if named, _ := c.Flags().GetString("context"); named != "" || f.url+f.key != "" {
		return fmt.Errorf(there, c.CommandPath())
	}
	if _, err := os.Stat(f.path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s not found. "+there, f.path, c.CommandPath())
	}
	a, err := f.openLocal(c.Context())
	if err != nil {
		return err
	}
	defer a.close()
	return do(a)
}

func adminsCreateCommand() *cobra.Command {
	var f adminFlags
	var s fields
	var readOnly bool
	s.text("name", "name", "display name")
	s.when("expires", "expires", "a date, a time, or a duration from now (90d)")
	c := &cobra.Command{
		Use: "create ADMIN", Short: "Create an administrator's key and show it once",
		Args: cobra.ExactArgs(1),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		body, err := s.body(c, map[string]any{"id": args[0], "read_only": readOnly})
		if err != nil {
			return err
		}
		return f.local(c, func(a *adminClient) error {
			var v adminView
			if err := a.ask(c.Context(), http.MethodPost, "/admins", body, &v); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, v, func(w io.Writer) error {
				fmt.Fprintf(w, "key (shown only once): %s\n\n", v.Secret)
				return facts(w, "id", v.ID, "name", escape.Text(v.Name), "may", may(v.ReadOnly), "expires (UTC)",
					day(v.Expires, "never"))
			})
		})
	}
	f.add(c, listFormats...)
	f.why(c)
	s.add(c, false)
	c.Flags().BoolVar(&readOnly, "read-only", false, "the key can read but not change anything")
	return c
}

func adminsSwitchCommand(verb string, disabled bool) *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: verb + " ADMIN", Short: strings.ToUpper(verb[:1]) + verb[1:] + " an administrator's key",
		Example: "  llmguard admins " + verb + " dashboard",
		Args:    cobra.ExactArgs(1),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.local(c, func(a *adminClient) error {
			if err := a.ask(c.Context(), http.MethodPatch, pathOf("admins", args[0]), map[string]any{"disabled": disabled},
				nil); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "administrator %s is %s\n", args[0], onOff(disabled))
			return nil
		})
	}
	f.add(c)
	f.why(c)
	return c
}

func adminsDeleteCommand() *cobra.Command {
	var f adminFlags
	var yes bool
	c := &cobra.Command{
		Use:     "delete ADMIN",
		Short:   "Delete an administrator's key",
		Args:    cobra.ExactArgs(1),
		Example: "  llmguard admins delete dashboard --yes",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if !yes {
			return fmt.Errorf("this permanently removes administrator %s. Confirm with --yes, or disable it instead", args[0])
		}
		return f.local(c, func(a *adminClient) error {
			if err := a.ask(c.Context(), http.MethodDelete, pathOf("admins", args[0]), nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "removed administrator %s\n", args[0])
			return nil
		})
	}
	f.add(c)
	f.why(c)
	c.Flags().BoolVar(&yes, "yes", false, "confirm")
	return c
}
