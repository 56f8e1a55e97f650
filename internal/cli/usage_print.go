package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/pricing"
)

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// column is a figure of a line: its names in tables, CSV and JSON.
type column struct {
	name, csv, json string
	of              func(*line) int64
	rare            bool // omitted from a table if 0 everywhere
}

// money reports whether the figure is an amount of nano-USD.
func (c column) money() bool { return strings.HasSuffix(c.json, "_nano_usd") }

var tokensColumn = column{"tokens", "tokens", "tokens", (*line).tokens, false}

var costColumn = column{"cost", "cost_usd", "cost_nano_usd", func(l *line) int64 { return int64(l.Cost) }, false}

var usageColumns = []column{
	{"calls", "calls", "calls", func(l *line) int64 { return l.Calls }, false},
	{"input", "input_tokens", "input_tokens", func(l *line) int64 { return l.Input }, false},
	{"cached", "cached_input_tokens", "cached_input_tokens", func(l *line) int64 { return l.Cached }, false},
	{"written", "cache_write_tokens", "cache_write_tokens", func(l *line) int64 { return l.Written }, true},
	{"output", "output_tokens", "output_tokens", func(l *line) int64 { return l.Output }, false},
	costColumn,
	{"estimated", "estimated_usd", "estimated_nano_usd", func(l *line) int64 { return int64(l.Estimated) }, false},
	{"overrun", "overrun_usd", "overrun_nano_usd", func(l *line) int64 { return int64(l.Overrun) }, false},
	{"adjusted", "adjusted_usd", "adjusted_nano_usd", func(l *line) int64 { return int64(l.Adjusted) }, true},
	{"refused", "refused_calls", "refused", func(l *line) int64 { return l.refused }, true},
	{"waited", "waited_calls", "waited", func(l *line) int64 { return l.waited }, true},
}

func (r *report) columns() []column {
	switch {
	case r.byClass():
		return []column{tokensColumn, costColumn}
	case r.countsRefusals():
		return usageColumns
	}
	return usageColumns[:len(usageColumns)-2]
}

func (r *report) writeTable(w io.Writer) error {
	g := grid{}
	for _, d := range r.by {
		g.head, g.numbers = append(g.head, d), append(g.numbers, false)
	}
	var shown []column
	for _, c := range r.columns() {
		if !c.rare || c.of(&r.total) != 0 {
			shown = append(shown, c)
			g.head, g.numbers = append(g.head, c.name), append(g.numbers, true)
		}
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
			if n := c.of(l); c.money() {
				cells = append(cells, usd(w, pricing.Nano(n)))
			} else {
				cells = append(cells, whole(n))
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
	head := slices.Clone(r.by)
	for _, c := range r.columns() {
		head = append(head, c.csv)
	}
	rows := [][]string{head}
	for _, l := range r.lines {
		var row []string
		for _, n := range l.by {
			row = append(row, ledger.CellText(n))
		}
		for _, c := range r.columns() {
			if n := c.of(l); c.money() {
				row = append(row, pricing.Nano(n).Decimal())
			} else {
				row = append(row, whole(n))
			}
		}
		rows = append(rows, row)
	}
	return escape.NewCSV(w).WriteAll(rows)
}

// usageJSON is the machine-readable output; amounts are in nano-USD.
type usageJSON struct {
	From  string            `json:"from"` // first and last UTC day; for hourly reports, start and end
	To    string            `json:"to"`
	Since *time.Time        `json:"since,omitempty"` // what was spent before it is missing
	Lines []json.RawMessage `json:"lines"`           // the columns, and the names under by
	Total json.RawMessage   `json:"total"`
}

func (r *report) json() usageJSON {
	out := usageJSON{Lines: []json.RawMessage{}, Total: r.lineJSON(&r.total)}
	out.From, out.To = r.from.Format(time.DateOnly), r.to.Add(-1).Format(time.DateOnly)
	if r.hours {
		out.From, out.To = r.from.Truncate(time.Hour).Format(time.RFC3339), r.to.Format(time.RFC3339)
	}
	if !r.since.IsZero() {
		out.Since = &r.since
	}
	for _, l := range r.lines {
		out.Lines = append(out.Lines, r.lineJSON(l))
	}
	return out
}

func (r *report) lineJSON(l *line) json.RawMessage {
	var members [][]byte
	if l != &r.total {
		by := map[string]string{}
		for i, d := range r.by {
			by[d] = l.by[i]
		}
		text, _ := json.Marshal(by) // texts have no errors
		members = append(members, append([]byte(`"by":`), text...))
	}
	for _, c := range r.columns() {
		members = append(members, fmt.Appendf(nil, "%q:%d", c.json, c.of(l)))
	}
	return append(append([]byte("{"), bytes.Join(members, []byte(","))...), '}')
}
