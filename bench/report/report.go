// Package report aggregates the samples of interleaved rounds into a table of medians, and
// writes them in the format of benchstat.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Sample is one measurement of one target in one round of one cell.
type Sample struct {
	Cell   string // prompt and loop, such as "8192 B, new"
	Target string
	Round  int
	Calls  int
	Errors int
	// CPU and Redis are the CPU time per call of the target's process and of Redis.
	CPU, Redis    time.Duration
	PerSecond     float64
	P50, P99      time.Duration
	P999          time.Duration // 99.9 %
	Dropped       int
	ErrorText     string
	OfferedPerSec float64 // open loop; 0: closed loop
}

// total returns the CPU time of everything between caller and upstream.
func (s Sample) total() time.Duration { return s.CPU + s.Redis }

// Table holds samples and the reference that they are compared with.
type Table struct {
	Reference string // target that ratios refer to
	samples   []Sample
}

// Add adds a sample.
func (t *Table) Add(s Sample) { t.samples = append(t.samples, s) }

// Row holds the medians of one target in one cell.
type Row struct {
	Cell, Target    string
	Rounds          int
	CPU, Redis      time.Duration
	PerSecond       float64
	P50, P99        time.Duration
	P999            time.Duration
	Ratio, OwnRatio float64 // relative to the reference in the same round; 0: unknown
	Errors, Dropped int     // over all rounds
}

// Rows returns one row per cell and target, in the order in which they were first added.
func (t *Table) Rows() []Row {
	var rows []Row
	for _, s := range t.samples {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.Cell == s.Cell && r.Target == s.Target }) {
			rows = append(rows, t.row(s.Cell, s.Target))
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return t.order(a.Cell) - t.order(b.Cell) })
	return rows
}

// order returns when a cell was first added.
func (t *Table) order(cell string) int {
	return slices.IndexFunc(t.samples, func(s Sample) bool { return s.Cell == cell })
}

func (t *Table) row(cell, target string) Row {
	var own []Sample
	var ratios, ownRatios []float64
	r := Row{Cell: cell, Target: target}
	for _, s := range t.samples {
		if s.Cell != cell || s.Target != target {
			continue
		}
		own = append(own, s)
		r.Errors += s.Errors
		r.Dropped += s.Dropped
		if ref, ok := t.reference(s); ok {
			ratios = append(ratios, float64(s.total())/float64(ref.total()))
			ownRatios = append(ownRatios, float64(s.CPU)/float64(ref.CPU))
		}
	}
	r.Rounds = len(own)
	r.CPU = median(own, func(s Sample) time.Duration { return s.CPU })
	r.Redis = median(own, func(s Sample) time.Duration { return s.Redis })
	r.P50 = median(own, func(s Sample) time.Duration { return s.P50 })
	r.P99 = median(own, func(s Sample) time.Duration { return s.P99 })
	r.P999 = median(own, func(s Sample) time.Duration { return s.P999 })
	r.PerSecond = median(own, func(s Sample) float64 { return s.PerSecond })
	r.Ratio = median(ratios, func(v float64) float64 { return v })
	r.OwnRatio = median(ownRatios, func(v float64) float64 { return v })
	return r
}

// reference returns the sample to compare with: same cell, same round.
func (t *Table) reference(s Sample) (Sample, bool) {
	i := slices.IndexFunc(t.samples, func(o Sample) bool {
		return o.Target == t.Reference && o.Cell == s.Cell && o.Round == s.Round && o.CPU > 0
	})
	if i < 0 {
		return Sample{}, false
	}
	return t.samples[i], true
}

// median returns the mean of the middle two for an even number of values, and zero for none.
func median[S any, T time.Duration | float64](list []S, of func(S) T) T {
	if len(list) == 0 {
		return 0
	}
	values := make([]T, len(list))
	for i, s := range list {
		values[i] = of(s)
	}
	slices.Sort(values)
	mid := len(values) / 2
	if len(values)%2 == 1 {
		return values[mid]
	}
	return (values[mid-1] + values[mid]) / 2
}

// Markdown writes the medians as a table.
func (t *Table) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "CPU in µs per call; x is CPU + Redis against %q in the same round.\n\n", t.Reference)
	b.WriteString("| prompt | target | CPU | Redis | sum | x | x own | calls/s | p50 ms | p99 ms | p99.9 ms | failed |\n")
	b.WriteString("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range t.Rows() {
		fmt.Fprintf(&b, "| %s | %s | %.0f | %.0f | %.0f | %s | %s | %.0f | %.2f | %.2f | %.2f | %d |\n",
			r.Cell, r.Target, micros(r.CPU), micros(r.Redis), micros(r.CPU+r.Redis), ratio(r.Ratio), ratio(r.OwnRatio),
			r.PerSecond, millis(r.P50), millis(r.P99), millis(r.P999), r.Errors+r.Dropped)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Benchstat writes every sample as a line in Go's benchmark format.
func (t *Table) Benchstat(w io.Writer) error {
	var b strings.Builder
	for _, s := range t.samples {
		if s.Calls == 0 {
			continue
		}
		fmt.Fprintf(&b, "BenchmarkCall/prompt=%s/target=%s %d %.0f ns/op %.2f cpu-us/op %.2f redis-us/op %.0f p50-ns %.0f "+
			"p99-ns %.0f p99.9-ns %.0f calls/s\n",
			slug(s.Cell), slug(s.Target), s.Calls, 1e9/s.PerSecond, micros(s.CPU), micros(s.Redis),
			float64(s.P50), float64(s.P99), float64(s.P999), s.PerSecond)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func ratio(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", v)
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// slug returns a name that consists of letters, digits, "+" and "_".
func slug(s string) string {
	return strings.NewReplacer(", ", "_", " ", "_", "/", "_").Replace(s)
}
