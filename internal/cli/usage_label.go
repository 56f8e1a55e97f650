package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
)

// byLabel finds the label among the dimensions.
func (r *report) byLabel() error {
	for _, d := range r.by {
		name, ok := budget.LabelIn(d)
		if !ok {
			continue
		}
		if !budget.ValidLabelName(name) {
			return misused("--by %s: expected label: and the name of a label", d)
		}
		if r.label != "" && r.label != name {
			return misused("--by %s: choose one label, %s or %s", strings.Join(r.by, ","), r.label, name)
		}
		r.label = name
	}
	return nil
}

// labelFilter is the --label flags of commands: values by name.
type labelFilter struct{ pairs []string }

func (f *labelFilter) add(c *cobra.Command, text string) {
	c.Flags().StringArrayVar(&f.pairs, "label", nil, text)
}

// values parses the flags.
func (f *labelFilter) values() (map[string]string, error) {
	out := map[string]string{}
	for _, pair := range f.pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || !budget.ValidLabelName(name) || !budget.ValidLabelValue(value) && value != budget.OtherLabel {
			return nil, misused("--label %s: expected name=value, such as project=mobile", pair)
		}
		out[name] = value
	}
	return out, nil
}

// fits reports whether labels have all the values.
func fits(want map[string]string, l budget.Labels) bool {
	for name, value := range want {
		if l.Get(name) != value {
			return false
		}
	}
	return true
}
