package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget/ledger"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/pricing"
)

type period struct {
	Name       string
	Step, Span time.Duration
}

// ranges are the periods to choose from, with the steps of their charts.
var ranges = []period{
	{"1h", time.Minute, time.Hour},
	{"24h", time.Hour, 24 * time.Hour},
	{"7d", 24 * time.Hour, 7 * 24 * time.Hour},
	{"30d", 24 * time.Hour, 30 * 24 * time.Hour},
}

const (
	customRange = "custom"
	usualRange  = "24h"
	inputLayout = "2006-01-02T15:04" // of datetime-local
	topGroups   = "20"
	topCalls    = 10
	usualSort   = "cost" // most expensive first
)

// asked is what the pages of spending and calls show: orgs, period, filter and grouping.
type asked struct {
	Path     string // of the page
	Org      string // empty: all
	Orgs     []string
	Range    string
	From, To time.Time
	Step     time.Duration
	By       string
	Filter   string
	Sort     string // of calls
}

// spendPages are the pages of spending and calls, and their downloads.
type spendPages struct{ o *Options }

// askedOf reads the address of a page; what is missing or wrong is what is usual.
func (c spendPages) askedOf(r *http.Request, path string) asked {
	q := r.URL.Query()
	a := asked{
		Path: Path + path, Org: q.Get("org"), Range: cmp.Or(q.Get("range"), usualRange), By: cmp.Or(q.Get("by"), "user"),
		Filter: strings.TrimSpace(strings.Join(q["q"], " ")), Sort: cmp.Or(q.Get("sort"), usualSort),
	}
	a.Orgs = c.o.orgs()
	if !slices.Contains(a.Orgs, a.Org) {
		a.Org = ""
	}
	if len(a.Orgs) == 1 {
		a.Org = a.Orgs[0]
	}
	now := c.o.Now().UTC()
	from, err := time.Parse(inputLayout, q.Get("from"))
	to, err2 := time.Parse(inputLayout, q.Get("to"))
	if a.Range == customRange && err == nil && err2 == nil && from.Before(to) {
		a.From, a.To = from, to
		return a
	}
	i := slices.IndexFunc(ranges, func(p period) bool { return p.Name == a.Range })
	if i < 0 {
		i, a.Range = 1, usualRange
	}
	a.Step = ranges[i].Step
	a.To = now.Truncate(a.Step).Add(a.Step)
	a.From = a.To.Add(-ranges[i].Span)
	return a
}

// Terms are the conditions of the filter.
func (a asked) Terms() []string { return ledger.FilterWords(a.Filter) }

