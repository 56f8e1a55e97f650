package finance

import (
	"cmp"
	"context"
	_ "embed" // the template
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/wire"
	"github.com/llmguard/llmguard/pricing"
)

// StatementOptions describe a monthly statement.
type StatementOptions struct {
	Org, OrgName string
	Month        Month
	Labels       []string // with a section each
	Now          time.Time
}

// Statement is what an org spent in a month, from several sides. The costs of each section add up
// to Total.Cost.
type Statement struct {
	Books
	OrgName  string
	Sections []Section
	// Daily has a line for each day of the month that has begun.
	Daily []StatementLine
	// Corrections are manual ones, and charges from the reconciliation list.
	Corrections []ledger.AuditRecord
	// Earlier is the part of the total that corrects charges of earlier months. Hits is what answers
	// of the response cache cost.
	Earlier, Hits ledger.Sums
	// Prices are what was paid on average for tokens, by model and class.
	Prices []PriceLine
}

// Section is a split of the total.
type Section struct {
	Title string
	Key   string // in CSV, such as label:project
	Lines []StatementLine
}

// StatementLine is one part of a section.
type StatementLine struct {
	Name string
	ledger.Sums
}

// PriceLine is the average price of a million tokens of a class.
type PriceLine struct {
	Model, Class string
	Tokens       int64
	Cost         pricing.Nano
}

// PerMillion returns the price, rounded to a nano-USD.
func (p PriceLine) PerMillion() pricing.Nano {
	return pricing.Nano(divided(int64(p.Cost), million, p.Tokens))
}

// Names of lines without a name.
const (
	noName   = "(none)"
	noLabels = "(not known any more)"
)

type sectionOf struct {
	title, key string
	name       func(Line) string
	sums       map[string]*ledger.Sums
}

func (s *sectionOf) add(line Line, sums ledger.Sums) {
	addTo(s.sums, cmp.Or(s.name(line), noName), sums)
}

func (s *sectionOf) section() Section {
	out := Section{Title: s.title, Key: s.key}
	names := slices.SortedFunc(maps.Keys(s.sums), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.sums[b].Cost, s.sums[a].Cost), cmp.Compare(a, b))
	})
	for _, name := range names {
		out.Lines = append(out.Lines, StatementLine{name, *s.sums[name]})
	}
	return out
}

func newSections(labels []string) []*sectionOf {
	list := []*sectionOf{
		{title: "Model", key: "model", name: func(l Line) string {
			if l.Model == "" || l.Provider == "" {
				return l.Model
			}
			return l.Provider + "/" + l.Model
		}},
		{title: "User", key: "user", name: func(l Line) string { return l.User }},
		{title: "Key", key: "key", name: func(l Line) string { return l.Key }},
	}
	for _, label := range labels {
		list = append(list, &sectionOf{title: "Label " + label, key: ledger.LabelPrefix + label, name: func(l Line) string {
			if l.Undetailed {
				return noLabels
			}
			return l.Labels.Get(label)
		}})
	}
	for _, s := range list {
		s.sums = map[string]*ledger.Sums{}
	}
	return list
}

// ReadStatement reads the statement of a month.
func ReadStatement(ctx context.Context, l *ledger.Ledger, o StatementOptions) (*Statement, error) {
	st := &Statement{
		Books:   Books{Org: o.Org, Month: o.Month, At: o.Now, labels: len(o.Labels) > 0},
		OrgName: cmp.Or(o.OrgName, o.Org),
	}
	sections, days := newSections(o.Labels), map[time.Time]*ledger.Sums{}
	models := &sectionOf{name: func(l Line) string { return l.Model }, sums: map[string]*ledger.Sums{}}
	for day := o.Month.Begin(); day.Before(o.Month.End()) && day.Before(o.Now); day = day.AddDate(0, 0, 1) {
		days[day] = &ledger.Sums{}
	}
	err := read(ctx, l, &st.Books, func(line Line, s ledger.Sums) {
		for _, section := range sections {
			section.add(line, s)
		}
		models.add(line, s)
		days[line.Day].Add(s)
		if line.Earlier {
			st.Earlier.Add(s)
		}
		if line.Cached {
			st.Hits.Add(s)
		}
	})
	if err != nil {
		return nil, err
	}
	for _, section := range sections {
		st.Sections = append(st.Sections, section.section())
	}
	for _, day := range slices.SortedFunc(maps.Keys(days), time.Time.Compare) {
		st.Daily = append(st.Daily, StatementLine{day.Format(time.DateOnly), *days[day]})
	}
	st.Prices = pricesOf(models.section())
	return st, st.readCorrections(ctx, l)
}

