package cli

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/llmguard/llmguard/budget"
	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/simulate"
)

func (f *simulateFlags) print(reports []simulate.Report, w, notes io.Writer) error {
	for _, r := range reports {
		for why, n := range r.Skipped {
			fmt.Fprintf(notes, "%s: %d not replayed: %s\n", r.Policy, n, escape.Text(why))
		}
	}
	switch f.trace.usage.output {
	case "json", "yaml":
		return render(w, f.trace.usage.output, map[string]any{"reports": reports}, nil)
	case "jsonl":
		return render(w, "jsonl", reports, nil)
	case "csv":
		return simulateCSV(w, reports)
	}
	last := reports[len(reports)-1]
	fmt.Fprintf(w, "%s calls from %s to %s UTC\n\n", whole(int64(last.Total.Calls)),
		last.From.Format("2006-01-02 15:04:05"), last.To.Format("2006-01-02 15:04:05"))
	totals := lineGrid("policy")
	for _, r := range reports {
		addLine(w, &totals, []string{r.Policy}, r.Total)
	}
	if err := totals.write(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := f.printLines(reports, w); err != nil {
		return err
	}
	for _, r := range reports {
		if err := printLimits(r, w); err != nil {
			return err
		}
	}
	return nil
}

func lineGrid(names ...string) grid {
	head := append(slices.Clone(names), "calls", "immediate", "waited", "p50", "p95", "p99", "gave up", "refused", "spend",
		"not spent")
	numbers := make([]bool, len(head))
	for i := range numbers {
		numbers[i] = i >= len(names)
	}
	return grid{head: head, numbers: numbers}
}

func addLine(w io.Writer, g *grid, names []string, l simulate.Line) {
	g.add(append(names, whole(int64(l.Calls)), whole(int64(l.AtOnce)), whole(int64(l.Waited)), l.WaitP50.String(),
		l.WaitP95.String(), l.WaitP99.String(),
		whole(int64(l.GaveUp)), whole(int64(l.Refused)), usd(w, l.Spend), usd(w, l.Unspent))...)
}

// lineNames returns the values of the dimensions of a line.
func lineNames(by []string, l simulate.Line) []string {
	var out []string
	for _, d := range by {
		switch d {
		case "org":
			out = append(out, l.Org)
		case "user":
			out = append(out, userOf(l.Org, l.User))
		case "key":
			out = append(out, l.Key)
		default:
			out = append(out, escape.Text(l.Model))
		}
	}
	return out
}

func userOf(org, user string) string { return org + "/" + user }

// printLines prints one line per org, user, key or model, for one policy or for two side by
// side.
func (f *simulateFlags) printLines(reports []simulate.Report, w io.Writer) error {
	after := reports[len(reports)-1]
	lines := after.Lines
	if f.top > 0 && len(lines) > f.top {
		lines = lines[:f.top]
	}
	if len(reports) == 1 {
		g := lineGrid(after.By...)
		for _, l := range lines {
			addLine(w, &g, lineNames(after.By, l), l)
		}
		return g.write(w)
	}
	before := map[string]simulate.Line{}
	for _, l := range reports[0].Lines {
		before[fmt.Sprint(lineNames(after.By, l))] = l
	}
	head := append(slices.Clone(after.By), "calls", "waited", "→", "p95", "→", "gave up", "→", "refused", "→", "spend",
		"→")
	g := grid{head: head, numbers: make([]bool, len(head))}
	for i := range g.numbers {
		g.numbers[i] = i >= len(after.By)
	}
	for _, l := range lines {
		names := lineNames(after.By, l)
		b := before[fmt.Sprint(names)]
		n := func(i int) string { return whole(int64(i)) }
		g.add(append(names, n(l.Calls), n(b.Waited), n(l.Waited), b.WaitP95.String(), l.WaitP95.String(), n(b.GaveUp),
			n(l.GaveUp),
			n(b.Refused), n(l.Refused), usd(w, b.Spend), usd(w, l.Spend))...)
	}
	return g.write(w)
}

// printLimits prints which limits delayed calls, and which limits in shadow mode would have.
func printLimits(r simulate.Report, w io.Writer) error {
	if len(r.Limits) > 0 {
		fmt.Fprintf(w, "\nlimits that held calls back under %s\n", r.Policy)
		g := grid{
			head:    []string{"limit", "waited", "p95", "gave up", "refused"},
			numbers: []bool{false, true, true, true, true},
		}
		for _, l := range r.Limits {
			g.add(escape.Text(l.Limit), whole(int64(l.Waited)), l.WaitP95.String(), whole(int64(l.GaveUp)),
				whole(int64(l.Refused)))
		}
		if err := g.write(w); err != nil {
			return err
		}
	}
	if len(r.Brakes) > 0 {
		fmt.Fprintf(w, "\nbrakes that fired under %s\n", r.Policy)
		g := grid{head: []string{"brake", "org", "subject", "action", "at", "why"}, numbers: make([]bool, 6)}
		for i := range r.Brakes {
			b := &r.Brakes[i]
			g.add(b.Brake, b.Org, escape.Text(b.Subject), string(b.Action), b.At.Format(time.DateTime),
				b.Evidence.Text(true))
		}
		if err := g.write(w); err != nil {
			return err
		}
	}
	if len(r.Shadow) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nlimits in shadow mode that would have held calls back under %s\n", r.Policy)
	return shadowGrid(r.Shadow).write(w)
}

func shadowGrid(list []simulate.ShadowLine) *grid {
	g := &grid{
		head:    []string{"limit", "user", "would wait", "p50", "p95", "longest", "would be refused"},
		numbers: []bool{false, false, true, true, true, true, true},
	}
	for _, l := range list {
		user := userOf(l.Org, l.User)
		if l.User == "" {
			user = l.Org
		}
		g.add(escape.Text(l.Limit), user, whole(int64(l.Waited)), l.WaitP50.String(), l.WaitP95.String(),
			l.WaitMax.String(), whole(int64(l.Refused)))
	}
	return g
}

func simulateCSV(w io.Writer, reports []simulate.Report) error {
	out := escape.NewCSV(w)
	_ = out.Write([]string{
		"policy", "org", "user", "key", "model", "calls", "at_once", "waited", "wait_p50_ms", "wait_p95_ms", "wait_p99_ms",
		"wait_max_ms",
		"gave_up", "refused", "spend_usd", "not_spent_usd", "recorded_usd",
	})
	for _, r := range reports {
		for _, l := range r.Lines {
			_ = out.Write([]string{
				r.Policy, l.Org, budget.CellText(l.User), budget.CellText(l.Key), budget.CellText(l.Model),
				whole(int64(l.Calls)), whole(int64(l.AtOnce)), whole(int64(l.Waited)),
				whole(int64(l.WaitP50)), whole(int64(l.WaitP95)), whole(int64(l.WaitP99)), whole(int64(l.WaitMax)),
				whole(int64(l.GaveUp)), whole(int64(l.Refused)),
				l.Spend.Decimal(), l.Unspent.Decimal(), l.Recorded.Decimal(),
			})
		}
	}
	out.Flush()
	return out.Error()
}
