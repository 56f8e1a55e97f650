package top

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/pricing"
	"github.com/llmguard/llmguard/queue"
)

// row is a line of a list, with what it refers to.
type row struct {
	org, user string
	limit     string // the fullest one, or the one it shows
	cells     []string
	value     string  // of a group
	share     float64 // use of a limit or quota; determines the color of the bar
}

// usedUp is the name of the column of forecasts.
const usedUp = "runs out in"

// columnsOf returns the columns of a list.
func (m *Model) columnsOf(tab Tab) []column {
	limit := []column{
		left("limit", 1), right("used", 2), right("amount", 4), left(use, 0), right(usedUp, 1).ifAny(),
	}
	recent := []column{right("calls/min", 0), right("failed", 3), right("$/min", 0)}
	spark := left("last minute", 5)
	switch {
	case tab == m.tab && m.user != "":
		return []column{
			left("limit", 0), left("metric", 3), left("mode", 2), right("used", 0), right("amount", 0),
			right("held", 4), left(use, 0), right("resets in", 1), right(usedUp, 0).ifAny(),
		}
	case tab == Pools:
		return []column{
			left("pool", 0), right("connected", 0), right("async", 0), right("batch", 0), right("running", 0),
			right("paused", 2), right("dead", 1),
			right("rpm", 4), right("tpm", 5), left(use, 0), left("tightest", 4), right("pace", 6), right("blocked", 3),
		}
	case tab == Calls:
		return []column{
			left("ended", 4), left("org", 0), left("user", 0), left("model", 1), right("waited", 0),
			right("took", 0), right("cost", 0), left("outcome", 2), left("run and labels", 3).ifAny(),
		}
	case tab == Groups:
		for i := range limit {
			limit[i] = limit[i].ifAny() // not everything that calls are grouped by has limits
		}
		names := []column{left("org", 0), left(plain(m.snap.by()), 0), left("id", 3).ifAny()}
		return slices.Concat(names, recent, []column{spark}, limit)
	}
	names := []column{left("org", 0), left("user", 0)}
	if tab == Orgs && m.org == "" {
		names = names[:1]
	}
	if m.snap.filtered() {
		return slices.Concat(names, recent, []column{spark}, limit)
	}
	whole := []column{right("today", 0), spark, right("waiting", 0), right("refused", 0), left("by", 2).ifAny()}
	return slices.Concat(names, recent, whole, limit)
}

// by returns what the sample is grouped by; "" without a sample.
func (s *Snapshot) by() string {
	if s == nil {
		return ""
	}
	return s.By
}

// filtered reports whether the sample has only some calls, so that other figures are left out.
func (s *Snapshot) filtered() bool { return s != nil && s.Filter != "" }

// rows returns the lines of the list that has the focus.
func (m *Model) rows() []row { return m.rowsOf(m.tab) }

// rowsOf returns the lines of a list, sorted and filtered.
func (m *Model) rowsOf(tab Tab) []row {
	if m.snap == nil {
		return nil
	}
	switch {
	case tab == m.tab && m.user != "":
		return limitRows(spenderOf(m.snap.Users, m.org, m.user))
	case tab == Pools:
		return m.poolRows()
	case tab == Calls:
		return m.callRows()
	case tab == Groups:
		return m.spenderRows(m.snap.Groups, tab)
	case tab == Orgs && m.org == "":
		return m.spenderRows(m.snap.Orgs, tab)
	}
	list := m.snap.Users
	if m.org != "" {
		list = slices.DeleteFunc(slices.Clone(list), func(s Spender) bool { return s.Org != m.org })
	}
	return m.spenderRows(list, tab)
}

func (m *Model) sort() string { return m.sortOf(m.tab) }

func (m *Model) sortOf(tab Tab) string { return sorts[tab][m.sorted[tab]] }

