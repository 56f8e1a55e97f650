package finance

import (
	"io"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/pricing"
)

// WriteCSV writes the statement as CSV. The lines of each section add up to the line of section
// total; amounts are exact.
func (st *Statement) WriteCSV(to io.Writer) error {
	w := escape.NewCSV(to)
	_ = w.Write([]string{ // Flush reports the error
		"org", "month", "status", "section", "name", "calls", "input_tokens", "cached_input_tokens",
		"cache_write_tokens", "output_tokens", "cost_usd", "note",
	})
	st.sums(w, "total", StatementLine{"", st.Total})
	for _, s := range st.Sections {
		for _, line := range s.Lines {
			st.sums(w, s.Key, line)
		}
	}
	for _, line := range st.Daily {
		st.sums(w, "day", line)
	}
	for _, r := range st.Corrections {
		note := r.By + ": " + r.Reason
		if month := st.ForMonth(r); month != "" {
			note += " (for " + month + ")"
		}
		st.line(w, csvLine{section: "correction", name: r.At.UTC().Format(time.RFC3339), cost: r.Amount, note: note})
	}
	for _, p := range st.Prices {
		st.line(w, csvLine{
			section: "price_per_million_tokens", name: p.Model + " " + p.Class,
			cost: p.PerMillion(), note: "average of the month",
		})
	}
	w.Flush()
	return w.Error()
}

func (st *Statement) sums(w escape.CSV, section string, line StatementLine) {
	s := line.Sums
	var counts [5]string
	for i, n := range [5]int64{s.Calls, s.Input, s.Cached, s.Written, s.Output} {
		counts[i] = strconv.FormatInt(n, 10)
	}
	st.line(w, csvLine{section: section, name: line.Name, counts: counts, cost: s.Cost})
}

// csvLine is a line of the CSV form; counts are empty for what has none.
type csvLine struct {
	section, name string
	counts        [5]string
	cost          pricing.Nano
	note          string
}

func (st *Statement) line(w escape.CSV, l csvLine) {
	cells := append([]string{st.Org, st.Month.String(), st.status(), l.section, ledger.CellText(l.name)}, l.counts[:]...)
	_ = w.Write(append(cells, l.cost.Decimal(), ledger.CellText(l.note))) // Flush reports the error
}

// status is final, provisional or incomplete.
func (st *Statement) status() string {
	switch {
	case st.Incomplete() != "":
		return "incomplete"
	case st.Provisional():
		return "provisional"
	}
	return "final"
}
