package console

import (
	"bytes"
	"cmp"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/guard"
	"github.com/llmguard/llmguard/internal/admin"
	"github.com/llmguard/llmguard/internal/batch"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/pricing"
)

// pages are the parsed templates, each with the layout.
type pages struct {
	now func() time.Time
	all func() (map[string]*template.Template, error) // parses them in the first call
}

func newPages(now func() time.Time) *pages {
	p := &pages{now: now}
	p.all = sync.OnceValues(p.parse)
	return p
}

func (p *pages) parse() (map[string]*template.Template, error) {
	all := map[string]*template.Template{}
	layout, err := template.New("layout.html").Funcs(p.functions()).ParseFS(files, "templates/layout.html",
		"templates/parts.html")
	if err != nil {
		return nil, err
	}
	entries, err := files.ReadDir("templates")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name(), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		one, err := layout.Clone()
		if err != nil {
			return nil, err
		}
		all[name], err = one.ParseFS(files, "templates/"+e.Name())
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (p *pages) functions() template.FuncMap {
	return template.FuncMap{
		"usd": figures.USD, "count": figures.Count, "amount": amount, "bar": barOf, "span": figures.Span,
		"path":  pathOf,
		"exact": exact, "plural": figures.Plural,
		"callsOf": func(s spent) string { return s.show(figures.Plural(s.Calls, "call")) },
		"plain":   plain, "sum": func(a, b int64) int64 { return a + b }, "fromUSD": nanoOf,
		"stampOf": figures.Minute, "of": figures.Share,
		"ago": func(t time.Time) string {
			if t.IsZero() {
				return "never"
			}
			return figures.Lasting(p.now().Sub(t)) + " ago"
		},
		"until": func(t time.Time) string { return "in " + figures.Lasting(t.Sub(p.now())) },
		"stamp": figures.Second, "cell": figures.Cell,
		"either":      func(a, b string) string { return cmp.Or(a, b) },
		"since":       func(t time.Time) string { return figures.Lasting(p.now().Sub(t)) },
		"len64":       func(n int) int64 { return int64(n) },
		"nano":        func(n int64) string { return figures.USD(pricing.Nano(n)) },
		"share":       func(part, all pricing.Nano) bar { b := barOf(int64(part), 0, int64(all)); b.Level = ""; return b },
		"share64":     func(part, all int64) bar { b := barOf(part, 0, all); b.Level = ""; return b },
		"ms":          func(n int64) string { return figures.Span(time.Duration(n) * time.Millisecond) },
		"percent":     func(share float64) int { return int(100*share + 0.5) },
		"limitAmount": limitAmount, "act": newForm, "pager": newPager, "userPath": userPath, "formTime": formTime,
		"lines": linesOf, "boundFix": guard.BoundFix,
		"sentence": titleOf,
		"money": func(s spent) string {
			return s.show(figures.USD(s.Cost))
		}, "calls": func(s spent) string { return s.show(figures.Count(s.Calls)) },
		"clock":   figures.Clock,
		"less":    func(a, b int) string { return figures.Count(int64(a - b)) },
		"worst":   func(b guard.Bound) string { return b.HourText(figures.USD) },
		"inWords": inWords, "was": func(before, now int) change { return change{int64(before), int64(now)} },
		"turns": func(before, now string) string {
			if before == now {
				return now
			}
			return before + " → " + now
		},
		"modes":     func() []string { return []string{"enforce", "shadow", "off"} },
		"dayCounts": func() []int { return []int{1, 3, 7, 30} },
	}
}

// frame is the data of the layout around a page's View.
type frame struct {
	Title, Section, Version, Token, Here string
	SignedIn                             bool
	Stopped                              []string // what spending is stopped
	Requests                             int      // limit requests that need a decision
	Told                                 *done
	View                                 any
}

// write renders the whole page before it sends the first byte, so that an error does not follow
// half a page.
func (p *pages) write(v *visit, name, title string, view any) error {
	f := frame{Title: title, Section: name, Version: v.version, View: view, Here: v.r.URL.RequestURI()}
	if v.session != nil {
		f.SignedIn, f.Token = true, v.session.Token
		f.Stopped, f.Requests = v.o.Stopped(v.r.Context()), len(v.o.pendingRequests())
		if v.r.Header.Get("X-Llmguard-Live") == "" {
			f.Told = v.session.hear()
		}
	}
	all, err := p.all()
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := all[name].ExecuteTemplate(&out, "layout.html", f); err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, err = io.WriteString(v.w, escape.Lines(out.String()))
	return err
}

// show renders a page with status 200.
func (v *visit) show(name, title string, view any) error { return v.pages.write(v, name, title, view) }

// amount formats an amount in the limit's unit.
func amount(m budget.Metric, n int64) string {
	if m == budget.Cost {
		return figures.USD(pricing.Nano(n))
	}
	return figures.Count(n)
}

// unread is shown instead of a sum that has not been read.
const unread = "…"

func (s *spent) show(text string) string {
	if !s.Known {
		return unread
	}
	return text
}

// bar is a usage bar, in percent of its width.
type bar struct {
	Used, Held float64 // Held is drawn after Used
	Level      string  // "", "near" from 80 %, "full" from 100 %
	Percent    int
}

func barOf(used, held, all int64) bar {
	if all <= 0 {
		return bar{}
	}
	of := func(n int64) float64 { return min(100*float64(n)/float64(all), 100) }
	b := bar{Used: of(max(used-held, 0)), Percent: int(100 * float64(used) / float64(all))}
	b.Held = of(used) - b.Used
	switch {
	case used >= all:
		b.Level = "full"
	case 100*used >= 80*all:
		b.Level = "near"
	}
	return b
}

// pathOf joins segments to a path of the console.
func pathOf(parts ...string) string {
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return Path + strings.Join(parts, "/")
}

func titleOf(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// chart draws lines of the days.
func (s *span) chart(lines ...stackLine) *stack {
	return newStack("by-day", "Spending of the last 30 days, by day", stackAxis{From: s.From, Step: wholeDay}, lines)
}

// pageOf parses the page number in the query, starting at 0.
func pageOf(r *http.Request) int {
	n, err := strconv.Atoi(r.URL.Query().Get("page"))
	if err != nil || n < 0 || n > 1_000_000 {
		return 0
	}
	return n
}

// form is a button that starts an action.
type form struct {
	Token, Back, Name, Label string
	Fields                   map[string]string
}

// For returns the button for a page with a token and an address.
func (f form) For(token, back string) form {
	f.Token, f.Back = token, back
	return f
}

// newForm takes the fields as alternating names and values.
func newForm(token, back, name, label string, fields ...string) form {
	f := form{Token: token, Back: back, Name: name, Label: label, Fields: map[string]string{}}
	for i := 0; i+1 < len(fields); i += 2 {
		f.Fields[fields[i]] = fields[i+1]
	}
	return f
}

// pager holds the links to the previous and next page; empty if there is none.
type pager struct{ Previous, Next string }

func newPager(page, next int, search string) pager {
	link := func(n int) string { return "?" + url.Values{"q": {search}, "page": {strconv.Itoa(n)}}.Encode() }
	var p pager
	if page > 0 {
		p.Previous = link(page - 1)
	}
	if next > 0 {
		p.Next = link(next)
	}
	return p
}

// userPath returns the path of the page of "org/user".
func userPath(name string) string {
	org, user, _ := strings.Cut(name, "/")
	return pathOf("orgs", org, "users", user)
}

// change is a figure before and after.
type change struct{ Before, Now int64 }

// batchLines is the progress of a batch.
type batchLines struct{ All, Failed int64 }

func linesOf(b *batch.Batch) batchLines {
	good, bad := b.Done()
	return batchLines{good + bad, bad}
}

// limitTable is a table of limits, with the data that its buttons need.
type limitTable struct {
	Token, Back, Org, User string
	Group                  string // of the user
	Limits                 []budget.Status
	Overrides              []admin.Override
	usedUp                 map[string]time.Duration
}

// UsedUp returns in what time a limit is used up, if that is forecast.
func (t limitTable) UsedUp(limit string) string {
	d, known := t.usedUp[limit]
	if !known {
		return "–"
	}
	return figures.About(d)
}

// Of returns whom a change of a limit applies to: the user, if the limit counts users.
func (t limitTable) Of(s budget.Subject) string {
	if s == budget.User {
		return t.User
	}
	return ""
}

// GroupOf returns the group that a change of a limit applies to, if the limit counts groups.
func (t limitTable) GroupOf(s budget.Subject) string {
	if s == budget.UserGroup {
		return t.Group
	}
	return ""
}

// limitAmount formats an amount in a limit's unit.
func limitAmount(unit string, n int64) string {
	if unit == "nano_usd" || unit == "usd" || unit == string(budget.Cost) {
		return figures.USD(pricing.Nano(n))
	}
	return figures.Count(n)
}
