package admin

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/wire"
)

// labelOf returns the label of by=label:NAME, and whether the sums are by day as well; ok is false
// for every other grouping.
func labelOf(by []string) (label string, byDay, ok bool) {
	if i := slices.Index(by, "day"); i >= 0 {
		by, byDay = slices.Delete(slices.Clone(by), i, i+1), true
	}
	if len(by) != 1 {
		return "", false, false
	}
	if by[0] == budget.GroupLabel {
		return budget.GroupLabel, byDay, true
	}
	label, ok = strings.CutPrefix(by[0], "label:")
	return label, byDay, ok
}

// labelUsage adds up the sums of days by a label.
func (h *usageHandler) labelUsage(c *call, p usagePeriod, label string, byDay bool) (any, error) {
	if p.hours {
		return nil, wire.BadRequest("by", "invalid_value", "Sums by label are kept by UTC day. Leave out times and tz")
	}
	if !h.summed(label) {
		return nil, wire.BadRequest("by", "invalid_value",
			"There is no label %.40q with usage: true in the configuration", label)
	}
	list, err := h.opts.Budget.Ledger.LabelRollups(c.r.Context(), c.r.PathValue("org"), label, p.from, p.to)
	if err != nil {
		return nil, err
	}
	groups, total := budget.Group(list, func(r budget.LabelRollup) (at UsageLine) {
		at.Label = r.Value
		if byDay {
			at.Day = r.Begin.Format(time.DateOnly)
		}
		return at
	})
	u := Usage{
		From: p.from.Format(time.DateOnly), To: p.to.Add(-1).Format(time.DateOnly), Lines: []UsageLine{},
		Total: usageSums(total),
	}
	for line, s := range groups {
		line.UsageSums = usageSums(*s)
		u.Lines = append(u.Lines, line)
	}
	slices.SortFunc(u.Lines, func(a, b UsageLine) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(b.Cost, a.Cost), cmp.Compare(a.Label, b.Label))
	})
	return u, nil
}

// labelsOf parses labels of a query, name=value.
func labelsOf(pairs []string) (budget.Labels, error) {
	values := map[string]string{}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	return newLabels(values)
}

// newLabels checks labels of a request.
func newLabels(values map[string]string) (budget.Labels, error) {
	labels, err := budget.NewLabels(values)
	if err != nil {
		return "", wire.BadRequest("label", "invalid_value", "label: %v", err)
	}
	return labels, nil
}