func pricesOf(models Section) []PriceLine {
	var out []PriceLine
	for _, m := range models.Lines {
		for _, part := range m.ByClass() {
			if tokens := part.Input + part.Output; tokens > 0 && part.Cost > 0 {
				out = append(out, PriceLine{m.Name, part.Class, tokens, part.Cost})
			}
		}
	}
	return out
}

// readCorrections reads the corrections that changed the bill of the month, which are kept longer
// than the ledger.
func (st *Statement) readCorrections(ctx context.Context, l *ledger.Ledger) error {
	from, to := st.Month.Begin(), st.Month.End()
	return l.Audit(ctx, st.Org, from.Add(-settling), to.Add(settling), func(r ledger.AuditRecord) error {
		changes := slices.Contains([]string{"usage.adjust", "usage.reconcile.charge"}, r.Action)
		if changes && !r.At.Before(from) && r.At.Before(to) {
			st.Corrections = append(st.Corrections, r)
		}
		return nil
	})
}

// ForMonth returns the month of the call that a correction changes, if it is not the statement's.
func (st *Statement) ForMonth(r ledger.AuditRecord) string {
	made, ok := wire.CallTime(r.Corrects)
	if !ok || !made.Before(st.Month.Begin()) {
		return ""
	}
	return MonthOf(made).String()
}

// Lines returns the number of lines of the CSV form.
func (st *Statement) Lines() int {
	n := 1 + len(st.Daily) + len(st.Corrections) + len(st.Prices)
	for _, s := range st.Sections {
		n += len(s.Lines)
	}
	return n
}

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

//go:embed statement.html
var statementHTML string

// WriteHTML writes the statement as a page of its own: no scripts, nothing to load, made for A4.
func (st *Statement) WriteHTML(to io.Writer) error {
	t, err := template.New("statement").Funcs(template.FuncMap{
		"usd": func(n pricing.Nano) string { return n.String() }, "whole": figures.Count, "share": st.share,
		"month":  func(m Month) string { return figures.Month(m.Begin()) },
		"minute": figures.Minute,
		"class":  func(class string) string { return strings.ReplaceAll(class, "_", " ") },
	}).Parse(statementHTML)
	if err != nil {
		return err
	}
	var out strings.Builder
	if err := t.Execute(&out, struct {
		*Statement
		Chart  template.HTML
		Status string
		By     []Section // sections with more than one line, or a name
	}{st, st.chart(), st.status(), st.named()}); err != nil {
		return err
	}
	_, err = io.WriteString(to, escape.Lines(out.String()))
	return err
}

func (st *Statement) named() []Section {
	var out []Section
	for _, s := range st.Sections {
		if len(s.Lines) > 1 || len(s.Lines) == 1 && s.Lines[0].Name != noName {
			out = append(out, s)
		}
	}
	return out
}

func (st *Statement) share(n pricing.Nano) string {
	return figures.Share(int64(n), int64(st.Total.Cost))
}

// chart draws a bar for each day, 708 by 166. Days with a negative cost hang below the axis.
func (st *Statement) chart() template.HTML {
	most, least := pricing.Nano(1), pricing.Nano(0)
	for _, d := range st.Daily {
		most, least = max(most, d.Cost), min(least, d.Cost)
	}
	d, f := figures.Drawing{}, figures.Frame{Left: 76, Right: 704, Upper: 8, N: st.Month.End().AddDate(0, 0, -1).Day()}
	marks := f.Scale(float64(most))
	f.Height = 135 * f.Top / (f.Top - float64(least))
	for _, v := range marks {
		d.Rule(f.Left, f.Y(v), f.Right, f.Y(v), "grid")
		d.Text(f.Left-6, f.Y(v)+3, "end", figures.USD(pricing.Nano(math.Round(v))))
	}
	for i, day := range st.Daily {
		x, cost := float64(i), float64(day.Cost)
		d.Bar(f, figures.Bar{
			Left: x + 0.12, Right: x + 0.88, Lower: min(cost, 0), Upper: max(cost, 0), Class: "bar",
			Title: day.Name + ": " + day.Cost.String(),
		})
		if day := i + 1; day == 1 || day%5 == 0 {
			d.Text(f.X(x+0.5), 160, "middle", strconv.Itoa(day))
		}
	}
	d.Rule(f.Left, f.Y(0), f.Right, f.Y(0), "axis")
	return d.SVG()
}
