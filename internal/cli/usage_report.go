package cli

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/figures"
)

type report struct {
	by       []string
	filter   string    // in the language of the API
	since    time.Time // what was spent before it is missing; zero: nothing
	sort     string
	from, to time.Time
	hours    bool           // hourly sums instead of whole UTC days
	zone     *time.Location // zone of days and hours
	wholes   int            // number of UTC days without hourly data
	byName   map[string]*line
	lines    []*line
	total    line
}

// line is one sum. If grouped by class it has only tokens and Cost.
type line struct {
	by []string // values of the dimensions
	ledger.Sums
	refused, waited int64 // calls; see report.countsRefusals
}

func (l *line) tokens() int64 { return l.Input + l.Output }

func (r *report) add(org string, u *admin.UsageLine) {
	u.Org = org
	sums := u.Sums()
	r.line(func(dimension string) string { return *u.Value(dimension) }).Add(sums)
	r.total.Add(sums)
}

// line returns the line with these values, which is new if there is none.
func (r *report) line(value func(dimension string) string) *line {
	by := make([]string, len(r.by))
	for i, d := range r.by {
		by[i] = value(d)
		switch {
		case d == ledger.Hour && by[i] == "": // a UTC day without hourly data
			by[i] = "-"
		case d == ledger.Hour:
			by[i] = strings.Replace(by[i], ":00:00", ":00", 1) // without seconds
		}
	}
	name := strings.Join(by, "\x00")
	if r.byName[name] == nil {
		if r.byName == nil {
			r.byName = map[string]*line{}
		}
		r.byName[name] = &line{by: by}
		r.lines = append(r.lines, r.byName[name])
	}
	return r.byName[name]
}

// countsRefusals reports whether refusals can be grouped like the report: they have a user and
// a time, but no key or model, and no filter applies to them.
func (r *report) countsRefusals() bool {
	return r.filter == "" && !slices.ContainsFunc(r.by, func(d string) bool {
		return !slices.Contains([]string{"org", "user", ledger.Hour, ledger.Day, ledger.Month}, d)
	})
}

func (r *report) countRefusal(one *admin.Refusal) {
	at := ledger.MomentOf(*one.Begin, one.Hour && r.hours, r.zone)
	u := admin.UsageLine{Org: one.Org, User: one.User, Hour: at.Hour, Day: at.Day, Month: at.Month}
	for _, to := range []*line{r.line(func(dimension string) string { return *u.Value(dimension) }), &r.total} {
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

func (r *report) byClass() bool { return slices.Contains(r.by, ledger.Class) }

// measures are what lines can be sorted by, in addition to the dimensions.
var measures = []string{"cost", "calls", "tokens", "estimated", "overrun", "refused"}

func (r *report) checkSort(column string) error {
	r.sort = column
	if column == "" {
		r.sort = "cost"
		for _, d := range r.by {
			if d == ledger.Hour || d == ledger.Day || d == ledger.Month {
				r.sort = d
			}
		}
	}
	if !slices.Contains(measures, r.sort) && !slices.Contains(r.by, r.sort) {
		return misused("--sort %s: expected %s or one of --by %s", column, strings.Join(measures, ", "),
			strings.Join(r.by, ","))
	}
	return nil
}

// finish sorts the lines: by measures descending, by names ascending, ties by cost and then by all names.
func (r *report) finish() {
	at := slices.Index(r.by, r.sort)
	columns := append(slices.Clone(usageColumns), tokensColumn)
	i := slices.IndexFunc(columns, func(c column) bool { return c.name == r.sort })
	slices.SortFunc(r.lines, func(a, b *line) int {
		first := 0
		if at >= 0 {
			first = cmp.Compare(a.by[at], b.by[at])
		} else {
			first = cmp.Compare(columns[i].of(b), columns[i].of(a))
		}
		return cmp.Or(first, cmp.Compare(b.Cost, a.Cost), slices.Compare(a.by, b.by))
	})
}

func (r *report) span() string {
	if r.hours {
		return figures.Between(r.from.Truncate(time.Hour), r.to)
	}
	last := r.to.Add(-time.Nanosecond)
	if r.from.Format(time.DateOnly) == last.Format(time.DateOnly) {
		return "on " + r.from.Format(time.DateOnly) + " UTC"
	}
	return "from " + r.from.Format(time.DateOnly) + " to " + last.Format(time.DateOnly) + " UTC"
}
