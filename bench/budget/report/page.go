package report

import (
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/llmguard/llmguard/bench/budget/attack"
	"github.com/llmguard/llmguard/bench/budget/price"
)

func (r *Run) page(out io.Writer) error {
	return page.Execute(out, struct {
		*Run
		Groups []*group
	}{r, r.groups()})
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"row": RowOf, "note": note, "timeline": timeline, "summary": (*group).summary, "money": Money,
}).Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>budgetbench</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse } td, th { text-align: left; padding: .2em .8em .2em 0; border-bottom: 1px solid #ddd;
vertical-align: top }
.failed { color: #b00020 } .held { color: #1b6e3c } .na { color: #777 } svg { background: #fafafa; width: 100% }
text { font: 11px system-ui, sans-serif; fill: #555 }
</style>
<h1>budgetbench</h1>
<p>{{.Machine}}; suite {{.Commit}}; {{.Time.Format "2006-01-02 15:04"}} UTC; {{.Seconds}} s
{{if .Short}}; short form{{end}}. Method: bench/budget/README.md.</p>
{{range .Groups}}<h2>{{.Name}} {{.Version}}</h2><p>{{summary .}}</p>
<table><tr><th>attack<th>outcome<th>overspend<th>false refusals<th>overcharge<th>ledger<th>back after<th>note</tr>
{{range .Results}}{{with $r := .}}{{with row $r}}<tr><td>{{.Attack}}<br><small>{{$r.Title}}</small>
<td class="{{.Outcome}}">{{.Outcome}}<td>{{.Overspend}}<td>{{.False}}<td>{{.Overcharge}}<td>{{.Ledger}}<td>{{.Back}}
<td>{{note $r}}</tr>
{{end}}{{end}}{{end}}</table>
{{range .Results}}{{if .Events}}<h3>{{.Attack}}: {{.Title}}</h3>
<p>Budget {{money .Budget}}, sold {{money .Sold}}. The line is what was left of the budget of the first user. Dots are
calls: green served, red refused, gray hung up, orange failed or in an outage.</p>
{{timeline .}}
{{end}}{{end}}{{end}}</html>
`))

const (
	width  = 1000
	height = 260
	margin = 60
)

var colors = map[string]string{
	string(attack.Served): "#1b6e3c", string(attack.Refused): "#b00020", string(attack.HungUp): "#888",
	string(attack.Failed): "#d97706", string(attack.Outage): "#d97706",
}

// timeline draws what was left of the first user's budget, and the calls.
func timeline(r *attack.Result) template.HTML {
	last, lowest, left := 1.0, price.Nano(0), max(1, r.Budget)
	for _, e := range r.Events {
		last = max(last, e.At)
		if e.What == "sold" && e.User == 0 {
			left -= e.Nano
			lowest = min(lowest, left)
		}
	}
	x := func(at float64) float64 { return margin + at/last*(width-2*margin) }
	y := func(n price.Nano) float64 {
		return 20 + float64(r.Budget-n)/float64(r.Budget-lowest)*(height-80)
	}
	var svg, line strings.Builder
	fmt.Fprintf(&svg, `<svg viewBox="0 0 %d %d">`, width, height)
	fmt.Fprintf(&svg, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#b00020" stroke-dasharray="4"/>`, margin, width-margin, y(0), y(0))
	fmt.Fprintf(&svg, `<text x="2" y="%.1f">used up</text><text x="2" y="24">%s</text>`, y(0)+4, Money(r.Budget))
	left = r.Budget
	fmt.Fprintf(&line, "%d,%.1f", margin, y(left))
	notes := 0
	for _, e := range r.Events {
		switch color := colors[e.What]; {
		case e.What == "sold" && e.User == 0:
			fmt.Fprintf(&line, " %.1f,%.1f", x(e.At), y(left))
			left -= e.Nano
			fmt.Fprintf(&line, " %.1f,%.1f", x(e.At), y(left))
		case color != "":
			fmt.Fprintf(&svg, `<circle cx="%.1f" cy="%d" r="3" fill="%s" fill-opacity=".5"><title>%.2f s, user %d: %s</title></circle>`,
				x(e.At), height-42, color, e.At, e.User, e.What)
		case e.What != "sold":
			at := height - 26 + notes%2*14
			fmt.Fprintf(&svg, `<line x1="%.1f" x2="%.1f" y1="20" y2="%d" stroke="#ccc"/><text x="%.1f" y="%d">%s</text>`,
				x(e.At), x(e.At), at-8, x(e.At), at, template.HTMLEscapeString(e.What))
			notes++
		}
	}
	fmt.Fprintf(&svg, `<polyline points="%s %.1f,%.1f" fill="none" stroke="#1d4ed8" stroke-width="2"/>`, line.String(), x(last), y(left))
	fmt.Fprintf(&svg, `<text x="%d" y="%d" text-anchor="end">%.1f s</text></svg>`, width-4, height-38, last)
	return template.HTML(svg.String())
}
