// Package report writes what attacks showed: a table, an HTML page and JSON that can be compared.
package report

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/llmguard/llmguard/bench/budget/attack"
	"github.com/llmguard/llmguard/bench/budget/price"
)

// Run is one run of the suite.
type Run struct {
	Time    time.Time        `json:"time"`
	Commit  string           `json:"commit"` // of the suite
	Machine string           `json:"machine"`
	Short   bool             `json:"short"`
	Seconds int              `json:"seconds"`
	Results []*attack.Result `json:"results"`
}

// New describes this machine and this suite.
func New(ctx context.Context, short bool) *Run {
	commit := "unknown"
	if out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output(); err == nil {
		commit = strings.TrimSpace(string(out))
	}
	return &Run{Time: time.Now().UTC().Truncate(time.Second), Commit: commit, Machine: machine(), Short: short}
}

func machine() string {
	cpu := "unknown CPU"
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			cpu = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d x %s, %s/%s", runtime.NumCPU(), cpu, runtime.GOOS, runtime.GOARCH)
}

// Read reads the JSON of a run.
func Read(path string) (*Run, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Run{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// Write writes the JSON and the page.
func (r *Run) Write(base string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(base+".json", append(text, '\n'), 0o600); err != nil {
		return err
	}
	page, err := os.Create(base + ".html")
	if err != nil {
		return err
	}
	defer page.Close()
	return r.page(page)
}

// Row is what a table shows of a result.
type Row struct {
	Attack, Outcome, Overspend, False, Overcharge, Ledger, Back string
}

// RowOf returns the row of a result.
func RowOf(r *attack.Result) Row {
	row := Row{Attack: r.Attack, Outcome: "held"}
	switch {
	case r.NA != "":
		return Row{r.Attack, "n/a", "n/a", "n/a", "n/a", "n/a", "n/a"}
	case r.Error != "":
		return Row{r.Attack, "error", "-", "-", "-", "-", "-"}
	case r.Documented():
		row.Outcome = "documented"
	case r.Failed():
		row.Outcome = "failed"
	case r.NoBudgets:
		row.Outcome = "no budget"
	}
	row.Overspend = Money(r.Overspend)
	if r.Overspend > 0 && r.Budget > 0 {
		row.Overspend += fmt.Sprintf(" (%d%%)", 100*r.Overspend/r.Budget)
	}
	if r.AboveParallel > 0 {
		row.Overspend = fmt.Sprintf("%d calls", r.AboveParallel)
	}
	row.False, row.Overcharge = fmt.Sprint(r.FalseRefusals), Money(r.Overcharge)
	row.Ledger, row.Back = "right", fmt.Sprintf("%.1f s", r.BackAfter)
	switch {
	case r.LedgerOff > 0:
		row.Ledger = "+" + Money(r.LedgerOff)
	case r.LedgerOff < 0:
		row.Ledger = "-" + Money(-r.LedgerOff)
	}
	if r.BackAfter < 0 {
		row.Back = "never"
	}
	if r.NoLedger {
		row.Ledger, row.Overcharge = "n/a", "n/a"
	}
	if r.NoBudgets {
		row.False, row.Back = "n/a", "n/a"
	}
	return row
}

// Money writes an amount as USD.
func Money(n price.Nano) string {
	if n == 0 {
		return "0"
	}
	text := strings.TrimRight(fmt.Sprintf("%d.%09d", n/price.USD, n%price.USD), "0")
	return "$" + strings.TrimSuffix(text, ".")
}

// Line is one line for a result, while a run goes on.
func Line(r *attack.Result) string {
	row := RowOf(r)
	text := fmt.Sprintf("%-16s %s", row.Attack, row.Outcome)
	if note := note(r); note != "" {
		text += ": " + note
	}
	return text
}

func note(r *attack.Result) string {
	switch {
	case r.NA != "":
		return r.NA
	case r.Error != "":
		return r.Error
	case r.Failed():
		row := RowOf(r)
		text := fmt.Sprintf("overspend %s, false refusals %s, overcharge %s", row.Overspend, row.False, row.Overcharge)
		if r.Reason != "" {
			text += ". " + r.Reason
		}
		return text
	}
	return ""
}

// Table writes the results as text.
func (r *Run) Table(out io.Writer) {
	for _, group := range r.groups() {
		fmt.Fprintf(out, "\n%s %s (%s; suite %s; %s)\n", group.Name, group.Version, r.Machine, r.Commit,
			r.Time.Format(time.DateOnly))
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "attack\toutcome\toverspend\tfalse refusals\tovercharge\tledger\tback after\t"+
			"served\trefused\toutage")
		for _, result := range group.Results {
			row, n := RowOf(result), result.Calls
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", row.Attack, row.Outcome, row.Overspend, row.False,
				row.Overcharge, row.Ledger, row.Back, n.Served, n.Refused, n.Outage)
		}
		_ = table.Flush()
		fmt.Fprintln(out, group.summary())
	}
}

type group struct {
	Name, Version string
	Results       []*attack.Result
}

func (r *Run) groups() []*group {
	var out []*group
	for _, result := range r.Results {
		if len(out) == 0 || out[len(out)-1].Name != result.Gateway {
			out = append(out, &group{Name: result.Gateway, Version: result.Version})
		}
		last := out[len(out)-1]
		last.Results = append(last.Results, result)
	}
	return out
}

func (g *group) summary() string {
	var held, documented, failed, na, errors int
	for _, r := range g.Results {
		switch {
		case r.NA != "":
			na++
		case r.Error != "":
			errors++
		case r.Documented():
			documented++
		case r.Failed() || r.NoBudgets:
			failed++
		default:
			held++
		}
	}
	return fmt.Sprintf("%s: %d held, %d charge more for a documented reason, %d failed, %d n/a, %d errors", g.Name, held,
		documented, failed, na, errors)
}

// Compare writes what differs from an earlier run.
func (r *Run) Compare(out io.Writer, before *Run) {
	fmt.Fprintf(out, "\ncompared with %s, suite %s, %s:\n", before.Time.Format(time.DateTime), before.Commit,
		before.Machine)
	if before.Short != r.Short {
		fmt.Fprintln(out, "one of the runs was short: times and amounts differ for this reason")
	}
	old := map[string]Row{}
	for _, result := range before.Results {
		old[result.Gateway+" "+result.Attack] = RowOf(result)
	}
	same := 0
	for _, result := range r.Results {
		name, now := result.Gateway+" "+result.Attack, RowOf(result)
		was, ok := old[name]
		now.Back, was.Back = "", "" // never the same twice
		switch {
		case !ok:
			fmt.Fprintf(out, "  %s: new, %s\n", name, now.Outcome)
		case was != now:
			fmt.Fprintf(out, "  %s: %s -> %s\n", name, was, now)
		default:
			same++
		}
	}
	fmt.Fprintf(out, "  %d are the same\n", same)
}

func (r Row) String() string {
	return fmt.Sprintf("%s (overspend %s, false refusals %s, overcharge %s, ledger %s)", r.Outcome, r.Overspend, r.False,
		r.Overcharge, r.Ledger)
}
