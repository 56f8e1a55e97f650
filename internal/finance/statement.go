package finance

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
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

// sectionOf builds a section.
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

// pricesOf returns the average prices of models by class.
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
