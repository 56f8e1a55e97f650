package console

import (
	"html/template"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/pricing"
)

// stackSeries is how many groups a chart shows with colours of their own.
const stackSeries = 6

// stack is a chart of bars, drawn on the server: one bar for each step, stacked by group.
type stack struct {
	ID     string        // of the element; unique on the page
	Plot   template.HTML // 1000 by 200
	Legend []stackName
	Marks  []string // of the vertical axis, highest first
	Times  []stackTime
	Text   string     // for those who do not see it
	Rows   []stackRow // the same as a table, newest step first

	lines []stackLine
	axis  stackAxis
}

type stackName struct {
	Colour     int
	Name, Link string
	Cost       pricing.Nano
}

// stackTime is a mark of the time axis; its link shows that step alone.
type stackTime struct{ Text, Link string }

type stackRow struct {
	At    string
	Costs []spent // by the names of the legend
}

// stackLine is what a group spent in each step.
type stackLine struct {
	Name, Link string
	Costs      []spent
}

// stackAxis is the time axis.
type stackAxis struct {
	From time.Time
	Step time.Duration
	Link func(from, to time.Time) string // the page of some steps; nil: none
}

// newStack draws the first lines, and all others as one; nil if nothing was spent.
func newStack(id, title string, axis stackAxis, lines []stackLine) *stack {
	k := &stack{ID: id, lines: merged(lines), axis: axis, Text: title}
	sums := make([]pricing.Nano, k.steps())
	for i, l := range k.lines {
		name := stackName{i, l.Name, l.Link, 0}
		for at, s := range l.Costs {
			name.Cost += s.Cost
			sums[at] += max(s.Cost, 0)
		}
		k.Legend = append(k.Legend, name)
	}
	most := slices.Max(append(sums, 0))
	if most == 0 {
		return nil
	}
	d, f := &figures.Drawing{}, figures.Frame{Right: 1000, Height: 200, N: k.steps()}
	for _, v := range f.Scale(float64(most)) {
		d.Rule(0, f.Y(v), f.Right, f.Y(v), "grid")
		k.Marks = append(k.Marks, figures.USD(pricing.Nano(math.Round(v))))
	}
	slices.Reverse(k.Marks)
	for i := range k.steps() {
		k.step(d, f, i)
	}
	slices.Reverse(k.Rows)
	k.Plot = d.SVG()
	k.times()
	return k
}

// merged returns the first lines, and the sum of all others.
func merged(lines []stackLine) []stackLine {
	if len(lines) <= stackSeries {
		return lines
	}
	others := stackLine{Name: "others", Costs: slices.Clone(lines[stackSeries].Costs)}
	for _, l := range lines[stackSeries+1:] {
		for i := range l.Costs {
			others.Costs[i].add(l.Costs[i])
		}
	}
	return append(slices.Clone(lines[:stackSeries]), others)
}

func (k *stack) steps() int {
	if len(k.lines) == 0 {
		return 0
	}
	return len(k.lines[0].Costs)
}

// step draws one step.
func (k *stack) step(d *figures.Drawing, f figures.Frame, i int) {
	at := k.axis.From.Add(time.Duration(i) * k.axis.Step)
	row, low := stackRow{At: figures.Minute(at)}, pricing.Nano(0)
	if k.axis.Step >= wholeDay {
		row.At = at.Format(time.DateOnly)
	}
	for n, l := range k.lines {
		cost := l.Costs[i].Cost
		row.Costs = append(row.Costs, l.Costs[i])
		if cost <= 0 {
			continue
		}
		d.Bar(f, figures.Bar{
			Left: float64(i), Right: float64(i) + 0.86, Lower: float64(low), Upper: float64(low + cost), Link: l.Link,
			Class: "s" + strconv.Itoa(n), Title: l.Name + ": " + exact(int64(cost)) + ", " + row.At,
		})
		low += cost
	}
	k.Rows = append(k.Rows, row)
}

// mostTimes is how many marks the time axis has at most.
const mostTimes = 8

// times marks the time axis.
func (k *stack) times() {
	steps, step := k.steps(), k.axis.Step
	every := (steps + mostTimes - 1) / mostTimes
	for i := 0; i < steps; i += every {
		at := k.axis.From.Add(time.Duration(i) * step)
		one := stackTime{Text: figures.Mark(at, step, step*time.Duration(steps))}
		if k.axis.Link != nil && step >= time.Hour {
			one.Link = k.axis.Link(at, at.Add(step*time.Duration(every)))
		}
		k.Times = append(k.Times, one)
	}
}
