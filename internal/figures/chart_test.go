package figures

import (
	"math"
	"strings"
	"testing"
)

// TestScale: the axis ends at most at twice the largest value, and has two to six marks.
func TestScale(t *testing.T) {
	for _, most := range []float64{0, 1e-7, 0.003, 0.9, 1, 1.2, 7, 99, 100, 101, 12345, 5e9} {
		var f Frame
		marks := f.Scale(most)
		if f.Top < most || most > 0 && f.Top > 2*most || math.IsNaN(f.Top) || len(marks) < 2 || len(marks) > 6 ||
			math.Abs(marks[len(marks)-1]-f.Top) > f.Top/1e6 {
			t.Errorf("%g: up to %g with marks %v", most, f.Top, marks)
		}
	}
}

// TestDrawing: values are at their places, and texts are escaped.
func TestDrawing(t *testing.T) {
	f := Frame{Left: 70, Right: 940, Upper: 100, Height: 150, N: 240, Top: 2}
	if f.X(0) != 70 || f.X(240) != 940 || f.Y(0) != 250 || f.Y(2) != 100 || f.Y(1) != 175 {
		t.Errorf("x %g to %g, y %g to %g", f.X(0), f.X(240), f.Y(0), f.Y(2))
	}
	var d Drawing
	d.Bar(f, Bar{Right: 24, Upper: 1, Class: "s0", Title: "<ann>", Link: "/a?b=1&c=\"2\""})
	d.Line(f, []float64{0, 2}, "new", "line")
	const want = `<a href="/a?b=1&amp;c=&#34;2&#34;" tabindex="-1">` +
		`<rect class="s0" x="70.0" y="175.0" width="87.0" height="75.0"><title>&lt;ann&gt;</title></rect></a>` + "\n" +
		`<path d="M71.8 250.0L75.4 100.0" class="line new"><title>line</title></path>` + "\n"
	if got := strings.TrimSpace(string(d.SVG())); got != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
