// Package ledger keeps what orgs were charged: entries, their sums, corrections and exports. One [Query] serves all
// views of it: the admin API, the CLI, the console, top, statements and exports, so that their amounts agree to the
// nano-dollar. Package budget writes an entry and its sums in the script that settles a call.
package ledger

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// MaxScan is how many entries [Read] and [Search] read at most, newest first: about a second of work.
const MaxScan = 100_000

// Query is a question about what was spent.
type Query struct {
	Orgs []string
	// From and To bound the time. Without Step they are widened to whole UTC hours, in which sums are
	// kept. With Step, From is a whole step.
	From, To time.Time
	// Zone is the zone of hours, days and months; nil: UTC. A UTC hour counts for the local hour and
	// day in which it begins.
	Zone   *time.Location
	By     []Dimension
	Filter Filter
	// Step is the resolution of the series of each row, at most To-From; 0: no series.
	Step time.Duration
}

// Source says what was added up.
type Source string

// Sources from the fastest to the one that knows everything.
const (
	FromDays    Source = "days"
	FromHours   Source = "hours"
	FromEntries Source = "entries"
)

// Report is what was spent, by the dimensions of a query. The rows add up to the total exactly.
type Report struct {
	Source Source
	Rows   []*Row // highest cost first
	Total  Sums
	Steps  int
	// Since is set if what was spent before it is missing, because there are too many entries, or they
	// are not in the ledger any more, or sums by the label were not kept yet. Then the sums are those
	// since then.
	Since time.Time
	// WholeDays is the number of UTC days without hourly sums that an hourly report counts as they are.
	WholeDays int
}

// Row is what was spent with the same values.
type Row struct {
	Values []string // of Query.By, in order
	Orgs   []string // that spent it
	Sums
	Series map[int]pricing.Nano // cost by step; steps without cost are missing
}

// hoursKept is for how long after a time the sums of its hours are complete.
const hoursKept = 13 * 24 * time.Hour

const wholeDay = 24 * time.Hour

func (q *Query) days() bool {
	return q.zone() == time.UTC && q.Step%wholeDay == 0 && q.From.Equal(q.From.Truncate(wholeDay)) &&
		(q.Step > 0 || q.To.Equal(q.To.Truncate(wholeDay))) && !q.by(Hour)
}

func (q *Query) zone() *time.Location {
	if q.Zone == nil {
		return time.UTC
	}
	return q.Zone
}

func (q *Query) by(name string) bool {
	return slices.ContainsFunc(q.By, func(d Dimension) bool { return d.Name == name })
}

// source returns the fastest source that can answer the query, and the label by which it is summed, if
// that is the source. kept reports whether the sums of days are kept by a label.
func (q *Query) source(kept func(label string) bool) (from Source, label string) {
	switch label = q.label(kept); {
	case q.days() && label != "":
		return FromDays, label
	case !q.Filter.rolled() || slices.ContainsFunc(q.By, func(d Dimension) bool { return !d.rolled }):
		return FromEntries, ""
	case q.days():
		return FromDays, ""
	case q.Step == 0, // days without hourly sums are counted as whole days
		q.Step%time.Hour == 0 && q.From.Equal(q.From.Truncate(time.Hour)) && time.Since(q.From) <= hoursKept:
		return FromHours, ""
	}
	return FromEntries, ""
}

// label returns the label of By if sums by it are enough: there is only one, beside orgs, days and
// months, and the filter has no other dimension.
func (q *Query) label(kept func(string) bool) string {
	var label Dimension
	for _, d := range q.By {
		switch {
		case d.Name == "org", d.Name == Day, d.Name == Month, d.Name == Class:
		case d.Label() == "" || label.Name != "" && label.Name != d.Name:
			return ""
		default:
			label = d
		}
	}
	if label.Name == "" || !kept(label.Label()) || !q.Filter.only(label) {
		return ""
	}
	return label.Label()
}

// FromEntries reports whether the query needs ledger entries, which takes longer than sums.
func (q *Query) FromEntries(books *Ledger) bool {
	source, _ := q.source(books.SummedBy)
	return source == FromEntries
}

type reading struct {
	*Query
	books *Ledger
	out   Report
	label string // whose sums are read; "": none
	class bool   // By has Class
	rows  map[string]*Row
	name  []byte // of a row, reused
	at    *Moment
	whole map[time.Time]bool // UTC days that an hourly report has without hours
}

// Read answers a query. It decides alone whether it adds up sums of days, of hours, by a label, or at
// most MaxScan entries. Errors are of the store.
func Read(ctx context.Context, books *Ledger, q Query) (*Report, error) {
	r := newReading(books, &q)
	for _, org := range q.Orgs {
		if err := r.org(ctx, org); err != nil {
			return nil, err
		}
	}
	r.out.WholeDays = len(r.whole)
	for _, row := range r.rows {
		r.out.Rows = append(r.out.Rows, row)
	}
	slices.SortFunc(r.out.Rows, func(a, b *Row) int {
		return cmp.Or(cmp.Compare(b.Cost, a.Cost), slices.Compare(a.Values, b.Values))
	})
	return &r.out, nil
}

func newReading(books *Ledger, q *Query) *reading {
	r := &reading{Query: q, books: books, rows: map[string]*Row{}, whole: map[time.Time]bool{}, class: q.by(Class)}
	if q.Step > 0 {
		r.out.Steps = int((q.To.Sub(q.From) + q.Step - 1) / q.Step)
	} else {
		q.From = q.From.UTC().Truncate(time.Hour)
		if end := q.To.UTC().Truncate(time.Hour); end.Before(q.To) {
			q.To = end.Add(time.Hour)
		}
	}
	if books != nil {
		r.out.Source, r.label = q.source(books.SummedBy)
	}
	return r
}

