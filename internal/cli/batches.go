package cli

import (
	"fmt"
	"reflect"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/escape"
)

// cancelBatches cancels batches of any org, and prints them.
func cancelBatches(c *cobra.Command, o *operated, a *adminClient) error {
	out := []admin.BatchLine{}
	for _, id := range o.args {
		b, err := get[admin.BatchLine](c.Context(), a, pathOf("batches", id))
		if err == nil {
			o.values["org"], o.values["user"], o.values["batch"] = b.Org, b.User, id
			_, err = o.ask(c, a)
		}
		if err == nil {
			b, err = get[admin.BatchLine](c.Context(), a, pathOf("batches", id))
		}
		if err != nil {
			return fmt.Errorf("batch %s: %w", escape.Text(id), err)
		}
		out = append(out, b)
	}
	return o.list(c, reflect.ValueOf(out))
}
