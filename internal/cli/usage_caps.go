package cli

import (
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/figures"
)

func capsCommand() *cobra.Command {
	var f adminFlags
	c := &cobra.Command{
		Use: "caps", Short: "Show the usage of spend caps", Args: cobra.NoArgs, Example: "  llmguard usage caps",
		Long: "Shows the current usage of each spend cap, over all orgs. \"held\" is the part of it that is reserved by calls in " +
			"flight.",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			var l struct {
				Data []admin.Cap `json:"data"`
			}
			if err := a.ask(c.Context(), http.MethodGet, "/caps", nil, &l); err != nil {
				return err
			}
			if len(l.Data) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "no spend caps configured; set spend_caps in the configuration")
			}
			return render(c.OutOrStdout(), f.output, l.Data, func(w io.Writer) error { return writeCaps(w, l.Data) })
		})
	}
	f.add(c, listFormats...)
	return c
}

func writeCaps(w io.Writer, list []admin.Cap) error {
	g := grid{
		head:    []string{"provider", "name", "metric", "mode", "used", "held", "amount", "left", "resets in"},
		numbers: []bool{false, false, false, false, true, true, true, true, true},
	}
	for _, c := range list {
		of := c.Provider
		if of == "" {
			of = "(all)"
		}
		n := func(n int64) string { return quantityText(w, c.Unit, n) }
		reset := budget.Endless
		if c.Reset != nil {
			reset = budget.Lasting(*c.Reset)
		}
		g.add(of, c.Name, c.Metric, c.Mode, n(c.Used), n(c.Held), n(c.Amount), n(c.Remaining), figures.Lasting(reset))
	}
	return g.write(w)
}
