package cli

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

func usersCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "users", Short: "List, create and change users of an org", Long: adminHelp,
		Example: "  llmguard users list --org acme\n" +
			"  llmguard users create alice --org acme --name 'Alice A.'\n" +
			"  llmguard users disable alice --org acme --reason 'left'",
	}
	c.AddCommand(usersListCommand(), userCommand("get USER", "Show a user", http.MethodGet),
		userCommand("create USER", "Create a user", http.MethodPost),
		userCommand("update USER", "Change a user", http.MethodPatch), switchCommand("user", "disable", true),
		switchCommand("user", "enable", false), usersDeleteCommand())
	return c
}

func usersListCommand() *cobra.Command {
	var f adminFlags
	var org string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List users of an org",
		Args:    cobra.NoArgs,
		Example: "  llmguard users list --org acme",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data []admin.User `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, pathOf("orgs", org, "users"), nil, &l); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error {
				g := grid{
					head:    []string{"id", "name", "status", "keys", "weight", "source"},
					numbers: []bool{false, false, false, true, true, false},
				}
				for _, u := range l.Data {
					g.add(u.ID, escape.Text(u.Fields.Text("name")), onOff(u.Fields.Is("disabled")), strconv.Itoa(u.Keys),
						u.Fields.Text("weight"), string(u.Source))
				}
				return g.write(w)
			})
		})
	}
	f.add(c, listFormats...)
	orgFlag(c, &org)
	return c
}

// userCommand shows, creates or changes a user, depending on the method.
func userCommand(use, short, method string) *cobra.Command {
	var f adminFlags
	var org string
	s := settingsFlags(reflect.TypeFor[settings.User]())
	verb, _, _ := strings.Cut(use, " ")
	c := &cobra.Command{Use: use, Short: short, Example: exampleOf("user", verb), Args: cobra.ExactArgs(1)}
	if method == http.MethodPatch {
		c.Example += " --weight 200"
	}
	c.RunE = func(c *cobra.Command, args []string) (err error) {
		path, body := pathOf("orgs", org, "users", args[0]), any(nil)
		switch method {
		case http.MethodPost:
			path = pathOf("orgs", org, "users")
			body, err = s.body(c, map[string]any{"id": args[0]})
		case http.MethodPatch:
			body, err = s.body(c, map[string]any{})
		}
		if err != nil {
			return err
		}
		return f.run(c, func(a *adminClient) error {
			var u admin.User
			if err := a.ask(c.Context(), method, path, body, &u); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, u, func(w io.Writer) error {
				return facts(w, slices.Concat(
					[]string{"id", u.ID, "org", u.Org, "status", onOff(u.Fields.Is("disabled"))}, settingsFacts(u.Fields),
					[]string{"keys", strconv.Itoa(u.Keys), "source", string(u.Source)})...)
			})
		})
	}
	f.add(c, listFormats...)
	orgFlag(c, &org)
	if method != http.MethodGet {
		f.why(c)
		s.add(c, method == http.MethodPatch)
	}
	return c
}

func usersDeleteCommand() *cobra.Command {
	var org string
	c := deleteCommand("user", "Delete a user that was created at runtime, with keys and limits (the ledger is kept)",
		func(c *cobra.Command, a *adminClient, args []string) error {
			if err := a.ask(c.Context(), http.MethodDelete, pathOf("orgs", org, "users", args[0]), nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "deleted user %s of org %s from Redis\n", args[0], org)
			return nil
		})
	orgFlag(c, &org)
	return c
}
