package admin

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/guard"
)

// Spend is what orgs spent in a period, by groups of calls. Amounts are in nano-USD; those of the
// groups and of the others add up to the total.
type Spend struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"` // exclusive
	Step int64     `json:"step_seconds"`
	By   []string  `json:"by"`
	// Dimensions are what spending can be grouped by.
	Dimensions []string `json:"dimensions"`
	// Source is days, hours or entries: the sums or ledger entries that were added up.
	Source string       `json:"source"`
	Groups []SpendGroup `json:"groups"` // highest cost first
	// Others is the sum of the groups beyond the limit, and MoreGroups their number.
	Others     SpendGroup `json:"others"`
	MoreGroups int        `json:"more_groups"`
	Total      SpendGroup `json:"total"`
	// Since is set if entries before it were not read, because there are too many or they are no
	// longer in the ledger. Then the sums are those since then.
	Since *time.Time `json:"since"`
}

// SpendGroup is what the calls with the same values spent.
type SpendGroup struct {
	Values []string `json:"values"` // in the order of by
	Orgs   []string `json:"orgs"`
	Calls  int64    `json:"calls"`
	Input  int64    `json:"input_tokens"`
	Output int64    `json:"output_tokens"`
	Cost   int64    `json:"cost_nano_usd"`
	// Before is the cost in the period of the same length before; null if it is not known.
	Before *int64  `json:"before_nano_usd"`
	Series []int64 `json:"series_nano_usd"` // cost by step
}

// Bounds of one answer.
const (
	maxSpendSteps  = 1000
	maxSpendGroups = 10_000
	maxSpendCells  = maxSpendGroups * ledger.MostDays // groups times steps
	maxFilterText  = 2000
)

var spendParameters = []parameter{
	orgsParameter,
	{name: "by", text: "Any of " + strings.Join(ledger.Groupings(), ", ") +
		", group and label:NAME, separated by commas; default: user"},
	{name: "from", text: "A time (RFC 3339) or UTC day; default: a day ago"},
	{name: "to", text: "A time, or the last day; default: now"},
	{name: "step", text: "Length of a step of the series, such as 5m, 1h or 1d; default: by the period"},
	filterParameter,
	{name: "limit", text: "Maximum number of groups; the others are one sum; default: 20"},
}

var filterParameter = parameter{
	name: "filter",
	text: "Conditions that calls must meet, such as user=alice run=nightly-7 model=gpt-* status>=400 cost>0.50; " +
		"a word without an operator is searched in ids, users, keys, models and values of labels",
}

func (h *usageHandler) getSpend(c *call) (any, error) {
	q, err := h.spendQuery(c)
	if err != nil {
		return nil, err
	}
	limit, err := c.number("limit", 20, maxSpendGroups)
	if err != nil {
		return nil, err
	}
	steps := int((q.To.Sub(q.From) + q.Step - 1) / q.Step)
	if limit*steps > maxSpendCells {
		return nil, invalid("limit", "%d groups with %d steps each are more than %d amounts: "+
			"choose a longer step or a lower limit", limit, steps, maxSpendCells)
	}
	now, err := h.report(c.r.Context(), q)
	if err != nil {
		return nil, err
	}
	out := Spend{
		From: q.From, To: q.To, Step: int64(q.Step.Seconds()), Dimensions: h.dimensionNames(), Source: string(now.Source),
		Groups: []SpendGroup{},
	}
	for _, d := range q.By {
		out.By = append(out.By, d.Name)
	}
	before := map[string]int64{}
	known := now.Since.IsZero()
	if known {
		q.From, q.To = q.From.Add(q.From.Sub(q.To)), q.From
		past, err := h.report(c.r.Context(), q)
		if err != nil {
			return nil, err
		}
		known = past.Since.IsZero()
		for _, g := range past.Rows {
			before[strings.Join(g.Values, "\x00")] = int64(g.Cost)
		}
		out.Total.before(int64(past.Total.Cost), known)
	} else {
		out.Since = &now.Since
	}
	out.fill(now, limit, func(values []string) (int64, bool) { return before[strings.Join(values, "\x00")], known })
	return out, nil
}

