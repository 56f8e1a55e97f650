package console

import (
	"html/template"
	"math"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/pricing"
)

// stackSeries is how many groups a chart shows with colours of their own.
const stackSeries = 6

// stack is a chart of bars, drawn on the server: one bar for each step, stacked by group.
type stack struct {
	Plot   template.HTML // 1000 by 200
	Legend []stackName
	Marks  []string // of the vertical axis, highest first
	Times  []stackTime
	Text   string // for those who do not see it
}

type stackName struct {
	Colour     int
	Name, Link string
	Cost       int64
}

// stackTime is a mark of the time axis; its link shows that step alone.
type stackTime struct{ Text, Link string }

// stackOf draws the first groups, and all others as one.
func stackOf(s *spendView) *stack {
	steps := len(s.Total.Series)
	if steps == 0 || s.Total.Cost == 0 {
		return nil
	}
	most := int64(1)
	for i := range steps {
		sum := int64(0)
		for _, g := range s.Groups {
			sum += max(g.Series[i], 0)
		}
		most = max(most, sum+max(s.Others.Series[i], 0))
	}
	k, d := &stack{}, &figures.Drawing{}
	f := figures.Frame{Right: 1000, Height: 200, N: steps}
	for _, v := range f.Scale(float64(most)) {
		d.Rule(0, f.Y(v), f.Right, f.Y(v), "grid")
		k.Marks = append([]string{figures.USD(pricing.Nano(math.Round(v)))}, k.Marks...)
	}
	for i := range s.Lines[:min(stackSeries, len(s.Lines))] {
		k.Legend = append(k.Legend, stackName{i, s.Lines[i].Name, s.Lines[i].Link, s.Lines[i].Cost})
	}
	rest := s.Others.Cost
	for _, g := range s.Lines[min(stackSeries, len(s.Lines)):] {
		rest += g.Cost
	}
	if len(s.Lines) > stackSeries {
		k.Legend = append(k.Legend, stackName{stackSeries, "others", "", rest})
	}
	for i := range steps {
		stackBar(d, f, s, i)
	}
	k.Plot = d.SVG()
	k.times(s)
	k.Text = "Spending " + figures.Between(s.asked.From, s.asked.To) + " by " + s.Title() +
		"; the table below has the sums"
	return k
}

// stackBar draws one step.
func stackBar(d *figures.Drawing, f figures.Frame, s *spendView, i int) {
	at := s.asked.From.Add(time.Duration(i) * time.Duration(s.Spend.Step) * time.Second)
	low := int64(0)
	add := func(n int64, colour int, name, link string) {
		if n <= 0 {
			return
		}
		d.Bar(f, figures.Bar{
			Left: float64(i), Right: float64(i) + 0.86, Lower: float64(low), Upper: float64(low + n), Link: link,
			Class: "s" + strconv.Itoa(colour), Title: name + ": " + exact(n) + ", " + figures.Minute(at),
		})
		low += n
	}
	others := s.Others.Series[i]
	for n := range s.Lines {
		l := &s.Lines[n]
		if n < stackSeries {
			add(l.Series[i], n, l.Name, l.Link)
		} else {
			others += max(l.Series[i], 0)
		}
	}
	add(others, stackSeries, "others", "")
}

// mostTimes is how many marks the time axis has at most.
const mostTimes = 8

// times marks the time axis.
func (k *stack) times(s *spendView) {
	step := time.Duration(s.Spend.Step) * time.Second
	steps := len(s.Total.Series)
	every := (steps + mostTimes - 1) / mostTimes
	for i := 0; i < steps; i += every {
		at := s.asked.From.Add(time.Duration(i) * step)
		one := stackTime{Text: figures.Mark(at, step, step*time.Duration(steps))}
		if step >= time.Hour {
			one.Link = s.Link("range", customRange, "from", at.UTC().Format(inputLayout),
				"to", at.Add(step*time.Duration(every)).UTC().Format(inputLayout))
		}
		k.Times = append(k.Times, one)
	}
}

// shareText formats a part: 12 %, or less than 1 %.
func shareText(part, all int64) string {
	switch {
	case all <= 0 || part <= 0:
		return ""
	case part*100 < all:
		return "< 1 %"
	}
	return figures.Count(part*100/all) + " %"
}
