package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/pricing"
)

// dimensions are what usage can be summed by.
var dimensions = []string{"org", "user", "key", "model", "provider", "endpoint", "day", "month", "class"}

// report is what `llmguard usage` answers.
type report struct {
	by       []string
	sort     string
	from, to time.Time
	lines    []*line
	total    line
}

// line is one sum. With class among the dimensions it has Tokens and Cost only.
type line struct {
	by     []string // values of the dimensions
	tokens int64
	budget.Sums
}

// count adds one roll-up to the sums, keyed by the dimensions' values.
func (r *report) count(sums map[string]*line, org string, one budget.Rollup) {
	for _, part := range r.parts(one.Sums) {
		by := make([]string, len(r.by))
		for i, d := range r.by {
			by[i] = map[string]string{
				"org": org, "user": one.User, "key": one.Key, "model": one.Model, "provider": one.Provider, "endpoint": one.Endpoint,
				"day": one.Day.Format(time.DateOnly), "month": one.Day.Format("2006-01"), "class": part.class,
			}[d]
		}
		at := strings.Join(by, "\x00")
		l := sums[at]
		if l == nil {
			l = &line{by: by}
			sums[at] = l
		}
		for _, to := range []*line{l, &r.total} {
			to.Add(part.Sums)
			to.tokens += part.tokens
		}
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
}

func (r *report) checkSort(column string) error {
	r.sort = column
	if column == "" {
		r.sort = "cost"
		for _, d := range r.by {
			if d == "day" || d == "month" {
				r.sort = d
			}
		}
	}
	if measures[r.sort] == nil && !slices.Contains(r.by, r.sort) {
		return fmt.Errorf("--sort %s: expected cost, calls, tokens, estimated, overrun or one of --by %s", column, strings.Join(r.by, ","))
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

// span words the period.
func (r *report) span() string {
	last := r.to.Add(-time.Nanosecond)
	if r.from.Format(time.DateOnly) == last.Format(time.DateOnly) {
		return "on " + r.from.Format(time.DateOnly) + " UTC"
	}
	return "from " + r.from.Format(time.DateOnly) + " to " + last.Format(time.DateOnly) + " UTC"
}