// Link returns the address of the page with some values changed, given as names and values.
func (a asked) Link(change ...string) string {
	q := url.Values{}
	set := func(name, value, usual string) {
		q.Del(name)
		if value != usual {
			q.Set(name, value)
		}
	}
	if len(a.Orgs) > 1 {
		set("org", a.Org, "")
	}
	set("range", a.Range, usualRange)
	if a.Range == customRange {
		set("from", a.From.Format(inputLayout), "")
		set("to", a.To.Format(inputLayout), "")
	}
	set("by", a.By, "user")
	set("q", a.Filter, "")
	set("sort", a.Sort, usualSort)
	path := a.Path
	for i := 0; i+1 < len(change); i += 2 {
		if change[i] == "path" {
			path = Path + change[i+1]
			continue
		}
		set(change[i], change[i+1], "")
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// Without returns the address without one condition.
func (a asked) Without(term string) string {
	rest := slices.DeleteFunc(a.Terms(), func(t string) bool { return t == term })
	return a.Link("q", strings.Join(rest, " "))
}

// query returns the parameters of the API.
func (a asked) query() url.Values {
	q := url.Values{"from": {a.From.UTC().Format(time.RFC3339)}, "to": {a.To.UTC().Format(time.RFC3339)}}
	if a.Filter != "" {
		q.Set("filter", a.Filter)
	}
	return q
}

func (a asked) spendPath(limit string) string {
	q := a.query()
	q.Set("by", a.By)
	q.Set("limit", limit)
	if a.Org != "" {
		q.Set("org", a.Org)
	}
	if a.Step > 0 {
		q.Set("step", a.Step.String())
	}
	return "/spend?" + q.Encode()
}

func (a asked) callsPath(limit, before string) string {
	q := a.query()
	q.Set("limit", limit)
	q.Set("sort", a.Sort)
	if before != "" {
		q.Set("before", before)
	}
	return "/orgs/" + url.PathEscape(a.Org) + "/calls?" + q.Encode()
}

// spendView is the page of spending.
type spendView struct {
	asked
	admin.Spend
	Chart *stack
	Lines []spendLine
	Calls callList
	Bad   string // why the API refused the question
}

// spendLine is a group in the table.
type spendLine struct {
	Name, Link string
	Colour     int // of the chart; -1: none
	admin.SpendGroup
	Change string
}

// spend shows what was spent over time, by any dimension, down to the calls.
func (c spendPages) spend(v *visit) error {
	view := spendView{asked: c.askedOf(v.r, "spend")}
	status, text := v.ask(v.r.Context(), http.MethodGet, view.spendPath(topGroups), nil, &view.Spend)
	if status != http.StatusOK {
		view.Bad = problem(text, "The spending could not be read.")
		view.Spend.Dimensions = ledger.Names()
		return v.show("spend", "Spend", view)
	}
	view.asked.From, view.asked.To = view.Spend.From, view.Spend.To
	view.fill()
	view.Calls = v.calls(view.asked, topCalls, "")
	return v.show("spend", "Spend", view)
}

// fill makes the table and the chart.
func (s *spendView) fill() {
	for i := range s.Groups {
		g := s.Groups[i]
		line := spendLine{Name: s.nameOf(g.Values[0]), Link: s.into(&g), SpendGroup: g, Colour: -1}
		line.Change = changeOf(g.Cost, g.Before)
		if i < stackSeries {
			line.Colour = i
		}
		s.Lines = append(s.Lines, line)
	}
	if s.Total.Cost != 0 {
		s.Chart = s.chart()
	}
}

// chart draws the groups; those that the table does not list are among the others.
func (s *spendView) chart() *stack {
	costs := func(series []int64) (out []spent) {
		for _, cost := range series {
			out = append(out, spent{ledger.Sums{Cost: pricing.Nano(cost)}, true})
		}
		return out
	}
	var lines []stackLine
	for i := range s.Lines {
		lines = append(lines, stackLine{s.Lines[i].Name, s.Lines[i].Link, costs(s.Lines[i].Series)})
	}
	if s.MoreGroups > 0 {
		lines = append(lines, stackLine{Name: "others", Costs: costs(s.Others.Series)})
	}
	axis := stackAxis{s.asked.From, time.Duration(s.Spend.Step) * time.Second, func(from, to time.Time) string {
		return s.Link("range", customRange, "from", from.UTC().Format(inputLayout), "to", to.UTC().Format(inputLayout))
	}}
	title := "Spending " + figures.Between(s.asked.From, s.asked.To) + " by " + s.Title()
	return newStack("chart", title, axis, lines)
}

// nameOf returns the name of a value; calls without one have a name in parentheses.
func (s *spendView) nameOf(value string) string {
	return cmp.Or(value, "(no "+plain(s.asked.By)+")")
}

// into returns the address of the page for the calls of one group, by the next dimension.
func (s *spendView) into(g *admin.SpendGroup) string {
	var change []string
	if s.asked.By == "org" {
		change = append(change, "org", g.Values[0])
	} else {
		words := s.Terms()
		if term := ledger.FilterWord(s.asked.By, g.Values[0]); !slices.Contains(words, term) {
			words = append(words, term)
		}
		change = append(change, "q", strings.Join(words, " "))
		if len(g.Orgs) == 1 && len(s.asked.Orgs) > 1 {
			change = append(change, "org", g.Orgs[0])
		}
	}
	return s.Link(append(change, "by", s.next())...)
}

// plain returns the name of a dimension. A label may have the name of something built in.
func plain(dimension string) string {
	name := strings.TrimPrefix(dimension, ledger.LabelPrefix)
	if name != dimension && slices.Contains(ledger.FilterNames(), name) {
		return "label " + name
	}
	return name
}

// next returns the dimension to group by after this one: the first that is not filtered yet.
func (s *spendView) next() string {
	labels := slices.DeleteFunc(slices.Clone(s.Dimensions), func(d string) bool {
		return !strings.HasPrefix(d, ledger.LabelPrefix)
	})
	others := []string{"model", "key", "endpoint", "provider", ledger.Run}
	for _, d := range slices.Concat([]string{"user"}, labels, others) {
		filtered := slices.ContainsFunc(s.Terms(), func(t string) bool {
			return strings.HasPrefix(t, d+"=") || strings.HasPrefix(t, strings.TrimPrefix(d, ledger.LabelPrefix)+"=")
		})
		if d != s.asked.By && !filtered {
			return d
		}
	}
	return s.asked.By
}

// changeOf compares a cost with that of the period before.
func changeOf(now int64, before *int64) string {
	switch {
	case before == nil:
		return ""
	case *before <= 0 && now > 0:
		return "new"
	case *before <= 0 || now == *before:
		return "same"
	case now >= 10**before:
		return "× " + figures.Count(now / *before)
	case now > *before:
		return "+" + figures.Count((now-*before)*100 / *before) + " %"
	}
	return "−" + figures.Count((*before-now)*100 / *before) + " %"
}

// picker is the form of a page: period, org and filter.
type picker struct {
	asked
	Names []string // of periods
}

// Ask returns the form of the page.
func (a asked) Ask() picker {
	p := picker{asked: a}
	for _, one := range ranges {
		p.Names = append(p.Names, one.Name)
	}
	return p
}

// Grouped, Start and End are what the page shows.
func (s spendView) Grouped() string     { return s.asked.By }
func (s spendView) Start() time.Time    { return s.asked.From }
func (s spendView) End() time.Time      { return s.asked.To }
func (s spendView) TotalChange() string { return changeOf(s.Total.Cost, s.Total.Before) }

// Title returns a dimension as a heading.
func (s spendView) Title() string {
	return titleOf(plain(s.asked.By))
}

// Top returns the share of the first group, in percent.
func (s spendView) Top() int64 {
	if len(s.Groups) == 0 || s.Total.Cost <= 0 {
		return 0
	}
	return s.Groups[0].Cost * 100 / s.Total.Cost
}

// exact formats an amount with all its digits.
func exact(n int64) string { return pricing.Nano(n).String() }
