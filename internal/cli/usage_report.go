package cli

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/pricing"
)

// dimensions are what usage can be summed by.
var dimensions = []string{"org", "user", "key", "model", "provider", "endpoint", "hour", "day", "month", "class"}

// report is what `llmguard usage` answers.
type report struct {
	by       []string
	sort     string
	from, to time.Time
	hours    bool           // it is of hours, and not of whole UTC days
	zone     *time.Location // of days and hours
	wholes   int            // UTC days in it of which no hours are known
	lines    []*line
	total    line
}

// line is one sum. With class among the dimensions it has Tokens and Cost only.
type line struct {
	by     []string // values of the dimensions
	tokens int64
	budget.Sums
	refused, waited int64 // calls; see report.countsRefusals
}

// count adds one roll-up to the sums, keyed by the dimensions' values.
func (r *report) count(sums map[string]*line, org string, one budget.Rollup) {
	for _, part := range r.parts(one.Sums) {
		names := r.times(one.Begin, one.Hour)
		names["org"], names["user"], names["key"], names["model"] = org, one.User, one.Key, one.Model
		names["provider"], names["endpoint"], names["class"] = one.Provider, one.Endpoint, part.class
		for _, to := range []*line{r.line(sums, names), &r.total} {
			to.Add(part.Sums)
			to.tokens += part.tokens
		}
	}
}

// times names the hour, the day and the month of a sum. A UTC day of which no hours are known
// has no hour.
func (r *report) times(begin time.Time, hour bool) map[string]string {
	if !hour {
		return map[string]string{"day": begin.Format(time.DateOnly), "month": begin.Format("2006-01"), "hour": "-"}
	}
	begin = begin.In(r.zone)
	return map[string]string{"day": begin.Format(time.DateOnly), "month": begin.Format("2006-01"), "hour": begin.Format("2006-01-02T15:04Z07:00")}
}

// line is the one with these names.
func (r *report) line(sums map[string]*line, names map[string]string) *line {
	by := make([]string, len(r.by))
	for i, d := range r.by {
		by[i] = names[d]
	}
	at := strings.Join(by, "\x00")
	if sums[at] == nil {
		sums[at] = &line{by: by}
	}
	return sums[at]
}

// countsRefusals reports whether refusals can be told by all that is summed by: they have a user
// and a time, and no key or model.
func (r *report) countsRefusals() bool {
	return !slices.ContainsFunc(r.by, func(d string) bool { return !slices.Contains([]string{"org", "user", "hour", "day", "month"}, d) })
}

// countRefusal adds what a limit refused.
func (r *report) countRefusal(sums map[string]*line, one admin.Refusal) {
	names := r.times(*one.Begin, one.Hour && r.hours)
	names["org"], names["user"] = one.Org, one.User
	for _, to := range []*line{r.line(sums, names), &r.total} {
		to.refused += one.Refused
		to.waited += one.Waited
	}
}

// part is all of a sum, or what it has of one class.
type part struct {
	class  string
	tokens int64
	budget.Sums
}

func (r *report) parts(s budget.Sums) []part {
	if !r.byClass() {
		return []part{{tokens: s.Input + s.Output, Sums: s}}
	}
	all := []part{
		classPart("input", s.Input-s.Cached-s.Written, s.Split.Input), classPart("cached_input", s.Cached, s.Split.CachedInput),
		classPart("cache_write", s.Written, s.Split.CacheWrite), classPart("output", s.Output, s.Split.Output),
		classPart("fees", 0, s.Split.Fees), classPart("unmetered", 0, s.Unmetered()), classPart("adjusted", 0, s.Adjusted),
	}
	return slices.DeleteFunc(all, func(p part) bool { return p.tokens == 0 && p.Cost == 0 })
}

func classPart(class string, tokens int64, cost pricing.Nano) part {
	return part{class: class, tokens: tokens, Sums: budget.Sums{Cost: cost}}
}

func (r *report) byClass() bool { return slices.Contains(r.by, "class") }

// measures are what lines can be sorted by besides the dimensions.
var measures = map[string]func(*line) int64{
	"cost":      func(l *line) int64 { return int64(l.Cost) },
	"calls":     func(l *line) int64 { return l.Calls },
	"tokens":    func(l *line) int64 { return l.tokens },
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
		return misused("--sort %s: expected cost, calls, tokens, estimated, overrun, refused or one of --by %s", column, strings.Join(r.by, ","))
	}
	return nil
}

// collect sorts the sums: measures largest first, names by name, ties by cost
// and then by all names.
func (r *report) collect(sums map[string]*line) {
	for _, l := range sums {
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

// span words the period.
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
