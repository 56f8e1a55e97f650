// Package finance turns the ledger into what accountants read: rows in the format of FOCUS, the
// FinOps Open Cost and Usage Specification, and monthly statements of an org.
//
// Every amount is exact. The daily sums of the ledger are the authority, because they outlive its
// entries; the entries add what the sums do not know: labels, corrections of earlier months, and
// answers from the response cache. What the entries of a day lack is taken from the sums, without
// these details, so that the total is always that of the ledger.
package finance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/wire"
)

// Month is a calendar month in UTC, a billing period.
type Month struct{ begin time.Time }

// ParseMonth parses a month such as 2026-11.
func ParseMonth(text string) (Month, error) {
	t, err := time.Parse("2006-01", text)
	if err != nil {
		return Month{}, fmt.Errorf("%.20q is not a month; expected one such as 2026-11", text)
	}
	return Month{t}, nil
}

// MonthOf returns the month that contains t.
func MonthOf(t time.Time) Month {
	t = t.UTC()
	return Month{time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)}
}

// Previous returns the month before.
func (m Month) Previous() Month { return Month{m.begin.AddDate(0, -1, 0)} }

// Begin returns the first instant.
func (m Month) Begin() time.Time { return m.begin }

// End returns the first instant of the next month.
func (m Month) End() time.Time { return m.begin.AddDate(0, 1, 0) }

func (m Month) String() string { return m.begin.Format("2006-01") }

// Line names what a sum is for. It is comparable.
type Line struct {
	Day                                  time.Time
	User, Key, Provider, Endpoint, Model string
	Labels                               ledger.Labels
	// Earlier is set for corrections of charges of an earlier month, Cached for answers of the
	// response cache.
	Earlier, Cached bool
	// Undetailed is set for a part of the daily sums that has no entries: labels, Earlier and Cached
	// are not known.
	Undetailed bool
}

// Books is what was read of an org's ledger.
type Books struct {
	Org   string
	Month Month
	At    time.Time // when it was read
	Total ledger.Sums
	// Undetailed are days whose entries are no longer complete, so that labels and other details of
	// a part of their cost are not known. The amounts are exact.
	Undetailed []time.Time
	// Gone are days whose sums are older than the retention. Their cost is missing.
	Gone   []time.Time
	labels bool // labels are wanted
}

// Incomplete explains what is lacking, or returns "".
func (b *Books) Incomplete() string {
	switch {
	case len(b.Gone) > 0:
		return "the cost of " + Days(b.Gone) + " is missing: daily sums are kept for 400 days"
	case len(b.Undetailed) > 0 && b.labels:
		return "a part of the cost of " + Days(b.Undetailed) + " has no labels: the ledger no longer has all entries"
	}
	return ""
}

// Provisional reports whether the month was not over.
func (b *Books) Provisional() bool { return b.At.Before(b.Month.End()) }

