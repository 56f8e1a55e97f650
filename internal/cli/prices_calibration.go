package cli

import (
	"reflect"
	"slices"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/calibration"
	"github.com/llmguard/llmguard/providers"
)

// showCalibration lists the models that match a pattern.
func showCalibration(c *cobra.Command, o *operated, a *adminClient) error {
	rows, err := list[calibration.Row](c.Context(), a, o.path())
	if err != nil {
		return err
	}
	pattern, _ := c.Flags().GetString("model")
	rows = slices.DeleteFunc(rows, func(r calibration.Row) bool { return !providers.MatchAny([]string{pattern}, r.Model) })
	if pattern != "*" {
		o.command.None += " for models that match " + pattern
	}
	return o.listed(c, reflect.ValueOf(rows))
}
