package cli

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/pricing"
)

// whole formats an integer for a table.
func whole(n int64) string { return strconv.FormatInt(n, 10) }

// column is a figure of a line, in tables and CSV.
type column struct {
	name, csv string
	of        func(*line) string
	money     func(*line) pricing.Nano // replaces of for amounts
	rare      bool                     // omitted from a table if 0 everywhere
}

func (r *report) columns() []column {
	cost := column{name: "cost", csv: "cost_usd", money: func(l *line) pricing.Nano { return l.Cost }}
	if r.byClass() {
		return []column{{name: "tokens", csv: "tokens", of: func(l *line) string { return whole(l.tokens()) }}, cost}
	}
	count := func(name, csv string, of func(*line) int64) column {
		return column{name: name, csv: csv, of: func(l *line) string { return whole(of(l)) }}
	}
	list := []column{
		count("refused", "refused_calls", func(l *line) int64 { return l.refused }),
		count("waited", "waited_calls", func(l *line) int64 { return l.waited }),
	}
	for i := range list {
		list[i].rare = true
	}
	if !r.countsRefusals() {
		list = nil
	}
	written := count("written", "cache_write_tokens", func(l *line) int64 { return l.Written })
	written.rare = true
	return append([]column{
		count("calls", "calls", func(l *line) int64 { return l.Calls }),
		count("input", "input_tokens", func(l *line) int64 { return l.Input }),
		count("cached", "cached_input_tokens", func(l *line) int64 { return l.Cached }),
		written,
		count("output", "output_tokens", func(l *line) int64 { return l.Output }),
		cost,
		{name: "estimated", csv: "estimated_usd", money: func(l *line) pricing.Nano { return l.Estimated }},
		{name: "overrun", csv: "overrun_usd", money: func(l *line) pricing.Nano { return l.Overrun }},
		{name: "adjusted", csv: "adjusted_usd", money: func(l *line) pricing.Nano { return l.Adjusted }, rare: true},
	}, list...)
}

func (c column) empty(l *line) bool {
	if c.money != nil {
		return c.money(l) == 0
	}
	return c.of(l) == "0"
}

func (r *report) writeTable(w io.Writer) error {
	g := grid{}
	for _, d := range r.by {
		g.head, g.numbers = append(g.head, d), append(g.numbers, false)
	}
	var shown []column
	for _, c := range r.columns() {
		if c.rare && c.empty(&r.total) {
			continue
		}
		shown = append(shown, c)
		g.head, g.numbers = append(g.head, c.name), append(g.numbers, true)
	}
	add := func(names []string, l *line) {
		cells := make([]string, 0, len(g.head))
		for i, n := range names {
			_, labeled := ledger.LabelIn(r.by[i])
			if n == "" && (labeled || r.by[i] == ledger.Run) && l != &r.total {
				n = "-"
			}
			cells = append(cells, escape.Text(n))
		}
		for _, c := range shown {
			if c.money != nil {
				cells = append(cells, usd(w, c.money(l)))
			} else {
				cells = append(cells, c.of(l))
			}
		}
		g.add(cells...)
	}
	for _, l := range r.lines {
		add(l.by, l)
	}
	add(append([]string{"total"}, make([]string, len(r.by)-1)...), &r.total)
	fmt.Fprintln(w, r.span())
	return g.write(w)
}

// writeCSV writes the lines without a total, which spreadsheets compute.
func (r *report) writeCSV(w io.Writer) error {
	out := escape.NewCSV(w)
	columns := r.columns()
	head := append([]string{}, r.by...)
	for _, c := range columns {
		head = append(head, c.csv)
	}
	if err := out.Write(head); err != nil {
		return err
	}
	for _, l := range r.lines {
		row := make([]string, 0, len(head))
		for _, n := range l.by {
			row = append(row, budget.CellText(n))
		}
		for _, c := range columns {
			if c.money != nil {
				row = append(row, c.money(l).Decimal())
			} else {
				row = append(row, c.of(l))
			}
		}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// usageJSON is the machine-readable output; amounts are in nano-USD.
type usageJSON struct {
	From  string     `json:"from"` // first and last UTC day; for hourly reports, start and end
	To    string     `json:"to"`
	Since *time.Time `json:"since,omitempty"` // what was spent before it is missing
	Lines []lineJSON `json:"lines"`
	Total lineJSON   `json:"total"`
}

type lineJSON struct {
	By        map[string]string `json:"by,omitempty"`
	Calls     *int64            `json:"calls,omitempty"`
	Tokens    *int64            `json:"tokens,omitempty"` // of the token class
	Input     *int64            `json:"input_tokens,omitempty"`
	Cached    *int64            `json:"cached_input_tokens,omitempty"`
	Written   *int64            `json:"cache_write_tokens,omitempty"`
	Output    *int64            `json:"output_tokens,omitempty"`
	Cost      pricing.Nano      `json:"cost_nano_usd"`
	Estimated *pricing.Nano     `json:"estimated_nano_usd,omitempty"`
	Overrun   *pricing.Nano     `json:"overrun_nano_usd,omitempty"`
	Adjusted  *pricing.Nano     `json:"adjusted_nano_usd,omitempty"`
	Refused   *int64            `json:"refused,omitempty"` // calls; only grouped by org, user and time
	Waited    *int64            `json:"waited,omitempty"`
}

func (r *report) json() usageJSON {
	out := usageJSON{Lines: []lineJSON{}, Total: r.lineJSON(&r.total)}
	out.From, out.To = r.from.Format(time.DateOnly), r.to.Add(-1).Format(time.DateOnly)
	if r.hours {
		out.From, out.To = r.from.Truncate(time.Hour).Format(time.RFC3339), r.to.Format(time.RFC3339)
	}
	if !r.since.IsZero() {
		out.Since = &r.since
	}
	for _, l := range r.lines {
		j := r.lineJSON(l)
		j.By = map[string]string{}
		for i, d := range r.by {
			j.By[d] = l.by[i]
		}
		out.Lines = append(out.Lines, j)
	}
	return out
}

func (r *report) lineJSON(l *line) lineJSON {
	if r.byClass() {
		tokens := l.tokens()
		return lineJSON{Tokens: &tokens, Cost: l.Cost}
	}
	j := lineJSON{
		Calls: &l.Calls, Input: &l.Input, Cached: &l.Cached, Written: &l.Written, Output: &l.Output,
		Cost: l.Cost, Estimated: &l.Estimated, Overrun: &l.Overrun, Adjusted: &l.Adjusted,
	}
	if r.countsRefusals() {
		j.Refused, j.Waited = &l.refused, &l.waited
	}
	return j
}
