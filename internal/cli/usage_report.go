package cli

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/admin"
)

// dimensions are what usage can be grouped by.
var dimensions = []string{"org", "user", "key", "model", "provider", "endpoint", "run", "hour", "day", "month", "class"}

// report is the output of `llmguard usage`.
type report struct {
	by       []string
	label    string    // of --by label:NAME
	filter   string    // in the language of the API
	since    time.Time // entries before it were not read; zero: all were
	sort     string
	from, to time.Time
	hours    bool           // hourly sums instead of whole UTC days
	zone     *time.Location // zone of days and hours
	wholes   int            // number of UTC days without hourly data
	rows     []usageRow
	refusals []admin.Refusal
	values   map[string][]string // values of the dimensions, by line name
	lines    []*line
	total    line
}

// usageRow is what an org spent in an hour or a day, optionally on one token class.
type usageRow struct {
	org, class string
	budget.Rollup
}

// line is one sum. If grouped by class it has only tokens and Cost.
type line struct {
	by []string // values of the dimensions
	budget.Sums
	refused, waited int64 // calls; see report.countsRefusals
}

func (l *line) tokens() int64 { return l.Input + l.Output }

// add adds a roll-up of an org.
func (r *report) add(org string, one budget.Rollup) {
	if !r.byClass() {
		r.rows = append(r.rows, usageRow{org: org, Rollup: one})
		return
	}
	for _, part := range one.ByClass() {
		row := usageRow{org: org, class: part.Class, Rollup: one}
		row.Sums = part.Sums
		r.rows = append(r.rows, row)
	}
}

// name returns the name of the line that a row is added to.
func (r *report) name(row usageRow) string {
	names := r.times(row.Begin, row.Hour)
	names["org"] = row.org
	names["user"] = row.User
	names["key"] = row.Key
	names["model"] = row.Model
	names["provider"] = row.Provider
	names["endpoint"] = row.Endpoint
	names["run"] = string(row.Run)
	names["class"] = row.class
	label := row.Labels.Get(r.label)
	names[budget.LabelDimension+r.label] = label
	if r.label == budget.GroupLabel {
		names[budget.GroupLabel] = label
	}
	return r.nameOf(names)
}

func (r *report) nameOf(names map[string]string) string {
	by := make([]string, len(r.by))
	for i, d := range r.by {
		by[i] = names[d]
	}
	name := strings.Join(by, "\x00")
	if r.values == nil {
		r.values = map[string][]string{}
	}
	r.values[name] = by
	return name
}

// times returns the hour, day and month of a sum. A UTC day without hourly data has no hour.
func (r *report) times(begin time.Time, hour bool) map[string]string {
	if !hour {
		return map[string]string{"day": begin.Format(time.DateOnly), "month": begin.Format("2006-01"), "hour": "-"}
	}
	begin = begin.In(r.zone)
	return map[string]string{
		"day": begin.Format(time.DateOnly), "month": begin.Format("2006-01"),
		"hour": begin.Format("2006-01-02T15:04Z07:00"),
	}
}

// countsRefusals reports whether refusals can be grouped like the report: they have a user and
// a time, but no key or model, and no filter applies to them.
func (r *report) countsRefusals() bool {
	return r.filter == "" && !slices.ContainsFunc(r.by, func(d string) bool {
		return !slices.Contains([]string{"org", "user", "hour", "day", "month"}, d)
	})
}

// countRefusal adds a refusal count.
func (r *report) countRefusal(lines map[string]*line, one admin.Refusal) {
	names := r.times(*one.Begin, one.Hour && r.hours)
	names["org"], names["user"] = one.Org, one.User
	name := r.nameOf(names)
	if lines[name] == nil {
		lines[name] = &line{by: r.values[name]}
	}
	for _, to := range []*line{lines[name], &r.total} {
		to.refused += one.Refused
		to.waited += one.Waited
	}
}

// splitOrgs groups users and keys by org as well, because several orgs may use the same name.
func (r *report) splitOrgs() {
	named := slices.Contains(r.by, "user") || slices.Contains(r.by, "key")
	if named && !slices.Contains(r.by, "org") {
		r.by = append([]string{"org"}, r.by...)
	}
}

func (r *report) byClass() bool { return slices.Contains(r.by, "class") }

// measures are what lines can be sorted by, in addition to the dimensions.
var measures = map[string]func(*line) int64{
	"cost":      func(l *line) int64 { return int64(l.Cost) },
	"calls":     func(l *line) int64 { return l.Calls },
	"tokens":    (*line).tokens,
	"estimated": func(l *line) int64 { return int64(l.Estimated) },
	"overrun":   func(l *line) int64 { return int64(l.Overrun) },
	"refused":   func(l *line) int64 { return l.refused },
}

func (r *report) checkSort(column string) error {
	r.sort = column
	if column == "" {
		r.sort = "cost"
		for _, d := range r.by {
			if d == "hour" || d == "day" || d == "month" {
				r.sort = d
			}
		}
	}
	if measures[r.sort] == nil && !slices.Contains(r.by, r.sort) {
		return misused("--sort %s: expected cost, calls, tokens, estimated, overrun, refused or one of --by %s", column,
			strings.Join(r.by, ","))
	}
	return nil
}

// collect adds up and sorts the lines: by measures descending, by names ascending, ties by cost
// and then by all names.
func (r *report) collect() {
	lines := map[string]*line{}
	groups, total := budget.Group(r.rows, r.name)
	for name, sums := range groups {
		lines[name] = &line{by: r.values[name], Sums: *sums}
	}
	r.total.Sums = total
	for _, one := range r.refusals {
		r.countRefusal(lines, one)
	}
	for _, l := range lines {
		r.lines = append(r.lines, l)
	}
	at := slices.Index(r.by, r.sort)
	slices.SortFunc(r.lines, func(a, b *line) int {
		first := 0
		if at >= 0 {
			first = cmp.Compare(a.by[at], b.by[at])
		} else {
			first = cmp.Compare(measures[r.sort](b), measures[r.sort](a))
		}
		return cmp.Or(first, cmp.Compare(b.Cost, a.Cost), slices.Compare(a.by, b.by))
	})
}

const hourLayout = "2006-01-02 15:04 MST"

// span formats the period.
func (r *report) span() string {
	if r.hours {
		return "from " + r.from.Truncate(time.Hour).Format(hourLayout) + " to " + r.to.Format(hourLayout)
	}
	last := r.to.Add(-time.Nanosecond)
	if r.from.Format(time.DateOnly) == last.Format(time.DateOnly) {
		return "on " + r.from.Format(time.DateOnly) + " UTC"
	}
	return "from " + r.from.Format(time.DateOnly) + " to " + last.Format(time.DateOnly) + " UTC"
}
