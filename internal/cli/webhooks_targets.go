package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/webhook"
)

func webhooksTargetsCommand() *cobra.Command {
	var f adminFlags
	var org string
	c := &cobra.Command{
		Use: "targets", Short: "List webhook targets, including those switched off after status 410",
		Args:    cobra.NoArgs,
		Example: "  llmguard webhooks targets",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data []webhook.Target `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, pathOf("webhooks")+"?"+url.Values{"org": {org}}.Encode(), nil,
				&l); err != nil {
				return err
			}
			if len(l.Data) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "no webhook targets; set webhooks of an org in the configuration")
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return targetTable(w, l.Data) })
		})
	}
	f.add(c, listFormats...)
	c.Flags().StringVar(&org, "org", "", "only this org (default: all)")
	return c
}

func targetTable(w io.Writer, list []webhook.Target) error {
	if len(list) == 0 {
		return nil
	}
	g := grid{head: []string{"id", "org", "host", "events", "status"}, numbers: make([]bool, 5)}
	for i := range list {
		t := &list[i]
		state := "on"
		if t.Off != nil {
			state = "off for " + figures.Age(time.Since(*t.Off))
		}
		host := t.Host
		if host == "" {
			host = "(set by a request)"
		}
		g.add(t.ID, t.Org, escape.Text(host), all(t.Events), state)
	}
	return g.write(w)
}

func webhooksEnableCommand() *cobra.Command {
	var f adminFlags
	var org string
	c := &cobra.Command{
		Use: "enable TARGET", Short: "Re-enable a target that was switched off (then send what it missed with `llmguard webhooks " +
			"replay`)", Args: cobra.ExactArgs(1),
		Example: "  llmguard webhooks targets\n" +
			"  llmguard webhooks enable 3f9c1e0a7b24d68f05a1c2e3 --org acme --reason 'endpoint is back'",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error {
			var t webhook.Target
			if err := a.ask(c.Context(), http.MethodPost, pathOf("orgs", org, "webhooks", args[0], "enable"), map[string]any{},
				&t); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, t, func(w io.Writer) error { return targetTable(w, []webhook.Target{t}) })
		})
	}
	f.add(c, listFormats...)
	f.why(c)
	orgFlag(c, &org)
	return c
}
