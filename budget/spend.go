package budget

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/pricing"
)

// MaxSpendScan is how many ledger entries [Ledger.Spend] and [Ledger.Search] read at most, newest
// first: about a second of work.
const MaxSpendScan = 100_000

// SpendQuery says what to add up, and by what.
type SpendQuery struct {
	Orgs   []string
	By     []Dimension
	Filter Filter
	// From and To are whole steps, except that To may be now.
	From, To time.Time
	// Step is the resolution: a number of minutes, hours or days, at most [To-From].
	Step time.Duration
	// SummedLabel is the label of By by which the sums of each day of the period were kept, if there
	// is one.
	SummedLabel string
}

// Sources of Spend, from the fastest to the one that knows all dimensions.
const (
	FromDays    = "days"
	FromHours   = "hours"
	FromEntries = "entries"
)

// Spend is what was spent in a period, by groups, whose sums add up to the total exactly.
type Spend struct {
	Source string
	Groups []*SpendGroup // highest cost first
	Total  Sums
	Steps  int
	// Since is set if entries before it were not read, because there are too many or they are not in
	// the ledger any more. Then the sums are those since then.
	Since time.Time
}

// SpendGroup is what calls with the same values spent.
type SpendGroup struct {
	Values []string // of SpendQuery.By, in order
	Orgs   []string // that have such calls
	Sums
	Series map[int]pricing.Nano // cost by step; steps without cost are missing
}

// spending adds up a Spend.
type spending struct {
	q      *SpendQuery
	out    *Spend
	groups map[string]*SpendGroup
}

// Spend adds up what was spent. It uses the sums of days or hours if they are enough for the step,
// the dimensions and the filter, and at most MaxSpendScan ledger entries otherwise.
func (l *Ledger) Spend(ctx context.Context, q SpendQuery) (*Spend, error) {
	steps := int((q.To.Sub(q.From) + q.Step - 1) / q.Step)
	s := &spending{q: &q, out: &Spend{Source: q.source(), Steps: steps}, groups: map[string]*SpendGroup{}}
	for _, org := range q.Orgs {
		if err := l.spendOf(ctx, org, s); err != nil {
			return nil, err
		}
	}
	for _, g := range s.groups {
		s.out.Groups = append(s.out.Groups, g)
	}
	slices.SortFunc(s.out.Groups, func(a, b *SpendGroup) int {
		switch {
		case a.Cost != b.Cost && a.Cost > b.Cost:
			return -1
		case a.Cost != b.Cost:
			return 1
		}
		return slices.Compare(a.Values, b.Values)
	})
	return s.out, nil
}

// hoursKept is for how long after a time the sums of its hours are complete.
const hoursKept = 13 * 24 * time.Hour

// source returns the fastest source that can answer the query.
func (q *SpendQuery) source() string {
	whole := func(unit time.Duration) bool {
		return q.Step%unit == 0 && q.From.Equal(q.From.Truncate(unit))
	}
	rolled := q.Filter.rolled() && !slices.ContainsFunc(q.By, func(d Dimension) bool { return !d.rolled })
	switch {
	case whole(24*time.Hour) && (rolled || q.byLabel()):
		return FromDays
	case whole(time.Hour) && rolled && time.Since(q.From) <= hoursKept:
		return FromHours
	}
	return FromEntries
}

// byLabel reports whether the sums of days by a label are enough.
func (q *SpendQuery) byLabel() bool {
	return q.SummedLabel != "" && len(q.By) == 1 && q.By[0].Label() == q.SummedLabel && q.Filter.only(q.By[0])
}

