package simulate

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
)

// The page, in units of the drawing.
const (
	width  = 960
	left   = 70
	right  = 940
	height = 150 // of a panel's plot area
)

// canvas is a drawing that grows downwards, panel by panel.
type canvas struct {
	out strings.Builder
	y   int // top of the next panel
}

func (c *canvas) text(x, y int, class, text string) {
	fmt.Fprintf(&c.out, `<text x="%d" y="%d" class="%s">%s</text>`+"\n", x, y, class, template.HTMLEscapeString(text))
}

func (c *canvas) rule(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(&c.out, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`+"\n", x1, y1, x2, y2, class)
}

// frame is a panel's plot area: x from 0 to n, y from 0 to top.
type frame struct {
	top0 int // upper edge
	n    int
	top  float64
}

func (f frame) x(i float64) float64 { return left + (right-left)*i/float64(max(f.n, 1)) }
func (f frame) y(v float64) float64 { return float64(f.top0) + height*(1-v/f.top) }

// open starts a panel with its heading, grid and scale.
func (c *canvas) open(head string, n int, most float64, unit func(float64) string) frame {
	c.text(left, c.y+14, "head", head)
	f := frame{top0: c.y + 44, n: n, top: 1}
	step := 0.0
	f.top, step = scale(most)
	for v := 0.0; v <= f.top+step/2; v += step {
		c.rule(left, f.y(v), right, f.y(v), "grid")
		c.text(left-8, int(f.y(v))+4, "tick end", unit(v))
	}
	return f
}

func (c *canvas) close() { c.y += 44 + height + 50 }

// scale returns a round upper bound and the distance of the ticks.
func scale(most float64) (top, step float64) {
	if !(most > 0) {
		return 1, 1
	}
	step = math.Pow(10, math.Floor(math.Log10(most/3)))
	for _, k := range []float64{1, 2, 5, 10} {
		if most/(step*k) <= 4 {
			step *= k
			break
		}
	}
	return step * math.Ceil(most/step-1e-9), step
}

// times labels the time axis below a plot.
func (c *canvas) times(f frame, from time.Time, slot time.Duration) {
	all := slot * time.Duration(f.n)
	steps := []time.Duration{
		time.Second, 5 * time.Second, 15 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
		3 * time.Hour, 6 * time.Hour,
		12 * time.Hour, 24 * time.Hour, 48 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour,
	}
	step := steps[len(steps)-1]
	for _, s := range steps {
		if all/s <= 9 {
			step = s
			break
		}
	}
	form := "15:04"
	switch {
	case step >= 24*time.Hour:
		form = "Jan 2"
	case all > 24*time.Hour:
		form = "Jan 2 15:04"
	case step < time.Minute:
		form = "15:04:05"
	}
	bottom := f.y(0)
	for t := from.Truncate(step).Add(step); t.Before(from.Add(all)); t = t.Add(step) {
		x := f.x(float64(t.Sub(from)) / float64(slot))
		c.rule(x, bottom, x, bottom+5, "axis")
		c.text(int(x), int(bottom)+19, "tick middle", t.Format(form))
	}
	c.rule(left, bottom, right, bottom, "axis")
}

// line draws values, one per slot.
func (c *canvas) line(f frame, values []float64, class, name string) {
	var b strings.Builder
	for i, v := range values {
		op := byte('L')
		if i == 0 {
			op = 'M'
		}
		b.WriteByte(op)
		b.WriteString(strconv.FormatFloat(f.x(float64(i)+0.5), 'f', 1, 64))
		b.WriteByte(' ')
		b.WriteString(strconv.FormatFloat(f.y(v), 'f', 1, 64))
	}
	fmt.Fprintf(&c.out, `<path d="%s" class="line %s"><title>%s</title></path>`+"\n", b.String(), class,
		template.HTMLEscapeString(name))
}

// legend lists line names from the left, in the row below the heading.
func (c *canvas) legend(f frame, classes, names []string) {
	x := left
	for i, name := range names {
		c.rule(float64(x), float64(f.top0)-16, float64(x)+18, float64(f.top0)-16, "line "+classes[i])
		c.text(x+24, f.top0-12, "note", name)
		x += 24 + 7*len([]rune(name)) + 24
	}
}

func dollars(v float64) string {
	switch {
	case v == 0:
		return "$0"
	case v >= 1000:
		return fmt.Sprintf("$%.0f", v)
	case v >= 0.1:
		return fmt.Sprintf("$%.2f", v)
	}
	text := strconv.FormatFloat(v, 'f', max(2, 2-int(math.Floor(math.Log10(v)))), 64)
	for len(text) > len("0.01") && strings.HasSuffix(text, "0") {
		text = text[:len(text)-1]
	}
	return "$" + text
}

func percent(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }

func number(v float64) string {
	if v > 0 && v < 1 {
		return "" // counts have no fractions
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
