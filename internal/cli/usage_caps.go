package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/config"
	"github.com/llmguard/llmguard/internal/app"
	"github.com/llmguard/llmguard/pricing"
)

func capsCommand() *cobra.Command {
	var path, output string
	c := &cobra.Command{
		Use: "caps", Short: "Show where the spend caps of providers and of the deployment stand", Args: cobra.NoArgs,
		Long: "Shows what each spend cap counts now, over all orgs. \"held\" is the part of what is used that calls in flight may give back.",
		RunE: func(c *cobra.Command, _ []string) error {
			if !slices.Contains([]string{"table", "json"}, output) {
				return fmt.Errorf("--output %s: expected one of table, json", output)
			}
			return showCaps(c.Context(), path, output, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	configFlag(c, &path)
	c.Flags().StringVarP(&output, "output", "o", "table", "table, json")
	return c
}

// capJSON is one limit of a cap. Amounts are nano-USD when the metric is cost.
type capJSON struct {
	Provider  string `json:"provider,omitempty"` // none: the deployment
	Name      string `json:"name"`
	Metric    string `json:"metric"`
	Mode      string `json:"mode"`
	Used      int64  `json:"used"`
	Held      int64  `json:"held"`
	Amount    int64  `json:"amount"`
	Remaining int64  `json:"remaining"`
	ResetMS   *int64 `json:"reset_ms"` // until nothing is used, if no more is; null: never
}

func showCaps(ctx context.Context, path, output string, w, notes io.Writer) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	if !cfg.Redis.Configured() {
		return app.ErrNoStore
	}
	caps, err := app.Caps(cfg)
	if err != nil {
		return err
	}
	rdb, err := app.Connect(cfg.Redis)
	if err != nil {
		return err
	}
	defer rdb.Close()
	store, list := budget.New(rdb, budget.Options{}), []capJSON{}
	var failed error
	for _, c := range caps {
		statuses, err := store.PeekCap(ctx, c)
		failed = errors.Join(failed, err)
		for _, s := range statuses {
			one := capJSON{
				c.Provider, s.LimitID, string(s.Metric), string(s.Mode), s.Used, s.Held, s.Amount, s.Remaining, nil,
			}
			if ms := s.Reset.Milliseconds(); s.Reset < budget.Endless {
				one.ResetMS = &ms
			}
			list = append(list, one)
		}
	}
	if failed == nil && len(list) == 0 {
		fmt.Fprintln(notes, "no spend cap is in force: see spend_caps in the configuration")
	}
	return errors.Join(failed, render(w, output, list, func(w io.Writer) error { return writeCaps(w, list) }))
}

func writeCaps(w io.Writer, list []capJSON) error {
	g := grid{
		head:    []string{"of", "name", "metric", "mode", "used", "held", "amount", "left", "resets in"},
		numbers: []bool{false, false, false, false, true, true, true, true, true},
	}
	for _, c := range list {
		of := c.Provider
		if of == "" {
			of = "(all)"
		}
		n := func(n int64) string {
			if c.Metric == string(budget.Cost) {
				return pricing.Nano(n).String()
			}
			return whole(n)
		}
		reset := budget.Endless
		if c.ResetMS != nil {
			reset = time.Duration(*c.ResetMS) * time.Millisecond
		}
		g.add(of, c.Name, c.Metric, c.Mode, n(c.Used), n(c.Held), n(c.Amount), n(c.Remaining), budget.LastingText(reset))
	}
	return g.write(w)
}
