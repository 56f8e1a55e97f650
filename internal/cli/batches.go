package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/pricing"
)

func batchesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "batches", Short: "List, show and cancel batches of any org",
		Example: "  llmguard batches list --open\n" +
			"  llmguard batches show batch_5ycmz7yqwdzcprxg5kzvw2xkfe",
		Long: "For operators. Callers use `llmguard batch` for their own batches.\n\n" + adminHelp,
	}
	c.AddCommand(batchesListCommand(), batchesShowCommand(), batchesCancelCommand())
	return c
}

func batchesListCommand() *cobra.Command {
	var f adminFlags
	var org, user string
	var open bool
	c := &cobra.Command{
		Use: "list", Short: "List batches, unfinished first, then newest first", Args: cobra.NoArgs,
		Example: "  llmguard batches list\n  llmguard batches list --org acme --open -o json",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		q := url.Values{}
		for name, value := range map[string]string{"org": org, "user": user, "status": map[bool]string{true: "open"}[open]} {
			if value != "" {
				q.Set(name, value)
			}
		}
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data    []admin.BatchLine `json:"data"`
				HasMore bool              `json:"has_more"`
			}
			if err := a.ask(c.Context(), http.MethodGet, pathOf("batches")+"?"+q.Encode(), nil, &l); err != nil {
				return err
			}
			if l.HasMore {
				fmt.Fprintf(c.ErrOrStderr(), "showing the first %d; filter with --org or --user to see others\n", len(l.Data))
			}
			if len(l.Data) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "no batches")
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return batchTable(w, l.Data) })
		})
	}
	f.add(c, listFormats...)
	c.Flags().StringVar(&org, "org", "", "only this org (default: all)")
	c.Flags().StringVar(&user, "user", "", "only this user")
	c.Flags().BoolVar(&open, "open", false, "only unfinished batches")
	return c
}

func batchTable(w io.Writer, list []admin.BatchLine) error {
	if len(list) == 0 {
		return nil
	}
	g := grid{
		head:    []string{"batch", "org", "user", "status", "model", "lines", "failed", "cost", "created (UTC)"},
		numbers: []bool{false, false, false, false, false, true, true, true, false},
	}
	for i := range list {
		b := &list[i]
		g.add(b.ID, b.Org, b.User, b.Status, escape.Text(b.Model), fmt.Sprintf("%d/%d", b.Done, b.Lines),
			strconv.FormatInt(b.Failed, 10),
			usd(w, pricing.Nano(b.Charged)), day(&b.Created, ""))
	}
	return g.write(w)
}

func batchesShowCommand() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "show BATCH", Short: "Show the owner, progress and cost of a batch", Args: cobra.ExactArgs(1),
		Example: "  llmguard batches show batch_5ycmz7yqwdzcprxg5kzvw2xkfe",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error {
			var b admin.BatchLine
			if err := a.ask(c.Context(), http.MethodGet, pathOf("batches", args[0]), nil, &b); err != nil {
				return err
			}
			return render(c.OutOrStdout(), f.output, b, func(w io.Writer) error { return batchFacts(w, &b) })
		})
	}
	f.add(c, listFormats...)
	return c
}

func batchFacts(w io.Writer, b *admin.BatchLine) error {
	return facts(w, "batch", b.ID, "status", b.Status, "owner", b.Org+" / "+b.User+" / "+b.Key, "requests",
		b.Endpoint+", "+escape.Text(b.Model),
		"lines", fmt.Sprintf("%d of %d done, %d failed", b.Done, b.Lines, b.Failed),
		"cost", usd(w, pricing.Nano(b.Charged))+" so far, estimated "+usd(w, pricing.Nano(b.Estimate)),
		"created (UTC)", day(&b.Created, ""), "expires (UTC)", day(&b.Expires, ""), "ended (UTC)", day(b.Ended, ""))
}

func batchesCancelCommand() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "cancel BATCH...", Short: "Cancel batches (running lines finish, results are kept)",
		Args:    cobra.MinimumNArgs(1),
		Example: "  llmguard batches cancel batch_5ycmz7yqwdzcprxg5kzvw2xkfe --reason 'wrong model'",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		return f.run(c, func(a *adminClient) error {
			out := []admin.BatchLine{}
			for _, id := range args {
				b, err := a.cancelBatch(c, id)
				if err != nil {
					return fmt.Errorf("batch %s: %w", escape.Text(id), err)
				}
				out = append(out, b)
			}
			return render(c.OutOrStdout(), f.output, out, func(w io.Writer) error { return batchTable(w, out) })
		})
	}
	f.add(c, listFormats...)
	f.why(c)
	return c
}

// cancelBatch cancels a batch of any org and returns its new state.
func (a *adminClient) cancelBatch(c *cobra.Command, id string) (b admin.BatchLine, err error) {
	if err := a.ask(c.Context(), http.MethodGet, pathOf("batches", id), nil, &b); err != nil {
		return b, err
	}
	path := pathOf("orgs", b.Org, "users", b.User, "batches", id, "cancel")
	if err := a.ask(c.Context(), http.MethodPost, path, map[string]any{}, nil); err != nil {
		return b, err
	}
	return b, a.ask(c.Context(), http.MethodGet, pathOf("batches", id), nil, &b)
}
