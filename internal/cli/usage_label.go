package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmguard/llmguard/budget"
)

// labelBy starts the dimension of a label in --by.
const labelBy = "label:"

// byLabel finds a label among the dimensions. Sums by label have no other dimension than time and
// org.
func (r *report) byLabel() error {
	for _, d := range r.by {
		name, ok := strings.CutPrefix(d, labelBy)
		if !ok {
			continue
		}
		if !budget.ValidLabelName(name) {
			return misused("--by %s: expected label: and the name of a label", d)
		}
		r.label = name
	}
	other := func(d string) bool {
		return !slices.Contains([]string{"org", "day", "month", "class", labelBy + r.label}, d)
	}
	if i := slices.IndexFunc(r.by, other); r.label != "" && i >= 0 {
		return misused("--by %s: sums by label can only be combined with org, day, month and class", r.by[i])
	}
	return nil
}

// readLabel adds the sums of an org by the label.
func (r *report) readLabel(ctx context.Context, l *ledgers, org string) error {
	if r.hours {
		return misused("--by %s%s: sums by label are kept by UTC day; leave out hours and --tz", labelBy, r.label)
	}
	list, err := l.LabelRollups(ctx, org, r.label, r.from, r.to)
	if err != nil {
		return err
	}
	for _, one := range list {
		sums, err := rollupOf(one)
		if err != nil {
			return err
		}
		before := len(r.rows)
		r.add(org, sums)
		for i := before; i < len(r.rows); i++ {
			r.rows[i].label = one.Label
		}
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
