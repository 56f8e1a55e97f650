package console

import (
	"time"

	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/pricing"
)

// stackSeries is how many groups a chart shows with colours of their own.
const stackSeries = 6

// Height and width of a chart, in units of its drawing.
const (
	stackHeight = 200.0
	stackWidth  = 1000.0
)

// stack is a chart of bars, drawn on the server: one bar for each step, stacked by group.
type stack struct {
	Bars   []stackBar
	Legend []stackName
	Marks  []stackMark // of the vertical axis, highest first
	Times  []stackTime
	Width  float64 // of a bar
	Text   string  // for those who do not see it
}

type stackBar struct{ Parts []stackPart }

// stackPart is one group's part of a bar.
type stackPart struct {
	X, Y, Height float64
	Colour       int
	Text, Link   string
}

type stackName struct {
	Colour     int
	Name, Link string
	Cost       int64
}

type stackMark struct {
	Y    float64
	Text string
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
	top := niceTop(most)
	k := &stack{Width: stackWidth / float64(steps) * 0.86}
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
		k.Bars = append(k.Bars, k.bar(s, i, top))
	}
	for _, part := range []int64{4, 3, 2, 1, 0} {
		k.Marks = append(k.Marks, stackMark{stackHeight * float64(4-part) / 4, figures.USD(pricing.Nano(top / 4 * part))})
	}
	k.times(s)
	k.Text = "Spending from " + figures.Minute(s.asked.From) + " to " + figures.Minute(s.asked.To) + " by " + s.Title() +
		"; the table below has the sums"
	return k
}

// bar draws one step.
func (k *stack) bar(s *spendView, i int, top int64) stackBar {
	var b stackBar
	x, y := stackWidth/float64(len(s.Total.Series))*float64(i), stackHeight
	at := s.asked.From.Add(time.Duration(i) * time.Duration(s.Spend.Step) * time.Second)
	add := func(n int64, colour int, name, link string) {
		if n <= 0 {
			return
		}
		h := stackHeight * float64(n) / float64(top)
		y -= h
		b.Parts = append(b.Parts, stackPart{x, y, h, colour, name + ": " + exact(n) + ", " + figures.Minute(at), link})
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
	return b
}

// mostTimes is how many marks the time axis has at most.
const mostTimes = 8

// times marks the time axis.
func (k *stack) times(s *spendView) {
	step := time.Duration(s.Spend.Step) * time.Second
	layout := "15:04"
	if step >= 24*time.Hour {
		layout = "Jan 2"
	}
	steps := len(s.Total.Series)
	every := (steps + mostTimes - 1) / mostTimes
	for i := 0; i < steps; i += every {
		at := s.asked.From.Add(time.Duration(i) * step)
		one := stackTime{Text: at.UTC().Format(layout)}
		if step >= time.Hour {
			one.Link = s.Link("range", customRange, "from", at.UTC().Format(inputLayout),
				"to", at.Add(step*time.Duration(every)).UTC().Format(inputLayout))
		}
		k.Times = append(k.Times, one)
	}
}

// niceTop returns the end of an axis with four parts of round amounts, at least n.
func niceTop(n int64) int64 {
	unit := int64(1)
	for unit*40 < n {
		unit *= 10
	}
	for _, part := range []int64{1, 2, 3, 5, 10} {
		if top := 4 * part * unit; top >= n {
			return top
		}
	}
	return 40 * unit
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
