package figures

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"
)

// Drawing collects the elements of an SVG chart, whose colours come from classes that the page styles. The
// zero value is empty.
type Drawing struct{ out strings.Builder }

// SVG returns the elements, without the svg element around them.
func (d *Drawing) SVG() template.HTML { return template.HTML(d.out.String()) } // texts are escaped when they are drawn

// Text writes a text that begins, ends or has its middle at x, as its class says.
func (d *Drawing) Text(x, y float64, class, text string) {
	fmt.Fprintf(&d.out, `<text x="%d" y="%d" class="%s">%s</text>`+"\n", int(x), int(y), class,
		template.HTMLEscapeString(text))
}

// Rule draws a straight line.
func (d *Drawing) Rule(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(&d.out, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`+"\n", x1, y1, x2, y2, class)
}

// Frame is the area of a chart: x from 0 to N is Left to Right, y from 0 to Top is Height upwards to Upper.
type Frame struct {
	Left, Right, Upper, Height float64
	N                          int
	Top                        float64
}

// X returns the place of a value on the horizontal axis.
func (f Frame) X(i float64) float64 { return f.Left + (f.Right-f.Left)*i/float64(max(f.N, 1)) }

// Y returns the place of a value on the vertical axis.
func (f Frame) Y(v float64) float64 { return f.Upper + f.Height*(1-v/f.Top) }

// Scale sets Top to a round value, at least most, and returns the marks of the axis from 0 to Top.
func (f *Frame) Scale(most float64) (marks []float64) {
	step := 1.0
	f.Top = 1
	if most > 0 {
		step = math.Pow(10, math.Floor(math.Log10(most/3)))
		for _, k := range []float64{1, 2, 5, 10} {
			if most/(step*k) <= 4 {
				step *= k
				break
			}
		}
		f.Top = step * math.Ceil(most/step-1e-9)
	}
	for i := 0.0; i*step <= f.Top+step/2; i++ {
		marks = append(marks, i*step)
	}
	return marks
}

// Bar is a bar on the axes.
type Bar struct {
	Left, Right, Lower, Upper float64
	Class, Title              string // Title is its tooltip
	Link                      string // where it leads; empty: nowhere
}

// Bar draws a bar.
func (d *Drawing) Bar(f Frame, b Bar) {
	if b.Link != "" {
		fmt.Fprintf(&d.out, `<a href="%s" tabindex="-1">`, template.HTMLEscapeString(b.Link))
	}
	fmt.Fprintf(&d.out, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>`, b.Class,
		f.X(b.Left), f.Y(b.Upper), f.X(b.Right)-f.X(b.Left), f.Y(b.Lower)-f.Y(b.Upper), template.HTMLEscapeString(b.Title))
	if b.Link != "" {
		d.out.WriteString("</a>")
	}
	d.out.WriteByte('\n')
}

// Line draws values, each in the middle of its step.
func (d *Drawing) Line(f Frame, values []float64, class, title string) {
	var b strings.Builder
	for i, v := range values {
		fmt.Fprintf(&b, "%c%.1f %.1f", "ML"[min(i, 1)], f.X(float64(i)+0.5), f.Y(v))
	}
	fmt.Fprintf(&d.out, `<path d="%s" class="line %s"><title>%s</title></path>`+"\n", b.String(), class,
		template.HTMLEscapeString(title))
}

// Legend lists the names of lines in the row above a frame.
func (d *Drawing) Legend(f Frame, classes, names []string) {
	x := f.Left
	for i, name := range names {
		d.Rule(x, f.Upper-16, x+18, f.Upper-16, "line "+classes[i])
		d.Text(x+24, f.Upper-12, "note", name)
		x += float64(24 + 7*len([]rune(name)) + 24)
	}
}

// timeSteps are the distances that marks of a time axis can have.
var timeSteps = []time.Duration{
	time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
	3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 48 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour,
}

// Times marks the time axis below a frame whose steps are slot long.
func (d *Drawing) Times(f Frame, from time.Time, slot time.Duration) {
	all := slot * time.Duration(f.N)
	step := timeSteps[len(timeSteps)-1]
	for _, s := range timeSteps {
		if all/s <= 9 {
			step = s
			break
		}
	}
	bottom := f.Y(0)
	for t := from.Truncate(step).Add(step); t.Before(from.Add(all)); t = t.Add(step) {
		x := f.X(float64(t.Sub(from)) / float64(slot))
		d.Rule(x, bottom, x, bottom+5, "axis")
		d.Text(x, bottom+19, "tick middle", Mark(t, step, all))
	}
	d.Rule(f.Left, bottom, f.Right, bottom, "axis")
}
