package simulate

import (
	"fmt"
	"time"

	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/tenants/settings"
)

// class returns the CSS class of a report's lines; the last report is highlighted.
func class(i int, reports []Report) string {
	if i == len(reports)-1 {
		return "new"
	}
	return "base"
}

func slotOf(r Report) time.Duration {
	if len(r.Timeline) < 2 {
		return max(r.To.Sub(r.From), time.Second)
	}
	return r.Timeline[1].At.Sub(r.Timeline[0].At)
}

// over draws a figure of the timelines, one line per report.
func (c *canvas) over(head string, reports []Report, unit func(float64) string,
	values func(Report) []float64, name func(Report) string,
) {
	var lines [][]float64
	var classes, names []string
	most := 0.0
	for i, r := range reports {
		v := values(r)
		for _, one := range v {
			most = max(most, one)
		}
		lines = append(lines, v)
		classes = append(classes, class(i, reports))
		names = append(names, name(r))
	}
	last := reports[len(reports)-1]
	f := c.open(head, len(last.Timeline), most, unit)
	for i := range lines {
		c.Line(f, lines[i], classes[i], names[i])
	}
	c.Legend(f, classes, names)
	c.Times(f, last.Timeline[0].At, slotOf(last))
	c.close()
}

func (c *canvas) spend(reports []Report) {
	c.over("Cumulative spend", reports, dollars, func(r Report) []float64 {
		out, sum := make([]float64, len(r.Timeline)), 0.0
		for i, s := range r.Timeline {
			sum += float64(s.Spend)
			out[i] = sum
		}
		return out
	}, func(r Report) string { return r.Policy + ": " + figures.USD(r.Total.Spend) })
}

func (c *canvas) waiting(reports []Report) {
	c.over("Calls waiting (maximum at a time)", reports, number, func(r Report) []float64 {
		out := make([]float64, len(r.Timeline))
		for i, s := range r.Timeline {
			out[i] = float64(s.Waiting)
		}
		return out
	}, func(r Report) string {
		return fmt.Sprintf("%s: %d waited, %d gave up, %d refused", r.Policy, r.Total.Waited, r.Total.GaveUp, r.Total.Refused)
	})
}

// mostFill is how many limits are drawn, which is the number of colors.
const mostFill = 5

// fill draws how full the limits were under a policy.
func (c *canvas) fill(r Report, named bool) {
	if len(r.Fill) == 0 {
		return
	}
	head := "Use of its limits (for per-user limits, the fullest user)"
	if named {
		head = "Use of the limits of " + r.Policy + " (for per-user limits, the fullest user)"
	}
	shown := r.Fill[:min(len(r.Fill), mostFill)]
	f := c.open(head, len(shown[0].Share), max(shown[0].Fullest, 1), percent)
	var classes, names []string
	for i, line := range shown {
		name := line.Limit
		if line.Org != "" {
			name = line.Org + " " + line.Limit
		}
		classes, names = append(classes, fmt.Sprintf("c%d", i)), append(names, name)
		c.Line(f, line.Share, classes[i], fmt.Sprintf("%s, at most %s", name, percent(line.Fullest)))
	}
	c.Rule(left, f.Y(1), right, f.Y(1), "full")
	if more := len(r.Fill) - len(shown); more > 0 {
		classes, names = append(classes, ""), append(names, fmt.Sprintf("%d less-used limits hidden", more))
	}
	c.Legend(f, classes, names)
	c.Times(f, r.Timeline[0].At, slotOf(r))
	c.close()
}

// column is a pair of bars.
type column struct {
	name  string
	calls []int // one per report
}

// waits draws what happened to the calls that did not run when they arrived.
func (c *canvas) waits(reports []Report) {
	last := reports[len(reports)-1]
	var columns []column
	for i, bin := range last.Waits {
		one := column{name: "longer"}
		if bin.UpTo > 0 {
			one.name = "up to " + settings.DurationText(bin.UpTo.Duration())
		}
		for _, r := range reports {
			one.calls = append(one.calls, r.Waits[i].Calls)
		}
		columns = append(columns, one)
	}
	gaveUp, refused := column{name: "gave up"}, column{name: "refused"}
	for _, r := range reports {
		gaveUp.calls, refused.calls = append(gaveUp.calls, r.Total.GaveUp), append(refused.calls, r.Total.Refused)
	}
	columns = append(columns, gaveUp, refused)
	most := 0
	for _, one := range columns {
		for _, n := range one.calls {
			most = max(most, n)
		}
	}
	f := c.open("Waiting times of calls that did not run immediately", len(columns), float64(most), number)
	var classes, names []string
	for k, r := range reports {
		classes, names = append(classes, class(k, reports)),
			append(names, fmt.Sprintf("%s: %d of %d ran immediately", r.Policy, r.Total.AtOnce, r.Total.Calls))
	}
	for i, one := range columns {
		c.bars(f, i, one, classes)
	}
	c.Legend(f, classes, names)
	c.Rule(left, f.Y(0), right, f.Y(0), "axis")
	c.close()
}

func (c *canvas) bars(f figures.Frame, i int, one column, classes []string) {
	const gap = 0.15
	wide := (1 - 2*gap) / float64(len(one.calls))
	for k, n := range one.calls {
		x := float64(i) + gap + wide*float64(k)
		if n > 0 {
			c.Bar(f, figures.Bar{
				Left: x, Right: x + wide*0.98, Upper: float64(n), Class: "bar-" + classes[k],
				Title: fmt.Sprintf("%s: %d", one.name, n),
			})
			c.Text(f.X(x+wide/2), f.Y(float64(n))-4, "tick middle", fmt.Sprint(n))
		}
	}
	c.Text(f.X(float64(i)+0.5), f.Y(0)+19, "tick middle", one.name)
}
