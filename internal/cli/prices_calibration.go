package cli

import (
	"reflect"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/providers"
)

// showCalibration lists the models that match a pattern.
func showCalibration(c *cobra.Command, o *operated, a *adminClient) error {
	var all struct {
		Data []calibration.Row `json:"data"`
	}
	if err := a.ask(c.Context(), o.op.Method, o.path(), nil, &all); err != nil {
		return err
	}
	pattern, _ := c.Flags().GetString("model")
	rows := []calibration.Row{}
	for _, r := range all.Data {
		if providers.MatchAny([]string{pattern}, r.Model) {
			rows = append(rows, r)
		}
	}
	if pattern != "*" {
		o.command.None += " for models that match " + pattern
	}
	return o.listed(c, reflect.ValueOf(rows))
}
