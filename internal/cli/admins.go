package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/top"
)

// adminView is an administrator as the API shows it.
type adminView struct {
	admin.Admin
	Secret string `json:"secret,omitempty"`
}

func adminsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "admins", Short: "Make and end the keys of administrators",
		Long: "These keys open the admin API and nothing else. They are made and changed where the configuration file and its Redis are,\n" +
			"not over the network, so that a key that leaks makes no other; only `admins list` asks a running llmguard, too.",
		Example: "  llmguard admins create ops -c llmguard.yaml\n" +
			"  llmguard admins create dashboard --read-only --expires 90d",
	}
	c.AddCommand(adminsListCommand(), adminsCreateCommand(), adminsSwitchCommand("disable", true),
		adminsSwitchCommand("enable", false), adminsDeleteCommand())
	return c
}

func adminsListCommand() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{Use: "list", Short: "List the administrators", Args: cobra.NoArgs}
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
					g.add(v.ID, top.Printable(v.Name), v.Status, may(v.ReadOnly), v.Last4, day(v.Expires, "never"), string(v.Source))
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

// local is run on the configuration's Redis, whatever the environment says.
func (f *adminFlags) local(c *cobra.Command, do func(*adminClient) error) error {
	const there = "`%s` works where the configuration file and its Redis are, not over the network; run it there with " +
		"--config"
	if named, _ := c.Flags().GetString("context"); named != "" || f.url+f.key != "" {
		return fmt.Errorf(there, c.CommandPath())
	}
	if _, err := os.Stat(f.path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no configuration file %s; "+there, f.path, c.CommandPath())
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
	s.text("name", "name", "for people")
	s.when("expires", "expires", "a date, a time, or a duration from now (90d)")
	c := &cobra.Command{
		Use: "create ADMIN", Short: "Make an administrator's key; it is shown only now",
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
				fmt.Fprintf(w, "key (shown only now): %s\n\n", v.Secret)
				return facts(w, "id", v.ID, "name", top.Printable(v.Name), "may", may(v.ReadOnly), "expires (UTC)",
					day(v.Expires, "never"))
			})
		})
	}
	f.add(c, listFormats...)
	f.why(c)
	s.add(c, false)
	c.Flags().BoolVar(&readOnly, "read-only", false, "it changes nothing")
	return c
}

func adminsSwitchCommand(verb string, disabled bool) *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: verb + " ADMIN", Short: "Make an administrator's key " + onOff(disabled),
		Args: cobra.ExactArgs(1),
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
	c := &cobra.Command{Use: "delete ADMIN", Short: "Remove an administrator's key", Args: cobra.ExactArgs(1)}
	c.RunE = func(c *cobra.Command, args []string) error {
		if !yes {
			return fmt.Errorf("this removes the administrator %s for good; say --yes if you mean it (or disable it)", args[0])
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
	c.Flags().BoolVar(&yes, "yes", false, "really")
	return c
}