func (l *Ledger) spendOf(ctx context.Context, org string, s *spending) error {
	q := s.q
	switch {
	case s.out.Source == FromEntries:
		return l.spendEntries(ctx, org, s)
	case s.out.Source == FromDays && q.byLabel():
		list, err := l.LabelRollups(ctx, org, q.SummedLabel, q.From, q.To)
		for i := range list {
			c := Call{Org: org, Labels: Labels(q.SummedLabel + "=" + list[i].Value)}
			if list[i].Value == "" {
				c.Labels = ""
			}
			if q.Filter.takes(&c) {
				s.add(&c, list[i].Begin, list[i].Sums)
			}
		}
		return err
	}
	read := l.Rollups
	if s.out.Source == FromHours {
		read = l.HourRollups
	}
	list, err := read(ctx, org, q.From, q.To)
	for i := range list {
		if c := list[i].call(org); q.Filter.takes(&c) {
			s.add(&c, list[i].Begin, list[i].Sums)
		}
	}
	return err
}

// errEnoughRead stops reading the ledger at MaxSpendScan.
var errEnoughRead = errors.New("budget: enough read")

func (l *Ledger) spendEntries(ctx context.Context, org string, s *spending) error {
	in := entryScan{org, s.q.From, s.q.To, MaxSpendScan / len(s.q.Orgs)}
	since, err := l.newest(ctx, in, func(e *Entry) {
		if s.q.Filter.Fits(e) {
			s.add(&e.Call, e.At, e.Sums())
		}
	})
	s.since(since)
	return err
}

// entryScan selects the newest entries of an org in [from, to), at most `most`.
type entryScan struct {
	org      string
	from, to time.Time
	most     int
}

// newest calls fn with entries. It returns the time before which entries were not read, or are no longer
// in the ledger; zero if there are none.
func (l *Ledger) newest(ctx context.Context, in entryScan, fn func(*Entry)) (since time.Time, err error) {
	read := 0
	err = l.Recent(ctx, in.org, in.from, in.to, func(e Entry) error {
		if read == in.most {
			return errEnoughRead
		}
		read++
		since = e.At
		e.Org = in.org
		fn(&e)
		return nil
	})
	if err != nil {
		if errors.Is(err, errEnoughRead) {
			err = nil
		}
		return since, err
	}
	since, err = l.keptSince(ctx, in.org)
	if !since.After(in.from) {
		since = time.Time{}
	}
	return since, err
}

// since notes from when on all orgs' entries were read.
func (s *spending) since(at time.Time) {
	if at.After(s.out.Since) {
		s.out.Since = at
	}
}

// keptSince returns the time of the oldest entry in the ledger if older ones were removed; zero if
// none was. Of an org that is spread it is the latest of all parts.
func (l *Ledger) keptSince(ctx context.Context, org string) (time.Time, error) {
	var since time.Time
	places, err := l.places.ever(ctx, org)
	if err != nil {
		return since, err
	}
	for _, place := range places {
		name := key(place, "ledger")
		n, err := l.rdb.XLen(ctx, name).Result()
		if err != nil {
			return since, storeError("read ledger", err)
		}
		if n == 0 {
			continue
		}
		info, err := l.rdb.XInfoStream(ctx, name).Result()
		if err != nil {
			return since, storeError("read ledger", err)
		}
		if info.EntriesAdded <= info.Length || info.FirstEntry.ID == "" {
			continue
		}
		e, err := entryOf(place, info.FirstEntry)
		if err != nil {
			return since, err
		}
		since = later(since, e.At)
	}
	return since, nil
}

func (s *spending) add(c *Call, at time.Time, sums Sums) {
	values := make([]string, len(s.q.By))
	for i, d := range s.q.By {
		values[i] = d.Of(c)
	}
	name := strings.Join(values, "\x00")
	g := s.groups[name]
	if g == nil {
		g = &SpendGroup{Values: values, Series: map[int]pricing.Nano{}}
		s.groups[name] = g
	}
	if !slices.Contains(g.Orgs, c.Org) {
		g.Orgs = append(g.Orgs, c.Org)
	}
	g.Add(sums)
	s.out.Total.Add(sums)
	if sums.Cost != 0 {
		step := int(at.Sub(s.q.From) / s.q.Step)
		g.Series[max(min(step, s.out.Steps-1), 0)] += sums.Cost
	}
}
