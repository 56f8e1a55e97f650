package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/providers"
)

func calibrationCommand() *cobra.Command {
	var f adminFlags
	var model string
	c := &cobra.Command{
		Use: "calibration", Short: "Show token calibration of models without a public tokenizer", Args: cobra.NoArgs,
		Long: "Lists, by model, class of text and org, the billed input tokens per estimated token: \"mean\" is the expected value, \"hold\"\n" +
			"is the reserved value, \"seen\" is the mean of the bills alone, and \"prior\" shows mean and hold before any bills. \"base\" is\n" +
			"the number of tokens that the provider adds to every prompt. The proxies exchange these values every 10 seconds.\n\n" +
			adminHelp,
		Example: "  llmguard prices calibration --model 'claude-*'\n  llmguard prices calibration -o json",
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		return f.run(c, func(a *adminClient) error {
			rows, err := a.calibration(c.Context(), model)
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "no calibration data yet"+ofModels(model))
			}
			return render(c.OutOrStdout(), f.output, rows, func(w io.Writer) error { return calibrationTable(w, rows) })
		})
	}
	f.add(c, listFormats...)
	c.Flags().StringVar(&model, "model", "*", "only models that match this pattern (* matches any characters)")
	return c
}

// ofModels describes the model pattern.
func ofModels(pattern string) string {
	if pattern == "*" {
		return ""
	}
	return " for models that match " + pattern
}

// calibration returns the rows of the models that match a pattern.
func (a *adminClient) calibration(ctx context.Context, pattern string) ([]calibration.Row, error) {
	var all struct {
		Data []calibration.Row `json:"data"`
	}
	err := a.ask(ctx, http.MethodGet, "/calibration", nil, &all)
	rows := []calibration.Row{}
	for _, r := range all.Data {
		if providers.MatchAny([]string{pattern}, r.Model) {
			rows = append(rows, r)
		}
	}
	return rows, err
}

func calibrationTable(w io.Writer, rows []calibration.Row) error {
	if len(rows) == 0 {
		return nil
	}
	g := grid{
		head:    []string{"model", "answers as", "class", "org", "n", "mean", "hold", "seen", "base", "prior", "since"},
		numbers: []bool{false, false, false, false, true, true, true, true, true, false, false},
	}
	for _, r := range rows {
		g.add(r.Model, r.Version, r.Class, r.Org, strconv.FormatInt(r.N, 10), times(r.Mean), times(r.Hold), times(r.Seen),
			strconv.FormatInt(r.Base, 10), times(r.PriorMean)+" "+times(r.PriorHold), r.Since.Format(time.DateOnly))
	}
	return g.write(w)
}

// times formats a factor given in thousandths.
func times(permille int) string { return fmt.Sprintf("%d.%03d", permille/1000, permille%1000) }
