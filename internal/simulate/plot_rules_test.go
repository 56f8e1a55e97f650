package simulate_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/llmguard/llmguard/internal/simulate"
	"github.com/llmguard/llmguard/pricing"
)

var plotBegin = time.Date(2026, 11, 18, 10, 20, 0, 0, time.UTC)

// quietReport is a report of four one-minute slots in which nothing happened.
func quietReport(policy string) simulate.Report {
	r := simulate.Report{Policy: policy, From: plotBegin, To: plotBegin.Add(4 * time.Minute)}
	for i := range 4 {
		r.Timeline = append(r.Timeline, simulate.Slot{At: plotBegin.Add(time.Duration(i) * time.Minute)})
	}
	r.Waits = []simulate.WaitBin{{UpTo: 1000}, {UpTo: 60_000}, {}}
	return r
}

// shape is an element of a drawing.
type shape struct {
	name, class, path, text string
	x, y, width, height     float64
}

// draw draws reports and parses the result, which must be valid XML.
func draw(t *testing.T, reports ...simulate.Report) []shape {
	t.Helper()
	var b strings.Builder
	err := simulate.SVG(&b, reports)
	if err != nil {
		t.Fatal(err)
	}
	var out []shape
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
		switch one := token.(type) {
		case xml.StartElement:
			out = append(out, shapeOf(one))
		case xml.CharData:
			if len(out) > 0 {
				out[len(out)-1].text += strings.TrimSpace(string(one))
			}
		}
	}
}

func shapeOf(e xml.StartElement) shape {
	s := shape{name: e.Name.Local}
	for _, a := range e.Attr {
		var to *float64
		switch a.Name.Local {
		case "class":
			s.class = a.Value
		case "d":
			s.path = a.Value
		case "x":
			to = &s.x
		case "y":
			to = &s.y
		case "width":
			to = &s.width
		case "height":
			to = &s.height
		}
		if to != nil {
			_, _ = fmt.Sscan(a.Value, to)
		}
	}
	return s
}

// find returns the shapes of a class.
func find(list []shape, class string) (out []shape) {
	for _, s := range list {
		if s.class == class {
			out = append(out, s)
		}
	}
	return out
}

// points returns the heights of a line, from the left.
func points(t *testing.T, s shape) (ys []float64) {
	t.Helper()
	for _, point := range strings.FieldsFunc(s.path, func(r rune) bool { return r == 'M' || r == 'L' }) {
		var x, y float64
		_, err := fmt.Sscan(point, &x, &y)
		if err != nil {
			t.Fatalf("%q: %v", s.path, err)
		}
		ys = append(ys, y)
	}
	return ys
}

// The line of the spend rises by the spend of each slot, up to the total.
func TestSpendRises(t *testing.T) {
	r := quietReport("p")
	for i, spend := range []pricing.Nano{1, 0, 2, 1} {
		r.Timeline[i].Spend = spend * pricing.NanoPerUSD
	}
	ys := points(t, find(draw(t, r), "line new")[0])
	if len(ys) != 4 {
		t.Fatalf("got %d points, want 4", len(ys))
	}
	step := ys[1] - ys[2] // two dollars
	if ys[0] != ys[1] || step <= 0 || !near(ys[2]-ys[3], step/2) {
		t.Errorf("got heights %v, want 1, 1, 3 and 4 dollars", ys)
	}
}

// Bars are proportional to their counts, and zero has no bar.
func TestBarsAreInProportion(t *testing.T) {
	r := quietReport("p")
	r.Waits[0].Calls, r.Waits[2].Calls, r.Total.Refused = 10, 5, 20
	bars := find(draw(t, r), "bar-new")
	if len(bars) != 3 {
		t.Fatalf("got %d bars, want 3: nothing for what did not happen", len(bars))
	}
	if !near(bars[0].height, 2*bars[1].height) || !near(bars[2].height, 2*bars[0].height) {
		t.Errorf("got heights %g, %g, %g, want 10, 5 and 20", bars[0].height, bars[1].height, bars[2].height)
	}
	for i, bar := range bars {
		if bottom := bar.y + bar.height; !near(bottom, bars[0].y+bars[0].height) {
			t.Errorf("bar %d: got its foot at %g, want all on one line", i, bottom)
		}
	}
}

