package cli

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
)

func credentialsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "credentials", Short: "Set and remove an org's own credentials at providers",
		Long: "The org's calls then use its own provider account. The secret is read from standard input and encrypted with\n" +
			"queue.seal_keys; it cannot be read back.\n\n" +
			adminHelp,
		Example: "  llmguard orgs credentials set openai --org acme < acme-openai-key.txt\n" +
			"  llmguard orgs credentials list --org acme",
	}
	c.AddCommand(credentialsListCommand(), credentialsSetCommand(), credentialsDeleteCommand())
	return c
}

func credentialTable(w io.Writer, list []admin.Credential) error {
	g := grid{head: []string{"provider", "ends in", "encrypted", "set (UTC)"}, numbers: make([]bool, 4)}
	for _, v := range list {
		g.add(v.Provider, escape.Text(v.Last4), yesNo(v.Sealed), day(&v.Updated, ""))
	}
	return g.write(w)
}

func credentialsListCommand() *cobra.Command {
	var f adminFlags
	var org string
	c := &cobra.Command{
		Use:     "list",
		Short:   "List an org's own credentials",
		Args:    cobra.NoArgs,
		Example: "  llmguard orgs credentials list --org acme",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data []admin.Credential `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, pathOf("orgs", org, "credentials"), nil, &l); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return credentialTable(w, l.Data) })
		})
	}
	f.add(c, listFormats...)
	orgFlag(c, &org)
	return c
}

func credentialsSetCommand() *cobra.Command {
	var f adminFlags
	var org string
	var inClear bool
	c := &cobra.Command{
		Use: "set PROVIDER", Short: "Set the org's provider credential, read from standard input",
		Example: "  llmguard orgs credentials set openai --org acme < acme-openai-key.txt",
		Args:    cobra.ExactArgs(1),
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		raw, err := io.ReadAll(io.LimitReader(c.InOrStdin(), 64<<10))
		if err != nil {
			return err
		}
		secret := strings.TrimSpace(string(raw))
		if secret == "" {
			return errors.New("standard input is empty: pass the secret on it (an argument would be visible " +
				"to other users)")
		}
		return f.run(c, func(a *adminClient) error {
			var v admin.Credential
			if err := a.ask(c.Context(), http.MethodPut, pathOf("orgs", org, "credentials", args[0]),
				map[string]any{"secret": secret, "clear": inClear}, &v); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, v, func(w io.Writer) error {
				return credentialTable(w, []admin.Credential{v})
			})
		})
	}
	f.add(c, listFormats...)
	f.why(c)
	orgFlag(c, &org)
	c.Flags().BoolVar(&inClear, "clear", false, "store it unencrypted in Redis if there is no seal key")
	return c
}

func credentialsDeleteCommand() *cobra.Command {
	var org string
	c := deleteCommand("provider", "Remove an org's own credential (its calls use the deployment's account again)",
		func(c *cobra.Command, a *adminClient, args []string) error {
			if err := a.ask(c.Context(), http.MethodDelete, pathOf("orgs", org, "credentials", args[0]), nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "removed the %[2]s credential of org %[1]s\n", org, args[0])
			return nil
		})
	orgFlag(c, &org)
	return c
}
