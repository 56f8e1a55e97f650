package finance

import (
	_ "embed" // the template
	"html/template"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/pricing"
)

//go:embed statement.html
var statementHTML string

// WriteHTML writes the statement as a page of its own: no scripts, nothing to load, made for A4.
func (st *Statement) WriteHTML(to io.Writer) error {
	t, err := template.New("statement").Funcs(template.FuncMap{
		"usd": func(n pricing.Nano) string { return n.String() }, "whole": figures.Count, "share": st.share,
		"month":  func(m Month) string { return figures.Month(m.Begin()) },
		"minute": figures.Minute,
		"class":  func(class string) string { return strings.ReplaceAll(class, "_", " ") },
	}).Parse(statementHTML)
	if err != nil {
		return err
	}
	var out strings.Builder
	if err := t.Execute(&out, struct {
		*Statement
		Chart  template.HTML
		Status string
		By     []Section // sections with more than one line, or a name
	}{st, st.chart(), st.status(), st.named()}); err != nil {
		return err
	}
	_, err = io.WriteString(to, escape.Lines(out.String()))
	return err
}

// named returns the sections that say something.
func (st *Statement) named() []Section {
	var out []Section
	for _, s := range st.Sections {
		if len(s.Lines) > 1 || len(s.Lines) == 1 && s.Lines[0].Name != noName {
			out = append(out, s)
		}
	}
	return out
}

// share formats a part of the total in percent.
func (st *Statement) share(n pricing.Nano) string {
	return figures.Share(int64(n), int64(st.Total.Cost))
}

// chart draws a bar for each day, 708 by 166. Days with a negative cost hang below the axis.
func (st *Statement) chart() template.HTML {
	most, least := pricing.Nano(1), pricing.Nano(0)
	for _, d := range st.Daily {
		most, least = max(most, d.Cost), min(least, d.Cost)
	}
	d, f := figures.Drawing{}, figures.Frame{Left: 76, Right: 704, Upper: 8, N: st.Month.End().AddDate(0, 0, -1).Day()}
	marks := f.Scale(float64(most))
	f.Height = 135 * f.Top / (f.Top - float64(least))
	for _, v := range marks {
		d.Rule(f.Left, f.Y(v), f.Right, f.Y(v), "grid")
		d.Text(f.Left-6, f.Y(v)+3, "end", figures.USD(pricing.Nano(math.Round(v))))
	}
	for i, day := range st.Daily {
		x, cost := float64(i), float64(day.Cost)
		d.Bar(f, figures.Bar{
			Left: x + 0.12, Right: x + 0.88, Lower: min(cost, 0), Upper: max(cost, 0), Class: "bar",
			Title: day.Name + ": " + day.Cost.String(),
		})
		if day := i + 1; day == 1 || day%5 == 0 {
			d.Text(f.X(x+0.5), 160, "middle", strconv.Itoa(day))
		}
	}
	d.Rule(f.Left, f.Y(0), f.Right, f.Y(0), "axis")
	return d.SVG()
}
