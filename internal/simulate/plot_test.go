package simulate

import (
	"encoding/xml"
	"errors"
	"io"
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
