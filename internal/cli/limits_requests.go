package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
)

func limitsRequestsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "requests", Short: "List, approve and deny callers' requests for more of a limit",
		Long: "With raise_requests in the configuration, a caller whose call a limit refused can request more of it, with\n" +
			"POST /v1/limit_requests. Approving creates an override, which expires automatically.\n\n" + adminHelp,
		Example: "  llmguard limits requests list --status pending\n" +
			"  llmguard limits requests approve lreq_01m84kynm3jp5p1nr8mr0yampe --amount '$10'\n" +
			"  llmguard limits requests deny lreq_01m84kynm3jp5p1nr8mr0yampe --reason 'use the batch API'",
	}
	c.AddCommand(limitRequestsListCommand(), limitRequestsApproveCommand(), limitRequestsDenyCommand())
	return c
}

func limitRequestsListCommand() *cobra.Command {
	var f adminFlags
	var org, status string
	c := &cobra.Command{
		Use: "list", Short: "List requests, newest first; until a week after the end of what was requested",
		Example: "  llmguard limits requests list --status pending", Args: cobra.NoArgs,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		q := url.Values{}
		if org != "" {
			q.Set("org", org)
		}
		if status != "" {
			q.Set("status", status)
		}
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data []admin.LimitRequest `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, pathOf("limit_requests")+"?"+q.Encode(), nil, &l); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error {
				g := grid{
					head:    []string{"id", "status", "org", "user", "limit", "amount", "until (UTC)", "by", "reason"},
					numbers: make([]bool, 9),
				}
				for _, r := range l.Data {
					g.add(r.ID, r.Status, r.Org, r.User, r.Limit, r.Amount, day(&r.Until, ""), escape.Text(r.DecidedBy),
						escape.Text(r.Reason))
				}
				return g.write(w)
			})
		})
	}
	f.add(c, listFormats...)
	c.Flags().StringVar(&org, "org", "", "only those of this org")
	c.Flags().StringVar(&status, "status", "", "only those that are pending, approved, denied, withdrawn or expired")
	return c
}

func limitRequestsApproveCommand() *cobra.Command {
	var f adminFlags
	var amount, end string
	c := &cobra.Command{
		Use: "approve REQUEST", Short: "Approve a request: raise the limit until the requested end", Args: cobra.ExactArgs(1),
		Long: "The next call of the caller continues immediately, and waiting jobs continue. Approving again changes nothing.\n" +
			"--until accepts the same as limits override.",
		Example: "  llmguard limits requests approve lreq_01m84kynm3jp5p1nr8mr0yampe\n" +
			"  llmguard limits requests approve lreq_01m84kynm3jp5p1nr8mr0yampe --amount '$10' --until tonight --reason 'half is enough'",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		body := map[string]any{}
		if err := emptied(c, "amount", "until"); err != nil {
			return err
		}
		if amount != "" {
			body["amount"] = amount
		}
		if end != "" {
			at, err := until(end, time.Now())
			if err != nil {
				return misused("--until %w", err)
			}
			body["until"] = at
		}
		if f.reason != "" {
			body["reason"] = f.reason
		}
		return f.run(c, func(a *adminClient) error { return a.decide(c, &f, args[0], "approve", body) })
	}
	f.add(c, listFormats...)
	f.why(c)
	c.Flags().StringVar(&amount, "amount", "", "amount to add instead of the requested one: '$10'")
	c.Flags().StringVar(&end, "until", "", "when the override expires, instead of the requested end")
	return c
}

func limitRequestsDenyCommand() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "deny REQUEST", Short: "Deny a request; the caller sees the reason", Args: cobra.ExactArgs(1),
		Example: "  llmguard limits requests deny lreq_01m84kynm3jp5p1nr8mr0yampe --reason 'use the batch API'",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error {
			return a.decide(c, &f, args[0], "deny", map[string]any{"reason": f.reason})
		})
	}
	f.add(c, listFormats...)
	f.why(c)
	_ = c.MarkFlagRequired("reason")
	return c
}

// decide approves or denies a request and prints it.
func (a *adminClient) decide(c *cobra.Command, f *adminFlags, id, how string, body map[string]any) error {
	var r admin.LimitRequest
	if err := a.ask(c.Context(), http.MethodPost, pathOf("limit_requests", id, how), body, &r); err != nil {
		return err
	}
	return render(c.OutOrStdout(), f.output, r, func(w io.Writer) error {
		if r.ApprovedUntil == nil {
			fmt.Fprintf(w, "request %s of %s is %s\n", r.ID, r.User, r.Status)
			return nil
		}
		fmt.Fprintf(w, "%s: %s more for %s until %s\nend it early with: llmguard limits end %s --org %s\n", r.Limit,
			r.ApprovedAmount, r.User, r.ApprovedUntil.Local().Format("2006-01-02 15:04 MST"), r.Override, r.Org)
		return nil
	})
}