func (g *SpendGroup) before(n int64, known bool) {
	if known {
		g.Before = &n
	}
}

// fill sets the groups, the others and the total.
func (s *Spend) fill(from *ledger.Report, limit int, before func(values []string) (int64, bool)) {
	for _, sum := range []*SpendGroup{&s.Others, &s.Total} {
		sum.Values, sum.Orgs, sum.Series = []string{}, []string{}, make([]int64, from.Steps)
	}
	for i, g := range from.Rows {
		s.Total.add(g)
		if i >= limit {
			s.MoreGroups++
			s.Others.add(g)
			continue
		}
		one := SpendGroup{Values: g.Values, Series: make([]int64, from.Steps)}
		one.add(g)
		one.before(before(g.Values))
		s.Groups = append(s.Groups, one)
	}
}

func (g *SpendGroup) add(other *ledger.Row) {
	g.Calls += other.Calls
	g.Input += other.Input
	g.Output += other.Output
	g.Cost += int64(other.Cost)
	for i, n := range other.Series {
		g.Series[i] += int64(n)
	}
	for _, org := range other.Orgs {
		if !slices.Contains(g.Orgs, org) {
			g.Orgs = append(g.Orgs, org)
		}
	}
}

// scan runs a read of the ledger when less than two of this process run.
func scan[T any](ctx context.Context, h *usageHandler, read func() (T, error)) (T, error) {
	select {
	case h.scans <- struct{}{}:
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
	defer func() { <-h.scans }()
	return read()
}

func (h *usageHandler) dimensionNames() []string {
	var labels []string
	for _, l := range h.opts.Policy().Labels {
		labels = append(labels, l.Name)
	}
	for _, o := range h.opts.Policy().Orgs {
		if len(o.Groups) > 0 {
			labels = append(labels, ledger.GroupLabel)
			break
		}
	}
	return ledger.Names(labels...)
}

func (h *usageHandler) spendQuery(c *call) (q ledger.Query, err error) {
	q.Orgs, err = h.dir.wantedLedgers(c)
	if err != nil {
		return q, err
	}
	q.By, err = ledger.ParseBy(cmp.Or(c.r.URL.Query().Get("by"), "user"))
	if err != nil {
		return q, invalid("by", "by: %v", err)
	}
	q.Filter, err = h.filter(c)
	if err != nil {
		return q, err
	}
	yesterday := c.start.Add(-24 * time.Hour).Format(time.RFC3339)
	q.From, _, err = instant("from", cmp.Or(c.r.URL.Query().Get("from"), yesterday), c.start.UTC())
	if err != nil {
		return q, err
	}
	_, q.To, err = instant("to", cmp.Or(c.r.URL.Query().Get("to"), "now"), c.start.UTC())
	if err != nil {
		return q, err
	}
	q.Step, err = ledger.ParseStep(c.r.URL.Query().Get("step"), q.To.Sub(q.From))
	if err != nil {
		return q, invalid("step", "%v", err)
	}
	q.From = q.From.Truncate(q.Step)
	if end := q.To.Truncate(q.Step); end.Before(q.To) {
		q.To = end.Add(q.Step)
	}
	if !q.From.Before(q.To) || q.To.Sub(q.From) > ledger.MostDays*24*time.Hour {
		return q, invalid("from", "from must be before to, by at most %d days", ledger.MostDays)
	}
	if q.To.Sub(q.From)/q.Step > maxSpendSteps {
		return q, invalid("step", "step is too short for this period: at most %d steps", maxSpendSteps)
	}
	return q, nil
}

func (h *usageHandler) filter(c *call) (ledger.Filter, error) {
	text := strings.Join(c.r.URL.Query()["filter"], " ")
	if len(text) > maxFilterText {
		return ledger.Filter{}, invalid("filter", "filter has more than %d bytes", maxFilterText)
	}
	f, err := ledger.ParseFilter(text, func(name string) bool {
		return slices.ContainsFunc(h.opts.Policy().Labels, func(l guard.Label) bool { return l.Name == name })
	})
	if err != nil {
		return f, invalid("filter", "filter: %v", err)
	}
	return f, nil
}