func (r *reading) org(ctx context.Context, org string) error {
	switch {
	case r.out.Source == FromEntries:
		return r.entries(ctx, org)
	case r.label != "":
		return r.labelSums(ctx, org)
	}
	read := r.books.Rollups
	user := r.Filter.user()
	switch {
	case r.out.Source == FromHours:
		read = r.books.HourRollups
	case user != "":
		read = func(ctx context.Context, org string, from, to time.Time) ([]Rollup, error) {
			return r.books.UserRollups(ctx, org, user, from, to)
		}
	}
	list, err := read(ctx, org, r.From, r.To)
	for i := range list {
		s := &list[i]
		c := Call{Org: org, User: s.User, Key: s.Key, Provider: s.Provider, Endpoint: s.Endpoint, Model: s.Model}
		if !r.Filter.takes(&c) {
			continue
		}
		if r.out.Source == FromHours && !s.Hour {
			r.whole[s.Begin] = true
		}
		r.add(&c, s.Begin, s.Hour, s.Sums)
	}
	return err
}

func (r *reading) labelSums(ctx context.Context, org string) error {
	list, err := r.books.LabelRollups(ctx, org, r.label, r.From, r.To)
	if err != nil {
		return err
	}
	since, err := r.books.SummedSince(ctx, org, r.label, Span{From: r.From, To: r.To}, list)
	r.since(since)
	for i := range list {
		c := Call{Org: org, Labels: Labels("").With(r.label, list[i].Value)}
		if r.Filter.takes(&c) {
			r.add(&c, list[i].Begin, false, list[i].Sums)
		}
	}
	return err
}

// Newest are an org's newest entries of a span, at most Most. Without To, the span has no end.
type Newest struct {
	Books *Ledger
	Org   string
	Span
	Most int
}

// Each calls fn with the entries, newest first, until it returns ErrEnough. If entries were left out because
// of Most, since is the time of the oldest that was read; otherwise zero.
func (n Newest) Each(ctx context.Context, fn func(Entry) error) (since time.Time, err error) {
	read, last := 0, time.Time{}
	err = n.Books.Recent(ctx, n.Org, n.From, n.To, func(e Entry) error {
		if read == n.Most {
			since = last
			return ErrEnough
		}
		read, last = read+1, e.At
		return fn(e)
	})
	return since, err
}

// settling is how much later than its time an entry may stand in the ledger, and how much earlier:
// scripts begin before their entries are written, on servers whose clocks differ.
const settling = time.Minute

func (r *reading) entries(ctx context.Context, org string) error {
	read, most, last, cut := 0, MaxScan/len(r.Orgs), time.Time{}, false
	err := r.books.Recent(ctx, org, r.From.Add(-settling), r.To.Add(settling), func(e Entry) error {
		if e.At.Before(r.From) || !e.At.Before(r.To) {
			return nil
		}
		if read == most {
			cut = true
			return ErrEnough
		}
		read++
		last = e.At
		e.Org = org
		if r.Filter.Fits(&e) {
			r.add(&e.Call, e.At, true, e.Sums())
		}
		return nil
	})
	if err != nil {
		return err
	}
	if cut {
		r.since(last)
		return nil
	}
	gone, err := r.books.KeptSince(ctx, org)
	r.since(gone)
	return err
}

// since notes from when on all of an org was read; what was spent since before the period is complete.
func (r *reading) since(at time.Time) {
	if at.After(r.From) && at.After(r.out.Since) {
		r.out.Since = at
	}
}

// add adds what a call, or calls with the same values, cost in the hour or UTC day of at.
func (r *reading) add(c *Call, at time.Time, hourly bool, sums Sums) {
	begin := at
	if hourly {
		begin = at.UTC().Truncate(time.Hour)
	}
	if r.at == nil || !r.at.begin.Equal(begin) || (r.at.Hour != "") != hourly {
		r.at = MomentOf(begin, hourly, r.zone())
	}
	step := -1
	if r.Step > 0 {
		step = max(min(int(at.Sub(r.From)/r.Step), r.out.Steps-1), 0)
	}
	if !r.class {
		r.addPart(&part{Call: c, at: r.at}, step, sums)
		return
	}
	for _, one := range sums.ByClass() {
		r.addPart(&part{Call: c, at: r.at, class: one.Class}, step, one.Sums)
	}
}

func (r *reading) addPart(p *part, step int, sums Sums) {
	r.name = r.name[:0]
	for i := range r.By {
		r.name = append(append(r.name, r.By[i].of(p)...), 0)
	}
	row := r.rows[string(r.name)]
	if row == nil {
		row = &Row{Values: make([]string, len(r.By)), Series: map[int]pricing.Nano{}}
		for i := range r.By {
			row.Values[i] = r.By[i].of(p)
		}
		r.rows[string(r.name)] = row
	}
	if n := len(row.Orgs); n == 0 || row.Orgs[n-1] != p.Org {
		row.Orgs = append(row.Orgs, p.Org)
	}
	row.Add(sums)
	r.out.Total.Add(sums)
	if step >= 0 && sums.Cost != 0 {
		row.Series[step] += sums.Cost
	}
}
