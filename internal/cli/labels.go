package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget/ledger"
)

// labelFilter is the --label flags of commands: values by name.
type labelFilter struct{ pairs []string }

func (f *labelFilter) add(c *cobra.Command, text string) {
	c.Flags().StringArrayVar(&f.pairs, "label", nil, text)
}

// values parses the flags.
func (f *labelFilter) values() (map[string]string, error) { return pairsOf("label", f.pairs) }

// pairsOf parses the values of a flag for name=value.
func pairsOf(flag string, pairs []string) (map[string]string, error) {
	out := map[string]string{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || !ledger.ValidLabelName(name) || !ledger.ValidLabelValue(value) && value != ledger.OtherLabel {
			return nil, misused("--%s %s: expected name=value, such as project=mobile", flag, pair)
		}
		out[name] = value
	}
	return out, nil
}