func (m *Model) spenderRows(list []Spender, tab Tab) []row {
	list = slices.DeleteFunc(slices.Clone(list), func(s Spender) bool {
		return !fits(m.filter, s.Org+" "+s.User+s.Name+" "+s.Value)
	})
	slices.SortStableFunc(list, func(a, b Spender) int {
		switch m.sortOf(tab) {
		case "today":
			return cmp.Compare(b.Today, a.Today)
		case "calls":
			return cmp.Compare(b.Calls, a.Calls)
		case "waiting":
			return cmp.Compare(b.Waiting, a.Waiting)
		case "refused":
			return cmp.Compare(b.Refused, a.Refused)
		case "limit":
			return cmp.Compare(fullest(&b), fullest(&a))
		case "forecast":
			return cmp.Compare(lasts(&a), lasts(&b))
		case "name":
			return cmp.Or(cmp.Compare(a.Org, b.Org), cmp.Compare(a.User, b.User), cmp.Compare(a.Name, b.Name),
				cmp.Compare(a.Value, b.Value))
		}
		return cmp.Compare(b.Cost, a.Cost)
	})
	out := make([]row, 0, len(list))
	for i := range list {
		out = append(out, m.spenderRow(&list[i], tab))
	}
	return out
}

func (m *Model) spenderRow(s *Spender, tab Tab) row {
	about := ""
	if len(m.snap.Uncounted) > 0 {
		about = "~"
	}
	r := row{org: s.Org, user: s.User, value: s.Value, cells: []string{escape.Text(s.Org)}}
	switch {
	case tab == Groups:
		id := ""
		if s.Name != "" {
			id = s.Value
		}
		r.cells = append(r.cells, escape.Text(cmp.Or(s.Name, s.Value, "(no "+plain(m.snap.By)+")")), escape.Text(id))
	case s.User != "":
		r.cells = append(r.cells, escape.Text(s.User))
	}
	r.cells = append(r.cells, figures.Compact(s.Calls), figures.Compact(s.Failed), figures.USD(s.Cost))
	if tab == Groups || m.snap.filtered() {
		r.cells = append(r.cells, spark(s.Spark))
	} else {
		r.cells = append(r.cells, figures.USD(s.Today), spark(s.Spark), about+figures.Compact(s.Waiting),
			figures.Compact(s.Refused), escape.Text(string(s.RefusedBy)))
	}
	if len(s.Limits) == 0 {
		r.cells = append(r.cells, "", "", "", "", "")
		return r
	}
	l := &s.Limits[0]
	r.share, r.limit = l.Share(), l.Name
	r.cells = append(r.cells, escape.Text(l.Name), l.amount(l.Used), l.amount(l.Amount), bar(r.share), s.usedUp())
	return r
}

// soonest returns the limit that is used up first, or nil.
func soonest(s *Spender) *Limit {
	var first *Limit
	for i := range s.Limits {
		if l := &s.Limits[i]; l.UsedUp != nil && (first == nil || *l.UsedUp < *first.UsedUp) {
			first = l
		}
	}
	return first
}

// lasts returns in what time the first limit is used up.
func lasts(s *Spender) time.Duration {
	if l := soonest(s); l != nil {
		return *l.UsedUp
	}
	return budget.Endless
}

// usedUp says in what time the first limit is used up, and which, if it is not the fullest.
func (s *Spender) usedUp() string {
	l := soonest(s)
	if l == nil {
		return ""
	}
	if l.Name != s.Limits[0].Name {
		return l.usedUp() + " " + escape.Text(l.Name)
	}
	return l.usedUp()
}

// usedUp says in what time the limit is used up.
func (l *Limit) usedUp() string {
	switch {
	case l.UsedUp == nil:
		return ""
	case *l.UsedUp <= 0 && l.Used < l.Amount: // the forecast is older
		return "soon"
	}
	return strings.TrimPrefix(figures.About(*l.UsedUp), "about ")
}

func fullest(s *Spender) float64 {
	if len(s.Limits) == 0 {
		return -1
	}
	return s.Limits[0].Share()
}

func limitRows(s *Spender) []row {
	out := make([]row, 0, len(s.Limits))
	for i := range s.Limits {
		l := &s.Limits[i]
		out = append(out, row{org: s.Org, user: s.User, limit: l.Name, share: l.Share(), cells: []string{
			escape.Text(l.Name), l.Metric, l.Mode, l.amount(l.Used), l.amount(l.Amount), l.amount(l.Held), bar(l.Share()),
			l.resets(), l.usedUp(),
		}})
	}
	return out
}

