package simulate

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

var from = time.Date(2026, 11, 18, 10, 20, 0, 0, time.UTC)

// reportOf is a two-hour report in which a dollar is spent evenly.
func reportOf(policy string, fills ...FillLine) Report {
	r := Report{Policy: policy, From: from, To: from.Add(2 * time.Hour), By: []string{"user"}, Fill: fills}
	for i := range 240 {
		r.Timeline = append(r.Timeline, Slot{At: from.Add(time.Duration(i) * 30 * time.Second), Spend: 1_000_000_000 / 240})
	}
	r.Total.Spend, r.Total.Calls, r.Total.GaveUp = r.Timeline[0].Spend*240, 500, 7
	for _, up := range []Milliseconds{1000, 60_000, 0} {
		r.Waits = append(r.Waits, WaitBin{UpTo: up, Calls: int(up / 1000)})
	}
	r.Lines = []Line{{Org: "acme", User: "<ann>", Calls: 500, WaitP95: 61_000}}
	return r
}

func full(limit string, share float64) FillLine {
	line := FillLine{Org: "acme", Limit: limit, Fullest: share, Share: make([]float64, 240)}
	line.Share[100] = share
	return line
}

// elements parses a drawing as XML, and counts the elements by class.
func elements(t *testing.T, text string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		one, ok := token.(xml.StartElement)
		for i := 0; ok && i < len(one.Attr); i++ {
			if one.Attr[i].Name.Local == "class" {
				out[one.Name.Local+" "+one.Attr[i].Value]++
			}
		}
	}
}

func TestSVG(t *testing.T) {
	var b strings.Builder
	err := SVG(&b, []Report{reportOf("a & b"), reportOf("new", full("hour", 1), full("day", 0.5))})
	if err != nil {
		t.Fatal(err)
	}
	got := elements(t, b.String())
	for class, want := range map[string]int{
		"path line base": 2, "path line new": 2, // spend and waiting calls
		"path line c0": 1, "path line c1": 1, "line full": 1,
		"rect bar-base": 3, "rect bar-new": 3, "rect paper": 1, // two bins and the calls that gave up
		"text head": 4,
	} {
		if got[class] != want {
			t.Errorf("%d of %q, want %d", got[class], class, want)
		}
	}
	for _, want := range []string{"acme hour", "new against a &amp; b", "500 calls from 2026-11-18 10:20 to 2026-11-18 12:20 UTC", "a &amp; b: $1.00", "up to 1m", "prefers-color-scheme: dark"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no %q in\n%s", want, b.String())
		}
	}
}

// TestHTML: the page refers to nothing outside itself, and names are escaped.
func TestHTML(t *testing.T) {
	var b strings.Builder
	if err := HTML(&b, []Report{reportOf("<script>x</script>", full("hour", 1))}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, bad := range []string{"<script", "<ann>", "src=", "href=", "url(", "@import"} {
		if strings.Contains(text, bad) {
			t.Errorf("there is %q in\n%s", bad, text)
		}
	}
	for _, want := range []string{"<svg", "&lt;ann&gt;", "1m1s", "viewport"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in\n%s", want, text)
		}
	}
}

// TestSpendIsDrawn: the line of the spend ends at the total.
func TestSpendIsDrawn(t *testing.T) {
	f := frame{top0: 100, n: 240, top: 2}
	if f.x(0) != left || f.x(240) != right || f.y(0) != 100+height || f.y(2) != 100 || f.y(1) != 100+height/2.0 {
		t.Errorf("x %g to %g, y %g to %g", f.x(0), f.x(240), f.y(0), f.y(2))
	}
	var b strings.Builder
	if err := SVG(&b, []Report{reportOf("p")}); err != nil {
		t.Fatal(err)
	}
	path := b.String()[strings.Index(b.String(), `<path d="`):]
	if !strings.Contains(path[:strings.Index(path, `" class`)], "938.2 114.0") { // the top of the panel: one dollar of one
		t.Errorf("the line of the spend is %s", path[:strings.Index(path, "/>")])
	}
}

func TestNothing(t *testing.T) {
	if err := SVG(io.Discard, nil); !errors.Is(err, ErrNothing) {
		t.Errorf("no report: %v", err)
	}
	if err := HTML(io.Discard, []Report{{}}); !errors.Is(err, ErrNothing) {
		t.Errorf("no timeline: %v", err)
	}
}

func TestScale(t *testing.T) {
	for _, most := range []float64{0, 1e-7, 0.003, 0.9, 1, 1.2, 7, 99, 100, 101, 12345, 5e9} {
		top, step := scale(most)
		if top < most || step <= 0 || top/step > 5 || most > 0 && top > 2*most || math.IsNaN(top) {
			t.Errorf("%g: up to %g by %g", most, top, step)
		}
	}
}

func TestDollars(t *testing.T) {
	for want, v := range map[string]float64{"$0": 0, "$1.20": 1.2, "$0.50": 0.5, "$0.012": 0.012, "$0.00012": 0.00012, "$45.00": 45, "$1235": 1234.6} {
		if got := dollars(v); got != want {
			t.Errorf("%g: %s, want %s", v, got, want)
		}
	}
}
