package admin

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/wire"
)

// labelOf returns the label that usage is grouped by, or "". It must be configured, because a misspelled
// one would silently be empty.
func (h *usageHandler) labelOf(by []string) (label string, err error) {
	for _, d := range by {
		name, ok := budget.LabelIn(d)
		named := func(l guard.Label) bool { return l.Name == name }
		switch {
		case !ok:
			continue
		case label != "" && name != label:
			return "", wire.BadRequest("by", "invalid_value", "by has two labels, %.40q and %.40q; choose one", label, name)
		case name != budget.GroupLabel && !slices.ContainsFunc(h.opts.Policy().Labels, named):
			return "", wire.BadRequest("by", "invalid_value", "There is no label %.40q in the configuration", name)
		}
		label = name
	}
	return label, nil
}

// daysAlone reports whether usage is grouped by a label and at most by day, which sums of days by
// label can answer.
func daysAlone(by []string) (byDay, ok bool) {
	if i := slices.Index(by, "day"); i >= 0 {
		by, byDay = slices.Delete(slices.Clone(by), i, i+1), true
	}
	if len(by) != 1 {
		return byDay, false
	}
	_, ok = budget.LabelIn(by[0])
	return byDay, ok
}

// labelUsage adds up the sums of days by a label.
func (h *usageHandler) labelUsage(c *call, p usagePeriod, label string, byDay bool) (any, error) {
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