func (m *Model) poolRows() []row {
	list := slices.DeleteFunc(slices.Clone(m.snap.Pools), func(p Pool) bool { return !fits(m.filter, p.ID) })
	slices.SortStableFunc(list, func(a, b Pool) int {
		switch m.sortOf(Pools) {
		case "quota":
			return cmp.Compare(b.Rates.Fullest().Share(), a.Rates.Fullest().Share())
		case "name":
			return cmp.Compare(a.ID, b.ID)
		}
		return cmp.Compare(b.waiting(), a.waiting())
	})
	out := make([]row, 0, len(list))
	for i := range list {
		p := &list[i]
		full := p.Rates.Fullest()
		tightest := ""
		if full.Limit > 0 {
			tightest = full.Name
		}
		out = append(out, row{share: full.Share(), cells: []string{
			escape.Text(p.ID), figures.Compact(p.Waiting["interactive"]), figures.Compact(p.Waiting["async"]),
			figures.Compact(p.Waiting["batch"]),
			figures.Compact(p.Running), figures.Compact(p.Parked),
			figures.Compact(p.Dead), rates(p.Rates[:1]), rates(p.Rates[1:]), bar(full.Share()), tightest,
			fmt.Sprintf("%.0f %%", 100*p.Pace),
			brief(p.Blocked),
		}})
	}
	return out
}

// rates formats the use of quotas: 3/60, or 10/500 in 2/80 out.
func rates(list queue.Rates) string {
	var out []string
	for _, r := range list {
		text := figures.Compact(r.Used)
		if r.Limit > 0 {
			text += "/" + figures.Compact(r.Limit)
		}
		text += map[string]string{"itpm": " in", "otpm": " out"}[r.Name]
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func (m *Model) callRows() []row {
	list := slices.DeleteFunc(slices.Clone(m.snap.Slow), func(e Ended) bool {
		return m.org != "" && m.tab != Calls && e.Org != m.org ||
			!fits(m.filter, strings.Join([]string{e.Org, e.User, e.Model, e.Outcome, e.Call, e.Run, string(e.Labels)}, " "))
	})
	slices.SortStableFunc(list, func(a, b Ended) int {
		switch m.sortOf(Calls) {
		case "waited":
			return cmp.Compare(b.Waited, a.Waited)
		case "cost":
			return cmp.Compare(b.Cost, a.Cost)
		case "newest":
			return b.At.Compare(a.At)
		}
		return cmp.Compare(b.Waited+b.Took, a.Waited+a.Took)
	})
	out := make([]row, 0, len(list))
	for i := range list {
		e := &list[i]
		outcome := escape.Text(e.Outcome)
		if e.Status >= 400 {
			outcome = strings.TrimSpace(strconv.Itoa(e.Status) + " " + outcome)
		}
		out = append(out, row{org: e.Org, user: e.User, cells: []string{
			figures.Cell(figures.Clock(e.At)), escape.Text(e.Org), escape.Text(e.User), escape.Text(e.Model), brief(e.Waited),
			brief(e.Took), figures.USD(e.Cost), outcome,
			escape.Text(strings.TrimSpace(e.Run + " " + strings.ReplaceAll(string(e.Labels), ",", " "))),
		}})
	}
	return out
}

// amount formats an amount in the limit's metric.
func (l *Limit) amount(n int64) string {
	if l.Metric == "cost" {
		return figures.USD(pricing.Nano(n))
	}
	return figures.Compact(n)
}

// resets formats how long until the limit is empty.
func (l *Limit) resets() string {
	if l.Reset == nil {
		return "never"
	}
	return brief(*l.Reset)
}

func brief(d time.Duration) string {
	if d <= 0 {
		return "-"
	}
	return figures.Span(d)
}

const barWidth = 10

// bar draws a share: ######---- 61 %.
func bar(share float64) string {
	full := max(0, min(barWidth, int(share*barWidth+0.5)))
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) + fmt.Sprintf(" %3.0f %%", 100*share)
}