// A full limit reaches the line that marks full; in shadow mode it may cross it.
func TestFillReachesItsLine(t *testing.T) {
	r := quietReport("p")
	r.Fill = []simulate.FillLine{{Org: "acme", Limit: "hour", Fullest: 2, Share: []float64{0, 0.5, 1, 2}}}
	shapes := draw(t, r)
	ys := points(t, find(shapes, "line c0")[0])
	if !(ys[0] > ys[1] && ys[1] > ys[2] && ys[2] > ys[3]) || !near(ys[0]-ys[2], ys[2]-ys[3]) {
		t.Errorf("got heights %v, want 0, 50, 100 and 200 %%", ys)
	}
	if names := texts(shapes); !strings.Contains(names, "acme hour") {
		t.Errorf("got %s, want the limit's name", names)
	}
}

// At most five limits are drawn; the drawing says how many are omitted.
func TestFillIsBounded(t *testing.T) {
	r := quietReport("p")
	for i := range 8 {
		r.Fill = append(r.Fill, simulate.FillLine{Limit: fmt.Sprintf("l%d", i), Share: make([]float64, 4)})
	}
	shapes := draw(t, r)
	for i := range 8 {
		n := 0
		for _, s := range find(shapes, fmt.Sprintf("line c%d", i)) {
			if s.name == "path" {
				n++
			}
		}
		if want := map[bool]int{true: 1}[i < 5]; n != want {
			t.Errorf("limit %d: got %d lines, want %d", i, n, want)
		}
	}
	if names := texts(shapes); !strings.Contains(names, "3 less-used limits hidden") {
		t.Errorf("got %s, want how many are left out", names)
	}
}

func texts(list []shape) string {
	var out []string
	for _, s := range list {
		if s.text != "" && s.name != "style" {
			out = append(out, s.text)
		}
	}
	return strings.Join(out, " | ")
}

// Two policies are drawn on top of each other, each with its name.
func TestTwoPolicies(t *testing.T) {
	before, after := quietReport("before"), quietReport("after")
	before.Total.Refused, after.Total.Refused = 3, 9
	shapes := draw(t, before, after)
	if n, m := len(find(shapes, "bar-base")), len(find(shapes, "bar-new")); n != 1 || m != 1 {
		t.Errorf("got %d and %d bars, want one of each", n, m)
	}
	names := texts(shapes)
	for _, want := range []string{
		"after against before", "before: 0 waited, 0 gave up, 3 refused",
		"after: 0 waited, 0 gave up, 9 refused",
	} {
		if !strings.Contains(names, want) {
			t.Errorf("got %s, want %s", names, want)
		}
	}
}

// The same report always yields the same drawing, and an empty report can be drawn.
func TestDrawingsAreTheSame(t *testing.T) {
	var first, second strings.Builder
	for _, b := range []*strings.Builder{&first, &second} {
		err := simulate.HTML(b, []simulate.Report{quietReport("p")})
		if err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("got another page the second time")
	}
	one := quietReport("p")
	one.Timeline = one.Timeline[:1]
	if n := len(points(t, find(draw(t, one), "line new")[0])); n != 1 {
		t.Errorf("one slot: got %d points, want 1", n)
	}
}

// An error of the writer is returned.
func TestWriterFails(t *testing.T) {
	broken := errors.New("the pipe is broken")
	for name, write := range map[string]func(io.Writer, []simulate.Report) error{"SVG": simulate.SVG, "HTML": simulate.HTML} {
		err := write(failing{broken}, []simulate.Report{quietReport("p")})
		if !errors.Is(err, broken) {
			t.Errorf("%s: got %v, want %v", name, err, broken)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func near(a, b float64) bool { return a-b < 0.3 && b-a < 0.3 }
