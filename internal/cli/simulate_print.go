package cli

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/llmguard/llmguard/internal/escape"
	"github.com/llmguard/llmguard/internal/figures"
	"github.com/llmguard/llmguard/internal/simulate"
)

func (f *simulateFlags) print(reports []simulate.Report, w, notes io.Writer) error {
	for _, r := range reports {
		for why, n := range r.Skipped {
			fmt.Fprintf(notes, "%s: %d not replayed: %s\n", r.Policy, n, escape.Text(why))
		}
	}
	if len(f.shadow) > 0 {
		fmt.Fprintf(notes, "in shadow mode, they refused nothing in this replay: %s. Enforce one with --set '%s: enforce'\n",
			strings.Join(f.shadow, ", "), f.shadow[0])
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
	fmt.Fprintf(w, "%s calls %s\n\n", whole(int64(last.Total.Calls)), figures.Between(last.From, last.To))
	var names [][]string
	var totals []simulate.Line
	for _, r := range reports {
		names, totals = append(names, []string{r.Policy}), append(totals, r.Total)
	}
	if err := lineTable(w, []string{"policy"}, names, totals); err != nil {
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

var (
	lineColumns = columnsOf(reflect.TypeFor[simulate.Line](), "calls:calls", "at_once:immediate", "waited:waited",
		"wait_p50_ms:p50;span", "wait_p95_ms:p95;span", "wait_p99_ms:p99;span", "gave_up:gave up", "refused:refused",
		"spend_nano:spend;usd", "not_spent_nano:not spent;usd")
	delayColumns = columnsOf(reflect.TypeFor[simulate.LimitLine](), "limit:limit", "waited:waited", "wait_p95_ms:p95;span",
		"gave_up:gave up", "refused:refused")
	shadowColumns = columnsOf(reflect.TypeFor[simulate.ShadowLine](), "limit:limit", "user:user;=user",
		"would_wait:would wait", "wait_p50_ms:p50;span", "wait_p95_ms:p95;span", "wait_max_ms:longest;span", "would_refuse:would be refused")
	lineCSV = columnsOf(reflect.TypeFor[policyLine](), "policy:policy;text", "org:org", "user:user;text", "key:key;text",
		"model:model;text", "calls:calls", "at_once:at_once", "waited:waited", "wait_p50_ms:wait_p50_ms;int",
		"wait_p95_ms:wait_p95_ms;int", "wait_p99_ms:wait_p99_ms;int", "wait_max_ms:wait_max_ms;int", "gave_up:gave_up",
		"refused:refused", "spend_nano:spend_usd;decimal", "not_spent_nano:not_spent_usd;decimal",
		"recorded_nano:recorded_usd;decimal")
)

// lineTable prints lines, each after its names.
func lineTable(w io.Writer, head []string, names [][]string, lines []simulate.Line) error {
	g := gridOf(w, lines, lineColumns)
	g.head, g.numbers = append(slices.Clone(head), g.head...), append(make([]bool, len(head)), g.numbers...)
	for i := range g.rows {
		g.rows[i] = append(slices.Clone(names[i]), g.rows[i]...)
	}
	return g.write(w)
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
		var names [][]string
		for _, l := range lines {
			names = append(names, lineNames(after.By, l))
		}
		return lineTable(w, after.By, names, lines)
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
		err := tableOf(w, r.Limits, delayColumns)
		if err != nil {
			return err
		}
	}
	if len(r.Brakes) > 0 {
		fmt.Fprintf(w, "\nbrakes that fired under %s\n", r.Policy)
		g := grid{head: []string{"brake", "org", "subject", "action", "at (UTC)", "why"}, numbers: make([]bool, 6)}
		for i := range r.Brakes {
			b := &r.Brakes[i]
			g.add(b.Brake, b.Org, escape.Text(b.Subject), string(b.Action),
				figures.Cell(figures.Second(b.At)), b.Evidence.Text(true))
		}
		if err := g.write(w); err != nil {
			return err
		}
	}
	if len(r.Shadow) == 0 {
		return nil
	}
	fmt.Fprintf(w, "\nlimits in shadow mode that would have held calls back under %s\n", r.Policy)
	return shadowTable(w, r.Shadow)
}

func shadowTable(w io.Writer, list []simulate.ShadowLine) error {
	return tableOf(w, list, shadowColumns)
}

type policyLine struct {
	Policy string `json:"policy"`
	simulate.Line
}

func simulateCSV(w io.Writer, reports []simulate.Report) error {
	var all []policyLine
	for _, r := range reports {
		for _, l := range r.Lines {
			all = append(all, policyLine{r.Policy, l})
		}
	}
	return csvOf(w, all, lineCSV)
}
