package finance

import (
	_ "embed" // the template
	"fmt"
	"html/template"
	"io"
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
		"month":  longMonth,
		"minute": figures.Minute,
		"class":  func(class string) string { return strings.ReplaceAll(class, "_", " ") },
	}).Parse(statementHTML)
	if err != nil {
		return err
	}
	var out strings.Builder
	if err := t.Execute(&out, struct {
		*Statement
		Chart  chart
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

func longMonth(m Month) string { return figures.Month(m.Begin()) }

// share formats a part of the total in percent.
func (st *Statement) share(n pricing.Nano) string {
	if st.Total.Cost <= 0 {
		return ""
	}
	return fmt.Sprintf("%.1f%%", 100*float64(n)/float64(st.Total.Cost))
}

// Measures of the chart, in pixels of its view box.
const (
	chartWidth  = 700.0
	chartHeight = 130.0
)

// chart is a bar for each day.
type chart struct {
	Width, Height, Base float64
	Bars                []bar
	Top                 string // of the highest bar
}

type bar struct {
	X, Y, Width, Height float64
	Label, Title        string
}

// chart computes the bars. Days with a negative cost hang below the base line.
func (st *Statement) chart() chart {
	c := chart{Width: chartWidth, Height: chartHeight}
	most, least := pricing.Nano(1), pricing.Nano(0)
	for _, d := range st.Daily {
		most, least = max(most, d.Cost), min(least, d.Cost)
	}
	days := st.Month.End().AddDate(0, 0, -1).Day()
	step, scale := chartWidth/float64(days), chartHeight/float64(most-least)
	c.Base, c.Top = float64(most)*scale, most.Short()
	for i, d := range st.Daily {
		height := float64(d.Cost) * scale
		b := bar{
			X: float64(i)*step + step*0.12, Y: c.Base - max(height, 0), Width: step * 0.76, Height: max(height, -height),
			Title: d.Name + ": " + d.Cost.String(),
		}
		if day := i + 1; day == 1 || day%5 == 0 {
			b.Label = strconv.Itoa(day)
		}
		c.Bars = append(c.Bars, b)
	}
	return c
}
