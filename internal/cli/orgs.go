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

	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/tenants/settings"
	"github.com/llmguard/llmguard/pricing"
)

func orgsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "orgs", Short: "List, create and change orgs",
		Long: "Works on orgs in the configuration file and in Redis. Values set here override the file, field by field; --unset restores\n" +
			"the value of the file.\n\n" +
			adminHelp,
		Example: "  llmguard orgs list\n" +
			"  llmguard orgs create acme --name 'Acme Inc' --models 'gpt-*'\n" +
			"  llmguard orgs update acme --over-limit refuse --reason 'no queueing wanted'",
	}
	c.AddCommand(orgsListCommand(), orgsGetCommand(), orgsCreateCommand(), orgsUpdateCommand(),
		switchCommand("org", "disable", true), switchCommand("org", "enable", false), orgsDeleteCommand(),
		orgsPurgeCommand())
	return c
}

func orgsListCommand() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{Use: "list", Short: "List orgs", Args: cobra.NoArgs, Example: "  llmguard orgs list"}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data []admin.Org `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, "/orgs", nil, &l); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return orgTable(w, l.Data) })
		})
	}
	f.add(c, listFormats...)
	return c
}

func orgTable(w io.Writer, list []admin.Org) error {
	g := grid{
		head:    []string{"id", "name", "status", "users", "keys", "weight", "source"},
		numbers: []bool{false, false, false, true, true, true, false},
	}
	for _, o := range list {
		g.add(o.ID, escape.Text(o.Fields.Text("name")), onOff(o.Fields.Is("disabled")), strconv.Itoa(o.Users),
			strconv.Itoa(o.Keys), o.Fields.Text("weight"), string(o.Source))
	}
	return g.write(w)
}

func onOff(disabled bool) string {
	if disabled {
		return "disabled"
	}
	return "active"
}

// facts is a table of names and values.
func facts(w io.Writer, pairs ...string) error {
	g := grid{numbers: []bool{false, false}}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			g.add(pairs[i], pairs[i+1])
		}
	}
	return g.write(w)
}

func orgFacts(w io.Writer, o *admin.Org) error {
	return facts(w, slices.Concat(
		[]string{"id", o.ID, "status", onOff(o.Fields.Is("disabled"))}, settingsFacts(o.Fields),
		[]string{
			"worst case per hour", boundOf(o).HourText(pricing.Nano.String), "users", strconv.Itoa(o.Users),
			"keys", strconv.Itoa(o.Keys), "source", string(o.Source),
		})...)
}

// boundOf returns the spending bound in a response.
func boundOf(o *admin.Org) guard.Bound {
	b := guard.Bound{Hour: guard.Unlimited, None: o.Unbounded, Users: o.UnboundedUsers}
	if o.WorstHour != nil {
		b.Hour = pricing.Nano(*o.WorstHour)
	}
	return b
}

func all(list []string) string {
	if len(list) == 0 {
		return "all"
	}
	return escape.Text(strings.Join(list, ", "))
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// showOrg sends a request for an org and prints it.
func showOrg(c *cobra.Command, f *adminFlags, method, path string, body any) error {
	return f.run(c, func(a *adminClient) error {
		var o admin.Org
		if err := a.ask(c.Context(), method, path, body, &o); err != nil {
			return err
		}
		if method == http.MethodPost && o.Unbounded {
			fmt.Fprintf(c.ErrOrStderr(), "warning: %s.\n%s\n", boundOf(&o).Warning(o.ID), guard.BoundFix(o.ID))
		}
		return render(c.OutOrStdout(), f.output, o, func(w io.Writer) error { return orgFacts(w, &o) })
	})
}

func orgsGetCommand() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use:     "get ORG",
		Short:   "Show an org",
		Args:    cobra.ExactArgs(1),
		Example: "  llmguard orgs get acme",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return showOrg(c, &f, http.MethodGet, pathOf("orgs", args[0]), nil)
	}
	f.add(c, listFormats...)
	return c
}

func orgsCreateCommand() *cobra.Command {
	var f adminFlags
	s := settingsFlags(reflect.TypeFor[settings.Org]())
	c := &cobra.Command{
		Use: "create ORG", Short: "Create an org", Args: cobra.ExactArgs(1),
		Example: "  llmguard orgs create acme --name 'Acme Inc'",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		body, err := s.body(c, map[string]any{"id": args[0]})
		if err != nil {
			return err
		}
		return showOrg(c, &f, http.MethodPost, "/orgs", body)
	}
	f.add(c, listFormats...)
	f.why(c)
	s.add(c, false)
	return c
}

func orgsUpdateCommand() *cobra.Command {
	var f adminFlags
	s := settingsFlags(reflect.TypeFor[settings.Org]())
	c := &cobra.Command{
		Use: "update ORG", Short: "Change an org", Args: cobra.ExactArgs(1),
		Example: "  llmguard orgs update acme --weight 200\n  llmguard orgs update acme --unset weight\n" +
			"  llmguard orgs update acme --cache-max-age 1h --cache-cost 25%",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		body, err := s.body(c, map[string]any{})
		if err != nil {
			return err
		}
		return showOrg(c, &f, http.MethodPatch, pathOf("orgs", args[0]), body)
	}
	f.add(c, listFormats...)
	f.why(c)
	s.add(c, true)
	return c
}

func orgsDeleteCommand() *cobra.Command {
	return deleteCommand("org", "Delete an org that was created at runtime (its ledger and jobs are kept)",
		func(c *cobra.Command, a *adminClient, args []string) error {
			if err := a.ask(c.Context(), http.MethodDelete, pathOf("orgs", args[0]), nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "deleted org %s from Redis\n", args[0])
			return nil
		})
}