// Days returns days as text, with ranges: "2026-11-01 to 2026-11-03, 2026-11-07".
func Days(list []time.Time) string {
	var out []string
	for i := 0; i < len(list); i++ {
		first := list[i]
		for i+1 < len(list) && list[i+1].Equal(list[i].AddDate(0, 0, 1)) {
			i++
		}
		text := first.Format(time.DateOnly)
		if list[i].After(first) {
			text += " to " + list[i].Format(time.DateOnly)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

type reader struct {
	ledger  *ledger.Ledger
	books   *Books
	add     func(Line, ledger.Sums)
	expired map[string]bool // holds that expired in this month
}

// read calls add with sums that add up to the month; several may have the same line. now is the
// current time.
func read(ctx context.Context, l *ledger.Ledger, books *Books, add func(Line, ledger.Sums)) error {
	r := &reader{ledger: l, books: books, add: add, expired: map[string]bool{}}
	for day := books.Month.Begin(); day.Before(books.Month.End()) && day.Before(books.At); day = day.AddDate(0, 0, 1) {
		if err := r.day(ctx, day); err != nil {
			return err
		}
	}
	return nil
}

// settling is how long after midnight calls may still be booked on the day before, because their
// scripts began before it. It also exceeds the skew between a script's time and its entry's id.
const settling = time.Minute

// day reads the entries of a UTC day, then its sums, which are at least as new.
func (r *reader) day(ctx context.Context, day time.Time) error {
	end := day.AddDate(0, 0, 1)
	var least int64 // number of calls that the entries must have
	open := r.books.At.Before(end.Add(settling))
	if open {
		before, err := r.sums(ctx, day, end)
		if err != nil {
			return err
		}
		for _, s := range before {
			least += s.Calls
		}
	}
	found, total := map[Line]*ledger.Sums{}, ledger.Sums{}
	err := r.ledger.Entries(ctx, r.books.Org, day.Add(-settling), end.Add(settling), func(e ledger.Entry) error {
		if e.At.Before(day) || !e.At.Before(end) {
			return nil
		}
		for line, s := range r.partsOf(e, day) {
			total.Add(s)
			addTo(found, line, s)
		}
		return nil
	})
	if err != nil {
		return err
	}
	sums, err := r.sums(ctx, day, end)
	if err != nil {
		return err
	}
	for line, s := range found {
		r.add(line, *s)
	}
	if r.rest(day, found, sums, total) && (!open || total.Calls < least) {
		r.books.Undetailed = append(r.books.Undetailed, day)
	}
	if len(sums) == 0 && day.Before(r.books.At.AddDate(0, 0, -ledger.MostDays)) {
		r.books.Gone = append(r.books.Gone, day)
	}
	return nil
}

func (r *reader) sums(ctx context.Context, day, end time.Time) (map[Line]*ledger.Sums, error) {
	out := map[Line]*ledger.Sums{}
	report, err := ledger.Read(ctx, r.ledger, ledger.Query{Orgs: []string{r.books.Org}, From: day, To: end, By: bySums})
	if err != nil {
		return nil, err
	}
	for _, row := range report.Rows {
		v := row.Values
		line := Line{Day: day, User: v[0], Key: v[1], Provider: v[2], Endpoint: v[3], Model: v[4], Undetailed: true}
		addTo(out, line, row.Sums)
	}
	return out, nil
}

var bySums = ledger.By("user", "key", "provider", "endpoint", "model")

// rest adds what the sums have and the entries do not, and reports whether there is any.
func (r *reader) rest(day time.Time, found, sums map[Line]*ledger.Sums, total ledger.Sums) bool {
	var want ledger.Sums
	for _, s := range sums {
		want.Add(*s)
	}
	r.books.Total.Add(want)
	// Lines need not agree: beyond a maximum number per day, models are summed under another name.
	if billed(want) == billed(total) {
		return false
	}
	left := map[Line]*ledger.Sums{}
	for line, s := range sums {
		addTo(left, line, *s)
	}
	for line, s := range found {
		addTo(left, Line{
			Day: day, User: line.User, Key: line.Key, Provider: line.Provider, Endpoint: line.Endpoint,
			Model: ledger.RollupModel(line.Model), Undetailed: true,
		}, s.Negative())
	}
	for line, s := range left {
		if *s != (ledger.Sums{}) {
			r.add(line, *s)
		}
	}
	return true
}

// billed returns the sums that entries know exactly.
func billed(s ledger.Sums) ledger.Sums {
	s.Calls, s.Estimated, s.Overrun = 0, 0, 0
	return s
}

func addTo[K comparable](to map[K]*ledger.Sums, key K, s ledger.Sums) {
	if to[key] == nil {
		to[key] = &ledger.Sums{}
	}
	to[key].Add(s)
}

// partsOf returns what an entry adds to the day, as the scripts that wrote it did: one part, or two
// if it also corrects an earlier month.
func (r *reader) partsOf(e ledger.Entry, day time.Time) map[Line]ledger.Sums {
	line := Line{
		Day: day, User: e.User, Key: e.Key, Provider: e.Provider, Endpoint: e.Endpoint, Model: e.Model, Labels: e.Labels,
		Cached: e.Outcome == "cached",
	}
	s := e.Sums()
	hold := fmt.Sprintf("%s/%d", e.ID, e.Attempt)
	switch e.Kind {
	case ledger.KindAdjust:
		line.Earlier = r.earlier(e.Corrects)
	case ledger.KindCharge:
		line.Earlier = r.earlier(e.ID)
	case ledger.KindExpire:
		r.expired[hold] = true
	case ledger.KindVoid, ledger.KindLate:
		if e.Cost != e.Total && r.earlier(e.ID) && !r.expired[hold] {
			return r.reversed(line, s, e)
		}
	}
	return map[Line]ledger.Sums{line: s}
}

// reversed splits the correction of a hold that expired in an earlier month: the charge of then is
// taken back, and what the call cost is charged now.
func (r *reader) reversed(line Line, s ledger.Sums, e ledger.Entry) map[Line]ledger.Sums {
	back := ledger.Sums{Cost: e.Cost - e.Total, Calls: s.Calls}
	s.Cost, s.Calls = e.Total, 0
	back.Estimated, s.Estimated = s.Estimated, 0
	earlier := line
	earlier.Earlier = true
	out := map[Line]ledger.Sums{earlier: back}
	if s != (ledger.Sums{}) {
		out[line] = s
	}
	return out
}

func (r *reader) earlier(id string) bool {
	made, ok := wire.CallTime(id)
	return ok && made.Before(r.books.Month.Begin())
}

// Due returns the months whose files are to be written, and the last day that they then cover, as a
// position; none if that was done. every is "day" or "month", done the position of the last time, empty
// for never.
func Due(every, done string, now time.Time) (months []Month, position string) {
	end := now.Add(-2 * settling).UTC() // everything is booked by then
	last := time.Date(end.Year(), end.Month(), end.Day(), 0, 0, 0, 0, time.UTC).AddDate(0, 0, -1)
	if every == "month" {
		last = MonthOf(last.AddDate(0, 0, 1)).Begin().AddDate(0, 0, -1)
	}
	first := last
	if before, err := time.Parse(time.DateOnly, done); err == nil {
		first = before.AddDate(0, 0, 1)
	}
	if oldest := last.AddDate(0, 0, -ledger.MostDays); first.Before(oldest) {
		first = oldest
	}
	if first.After(last) {
		return nil, done
	}
	for m := MonthOf(first); !m.Begin().After(last); m = (Month{m.End()}) {
		months = append(months, m)
	}
	return months, last.Format(time.DateOnly)
}
